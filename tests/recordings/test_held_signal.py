"""A held signal's step averages are exact integrals, at any offset from its samples."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from sbical.recordings.held_signal import HeldSignal

HOLDS: tuple[Literal["zoh", "linear"], ...] = ("zoh", "linear")


def jittered(hold: Literal["zoh", "linear"]) -> HeldSignal:
    rng = np.random.default_rng(1)
    return HeldSignal(np.cumsum(rng.uniform(0.005, 0.03, 40)), rng.normal(size=40), hold)


def sampled(signal: HeldSignal, at: np.ndarray) -> np.ndarray:
    """What the signal is at a time, written down without integrals."""
    if signal.hold == "linear":
        return np.interp(at, signal.time, signal.value)
    return signal.value[np.clip(np.searchsorted(signal.time, at, side="right") - 1, 0, None)]


@pytest.mark.parametrize("hold", HOLDS)
def test_averages_equal_a_fine_sum(hold: Literal["zoh", "linear"]) -> None:
    signal = jittered(hold)
    edges = np.linspace(signal.time[0] - 0.1, signal.time[-1] + 0.1, 31)
    fine = np.linspace(edges[:-1], edges[1:], 20_001, axis=1)
    expected = sampled(signal, (fine[:, 1:] + fine[:, :-1]) / 2).mean(1)
    np.testing.assert_allclose(signal.averages(edges), expected, atol=2e-4)


@pytest.mark.parametrize("hold", HOLDS)
def test_ends_extend_to_infinity(hold: Literal["zoh", "linear"]) -> None:
    signal = HeldSignal(np.array([1.0, 2.0]), np.array([3.0, 5.0]), hold)
    np.testing.assert_allclose(signal.averages(np.array([-9.0, 1.0])), [3.0])
    np.testing.assert_allclose(signal.averages(np.array([2.0, 7.0])), [5.0])
    np.testing.assert_allclose(signal.averages(np.array([1.0, 2.0])), [3.0 if hold == "zoh" else 4.0])


@pytest.mark.parametrize("hold", HOLDS)
def test_one_sample_is_a_constant(hold: Literal["zoh", "linear"]) -> None:
    signal = HeldSignal(np.array([0.3]), np.array([2.5]), hold)
    np.testing.assert_allclose(signal.averages(np.linspace(-1, 1, 9)), np.full(8, 2.5))


@pytest.mark.parametrize("hold", HOLDS)
def test_averages_move_continuously_with_a_shift_below_the_step(hold: Literal["zoh", "linear"]) -> None:
    signal, edges = jittered(hold), np.arange(0.1, 0.5, 0.002)
    shifts = np.linspace(0.0, 0.004, 41)
    moved = np.stack([signal.averages(edges - s) for s in shifts])
    # a shift of 0.1 ms moves at most 1/20 of a 2 ms step across the largest jump
    assert np.abs(np.diff(moved, axis=0)).max() <= 0.05 * np.ptp(signal.value) + 1e-9
    assert len(np.unique(moved.round(12), axis=0)) == 41


@pytest.mark.parametrize("hold", HOLDS)
def test_rows_do_not_depend_on_each_other(hold: Literal["zoh", "linear"]) -> None:
    signal = jittered(hold)
    edges = np.arange(0.0, 0.9, 0.002) - np.linspace(0, 0.01, 17)[:, None]
    together = signal.averages(edges)
    assert together.shape == (17, edges.shape[1] - 1)
    for row, own in zip(together, edges, strict=True):
        assert np.array_equal(row, signal.averages(own))


def test_value_at_a_time_is_held_or_interpolated() -> None:
    time, value = np.array([0.0, 1.0, 2.0]), np.array([1.0, 3.0, 2.0])
    at = np.array([-1.0, 0.0, 0.5, 1.0, 5.0])
    assert HeldSignal(time, value).at(at).tolist() == [1.0, 1.0, 1.0, 3.0, 2.0]
    assert HeldSignal(time, value, "linear").at(at).tolist() == [1.0, 1.0, 2.0, 3.0, 2.0]
