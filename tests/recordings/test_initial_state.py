"""Initial states: exact for a parabola, honest about their spread however a motion bends, silent about joints that are not measured."""

from __future__ import annotations

import numpy as np
import pytest

from sbical.recordings.initial_state import InitialState, JointSensor, estimate, widened

POSITION = JointSensor("position", 0, 0, None)
VELOCITY = JointSensor("velocity", 0, 0, None)
CLOCK = np.arange(0.0, 0.5, 0.005)


def deviations(state: InitialState) -> np.ndarray:
    return np.sqrt(np.diag(state.factor @ state.factor.T))


@pytest.mark.parametrize("start", [0.0, 0.2])
def test_parabola_is_read_exactly(start: float) -> None:
    position = 0.3 - 1.5 * CLOCK + 4.0 * CLOCK**2
    state = estimate(start, {"angle": (CLOCK, position)}, {"angle": POSITION}, np.zeros(1), 1)
    np.testing.assert_allclose(state.mean, [0.3 - 1.5 * start + 4.0 * start**2, -1.5 + 8.0 * start], atol=1e-6)


@pytest.mark.parametrize("start", [0.0, 0.2])
def test_spread_is_the_error_it_makes(start: float) -> None:
    rng, scores = np.random.default_rng(0), []
    truth = np.array([0.3 - 1.5 * start, -1.5])
    for _ in range(400):
        noisy = 0.3 - 1.5 * CLOCK + 0.002 * rng.normal(size=len(CLOCK))
        state = estimate(start, {"angle": (CLOCK, noisy)}, {"angle": POSITION}, np.zeros(1), 1)
        scores.append(np.linalg.solve(state.factor, state.mean - truth))
    position, velocity = np.std(scores, axis=0)
    assert position == pytest.approx(1.0, abs=0.25)
    # that this motion does not bend is not known beforehand: its velocity is somewhat better than it says
    assert 0.55 < velocity < 1.2
    np.testing.assert_allclose(np.mean(scores, axis=0), 0.0, atol=0.2)


@pytest.mark.parametrize("rate", [100.0, 200.0, 1000.0])
@pytest.mark.parametrize("noise", [1e-4, 1e-3])
def test_spread_is_right_for_motions_that_bend(rate: float, noise: float) -> None:
    rng, clock, scores = np.random.default_rng(1), np.arange(0.0, 1.0, 1 / rate), []
    for start in (0.0, 0.5):
        for _ in range(150):
            hertz, phase, size = rng.uniform(0.5, 5.0, 4), rng.uniform(0, 2 * np.pi, 4), rng.normal(size=4) * [0.4, 0.3, 0.2, 0.1]
            turn = 2 * np.pi * hertz * clock[:, None] + phase
            angle, speed = np.sin(turn) @ size, np.cos(turn) @ (2 * np.pi * hertz * size)
            state = estimate(start, {"angle": (clock, angle + noise * rng.normal(size=len(clock)))}, {"angle": POSITION}, np.zeros(1), 1)
            at = round(start * rate)
            scores.append((state.mean - [angle[at], speed[at]]) / deviations(state))
    # nine samples that hardly scatter say little of their noise: there the spread said is up to twice the error
    spread = np.sqrt(np.mean(np.square(scores), axis=0))
    assert ((spread > 0.5) & (spread < 1.4)).all(), spread


def test_position_and_velocity_errors_are_correlated_at_a_start() -> None:
    noisy = 0.002 * np.random.default_rng(3).normal(size=len(CLOCK))
    state = estimate(0.0, {"angle": (CLOCK, noisy)}, {"angle": POSITION}, np.zeros(1), 1)
    covariance = state.factor @ state.factor.T
    # a start read too high is followed by a slope read too low
    assert covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1]) < -0.5


