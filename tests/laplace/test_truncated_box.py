"""Boxes against SciPy's truncated normal, one axis at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats

from sbical.laplace.truncated_box import Box, BoxMixture

#: its stubs do not know frozen distributions
stats: Any = scipy.stats
CENTRE, SPREAD = np.array([1.0, -3.0]), np.array([0.5, 2.0])
TURN = np.array([[np.cos(0.7), -np.sin(0.7)], [np.sin(0.7), np.cos(0.7)]])


def boxed(mode: list[float], sd: list[float], radius: float = 4.0) -> Box:
    """Around a mode and standard deviations along turned axes, both in the prior's standard coordinates; ``sd`` ascends."""
    mode_u = CENTRE + SPREAD * (TURN @ np.array(mode))
    covariance = SPREAD[:, None] * TURN @ np.diag(np.square(sd)) @ TURN.T * SPREAD
    return Box.around(mode_u, covariance, CENTRE, SPREAD, radius)


def along(box: Box, u: np.ndarray) -> np.ndarray:
    return ((u - CENTRE) / SPREAD) @ box.axes


BOXES = {
    "narrow": boxed([0.4, -0.8], [0.02, 0.1]),
    "wide": boxed([0.4, -0.8], [0.3, 0.6]),
    "half flat": boxed([1.5, 0.1], [0.05, 1.0]),
    "upper tail": boxed([4.0, 3.5], [0.05, 0.1], 3.0),
    "lower tail": boxed([-4.0, -3.5], [0.05, 0.1], 3.0),
}


@pytest.mark.parametrize("name", BOXES)
def test_samples_are_the_prior_within_the_box(name: str) -> None:
    box = BOXES[name]
    u = box.sample(4000, np.random.default_rng(0))
    inside = along(box, u)
    assert (inside >= box.low - 1e-9).all()
    assert (inside <= box.high + 1e-9).all()
    for values, low, high in zip(inside.T, box.low, box.high, strict=True):
        assert stats.kstest(values, stats.truncnorm(low, high).cdf).pvalue > 1e-3


@pytest.mark.parametrize("name", BOXES)
def test_density_is_that_of_truncated_normals(name: str) -> None:
    box = BOXES[name]
    u = box.sample(200, np.random.default_rng(1))
    away = np.abs(np.stack([along(box, u) - box.low, box.high - along(box, u)])).min((0, 2)) > 1e-9
    per_axis = stats.truncnorm(box.low, box.high).logpdf(along(box, u))
    np.testing.assert_allclose(box.log_prob(u[away]), per_axis.sum(1)[away] - np.log(SPREAD).sum(), rtol=1e-7)
    mass = (
        np.log(stats.norm.sf(box.low) - stats.norm.sf(box.high))
        if name == "upper tail"
        else np.log(stats.norm.cdf(box.high) - stats.norm.cdf(box.low))
    )
    assert box.log_mass() == pytest.approx(mass.sum(), rel=1e-7)


@pytest.mark.parametrize("name", ["narrow", "wide", "upper tail"])
def test_density_integrates_to_one(name: str) -> None:
    box = BOXES[name]
    corners = CENTRE + SPREAD * (np.array(np.meshgrid(*zip(box.low, box.high, strict=True))).reshape(2, -1).T @ box.axes.T)
    grid = [np.linspace(a, b, 801) for a, b in zip(corners.min(0), corners.max(0), strict=True)]
    points = np.stack(np.meshgrid(*grid), -1).reshape(-1, 2)
    cell = np.prod([g[1] - g[0] for g in grid])
    assert np.exp(box.log_prob(points)).sum() * cell == pytest.approx(1.0, abs=0.01)


def test_there_is_nothing_outside() -> None:
    box = BOXES["narrow"]
    far = box.mode_u + box.factor @ np.array([4.1, 0.0])
    near = box.mode_u + box.factor @ np.array([3.9, 0.0])
    assert np.isfinite(box.log_prob(np.stack([near, far]))).tolist() == [True, False]


def test_what_the_data_leave_open_keeps_the_prior() -> None:
    half = BOXES["half flat"]
    assert np.isfinite(half.high).tolist() == [True, True]
    assert np.isfinite(half.low).tolist() == [True, True]
    assert half.high[1] - half.low[1] == pytest.approx(8.0)
    open_box = boxed([0.4, 0.3], [0.05, 1.25])
    assert np.isfinite(open_box.low).tolist() == [True, False]
    assert np.isfinite(open_box.high).tolist() == [True, False]
    drawn = along(open_box, open_box.sample(4000, np.random.default_rng(2)))
    assert stats.kstest(drawn[:, 1], "norm").pvalue > 1e-3
    everything = boxed([0.0, 0.0], [1.2, 1.3])
    u = everything.sample(50, np.random.default_rng(3))
    np.testing.assert_allclose(everything.log_prob(u), stats.norm(CENTRE, SPREAD).logpdf(u).sum(1))
    assert everything.log_mass() == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("name", BOXES)
def test_factor_and_whitened_are_inverse(name: str) -> None:
    box = BOXES[name]
    z = np.random.default_rng(4).normal(size=(20, 2))
    np.testing.assert_allclose(box.whitened(box.mode_u + z @ box.factor.T), z, atol=1e-9)
    np.testing.assert_allclose(box.whitened(box.mode_u[None]), 0.0, atol=1e-9)


def test_factor_is_a_root_of_the_covariance() -> None:
    root = np.random.default_rng(5).normal(size=(3, 3))
    covariance = root @ root.T
    spread = np.array([0.1, 1.0, 30.0])
    box = Box.around(np.array([1.0, 2.0, 3.0]), covariance, np.zeros(3), spread, 4.0)
    np.testing.assert_allclose(box.factor @ box.factor.T, covariance)
    np.testing.assert_allclose(box.mode_u, [1.0, 2.0, 3.0])


def test_a_mixture_of_boxes() -> None:
    region = BoxMixture((BOXES["narrow"], BOXES["wide"]), np.array([0.3, 0.7]))
    assert list(region.counts(1000)) == [300, 700]
    assert sum(region.counts(7)) == 7
    u = BOXES["wide"].sample(50, np.random.default_rng(6))
    parts = np.exp(np.stack([b.log_prob(u) for b in region.boxes]))
    np.testing.assert_allclose(np.exp(region.log_prob(u)), 0.3 * parts[0] + 0.7 * parts[1])