def test_velocity_sensor_sharpens_the_velocity() -> None:
    rng = np.random.default_rng(0)
    angle = (CLOCK, 0.002 * rng.normal(size=len(CLOCK)))
    rate = (CLOCK, 2.0 + 0.01 * rng.normal(size=len(CLOCK)))
    alone = estimate(0.0, {"angle": angle}, {"angle": POSITION}, np.zeros(1), 1)
    both = estimate(0.0, {"angle": angle, "rate": rate}, {"angle": POSITION, "rate": VELOCITY}, np.zeros(1), 1)
    assert deviations(both)[1] < 0.1 * deviations(alone)[1]
    assert abs(both.mean[1] - 2.0) < 4 * deviations(both)[1]


def test_velocity_alone_leaves_the_position_at_its_reference() -> None:
    rate = (CLOCK, 2.0 + 3.0 * CLOCK)
    state = estimate(0.1, {"rate": rate}, {"rate": VELOCITY}, np.array([0.7]), 1)
    np.testing.assert_allclose(state.mean, [0.7, 2.3], atol=1e-6)
    assert deviations(state)[0] == 0.0
    assert deviations(state)[1] > 0.0


def test_unmeasured_joints_rest_at_their_reference() -> None:
    sensors = {"angle": JointSensor("position", 2, 1, None)}
    state = estimate(0.0, {"angle": (CLOCK, 0.5 + 0 * CLOCK)}, sensors, np.array([0.1, 0.2, 0.3]), 2)
    np.testing.assert_allclose(state.mean, [0.1, 0.2, 0.5, 0.0, 0.0], atol=1e-7)
    assert np.flatnonzero(deviations(state)).tolist() == [2, 4]


def test_quantised_rest_keeps_the_spread_of_its_step() -> None:
    step = 0.0015
    angle = (CLOCK, np.full(len(CLOCK), 3 * step))
    coarse = estimate(0.2, {"angle": angle}, {"angle": JointSensor("position", 0, 0, step)}, np.zeros(1), 1)
    fine = estimate(0.2, {"angle": angle}, {"angle": JointSensor("position", 0, 0, step / 10)}, np.zeros(1), 1)
    np.testing.assert_allclose(deviations(coarse), 10 * deviations(fine), rtol=1e-3)
    assert step / 20 < deviations(coarse)[0] < step


def test_slow_log_uses_its_nearest_samples() -> None:
    clock = np.arange(0.0, 2.0, 0.1)
    state = estimate(1.0, {"angle": (clock, 0.2 * clock)}, {"angle": POSITION}, np.zeros(1), 1)
    np.testing.assert_allclose(state.mean, [0.2, 0.2], atol=1e-6)


@pytest.mark.parametrize("count", [4, 5])
def test_shortest_windows_are_read_too(count: int) -> None:
    state = estimate(0.0, {"angle": (CLOCK[:count], 0.4 + 2.0 * CLOCK[:count])}, {"angle": POSITION}, np.zeros(1), 1)
    np.testing.assert_allclose(state.mean, [0.4, 2.0], atol=1e-3)
    assert (deviations(state) > 0).all()


def test_three_samples_say_nothing() -> None:
    state = estimate(0.0, {"angle": (CLOCK[:3], np.ones(3))}, {"angle": POSITION}, np.array([0.4]), 1)
    np.testing.assert_array_equal(state.mean, [0.4, 0.0])
    np.testing.assert_array_equal(state.factor, np.zeros((2, 2)))


def test_widened_adds_variances_and_keeps_the_mean() -> None:
    state = InitialState(np.array([0.1, 0.2]), np.array([[0.03, 0.0], [0.1, 0.2]]))
    wide = widened(state, {"angle": POSITION, "rate": VELOCITY}, 1, 0.04, 0.5)
    np.testing.assert_array_equal(wide.mean, state.mean)
    np.testing.assert_allclose(wide.factor @ wide.factor.T, state.factor @ state.factor.T + np.diag([0.04**2, 0.5**2]))
