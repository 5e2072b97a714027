"""Summaries keep what the parameters do, tell noise from motion, and treat every row alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from sbical.inference.summary import Summary, fit_summary
from sbical.recordings.experiment import Experiment
from sbical.simulation.process import simulating
from sbical.simulation.rollout import Trajectories, flatten
from sbical.simulation.simulator import Simulator

MakeExperiment = Callable[..., Experiment]
Draws = Callable[[int], np.ndarray]


@pytest.fixture(scope="module")
def experiment(servo: Simulator, make_experiment: MakeExperiment) -> Experiment:
    return make_experiment(servo, seconds=(0.5, 0.37), constants={"kp": 200.0, "supply": 5.0}, spread=(0.002, 0.02))


@pytest.fixture(scope="module")
def pilot(servo: Simulator, experiment: Experiment, servo_theta: Draws) -> Trajectories:
    return servo.simulate(servo_theta(120), experiment, np.arange(120))


@pytest.fixture(scope="module")
def summary(pilot: Trajectories, experiment: Experiment) -> Summary:
    return fit_summary(pilot, experiment)


def rows(t: Trajectories, which: slice) -> Trajectories:
    return Trajectories(tuple(v[which] for v in t.values), t.status[which])


def test_shape_and_labels(summary: Summary, pilot: Trajectories) -> None:
    x = summary(pilot)
    assert x.shape == (120, len(summary.labels))
    assert np.isfinite(x).all()
    assert summary.labels[0] == "component 0"
    assert summary.labels[-3:] == ("residual early position", "residual late position", "roughness position")
    np.testing.assert_allclose(summary.components.T @ summary.components, np.eye(summary.components.shape[1]), atol=1e-9)


def test_each_row_is_bitwise_its_own(summary: Summary, pilot: Trajectories) -> None:
    with simulating():
        whole = summary(pilot)
        for size in (1, 7, 50):
            parts = [summary(rows(pilot, slice(i, i + size))) for i in range(0, 120, size)]
            np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_components_hold_the_motion(summary: Summary, pilot: Trajectories) -> None:
    flat = (flatten(pilot.values) - summary.mean) / summary.scale
    scores = summary(pilot)[:, : summary.components.shape[1]]
    left = flat - scores @ summary.components.T
    assert (left**2).sum() < 1e-2 * (flat**2).sum()
    np.testing.assert_allclose(np.sort(scores.var(0))[::-1], scores.var(0), rtol=0.2)


def test_noise_shows_where_it_should(servo: Simulator, experiment: Experiment, servo_theta: Draws, summary: Summary) -> None:
    theta = np.repeat(servo_theta(1), 200, axis=0)
    theta[100:, servo.parameters.index("noise")] *= 3
    x = summary(servo.simulate(theta, experiment, np.arange(200)))
    rough = x[:, summary.labels.index("roughness position")]
    # quantisation adds a little to both, so a factor of three in noise shows as slightly less
    np.testing.assert_allclose(rough[100:].mean() - rough[:100].mean(), np.log(3), atol=0.1)
    # white noise has second differences of variance six
    noise, step = theta[0, servo.parameters.index("noise")], 0.001534
    np.testing.assert_allclose(rough[:100].mean(), 0.5 * np.log(6 * (noise**2 + step**2 / 12)), atol=0.1)


def test_what_the_robot_did_is_summarised_alike(summary: Summary, pilot: Trajectories, experiment: Experiment) -> None:
    windows = tuple(replace(w, observed=v[3]) for w, v in zip(experiment.windows, pilot.values, strict=True))
    np.testing.assert_array_equal(summary.observed(replace(experiment, windows=windows)), summary(pilot)[3])


def test_failed_simulations_are_left_out_and_stay_visible(pilot: Trajectories, experiment: Experiment) -> None:
    values = tuple(v.copy() for v in pilot.values)
    status = pilot.status.copy()
    values[1][::5], status[::5, 1] = np.nan, 1
    broken = Trajectories(values, status)
    fitted = fit_summary(broken, experiment)
    kept = fit_summary(Trajectories(tuple(v[broken.ok] for v in values), status[broken.ok]), experiment)
    np.testing.assert_array_equal(fitted.components, kept.components)
    x = fitted(broken)
    assert np.isnan(x[::5, : fitted.components.shape[1]]).all()
    np.testing.assert_array_equal(np.isfinite(x).all(1), broken.ok)


def test_same_pilot_same_summary(pilot: Trajectories, experiment: Experiment, summary: Summary) -> None:
    again = fit_summary(Trajectories(tuple(v.copy() for v in pilot.values), pilot.status), experiment)
    np.testing.assert_array_equal(again.components, summary.components)


def test_channels_of_different_size_weigh_alike(pendulum: Simulator, make_experiment: MakeExperiment) -> None:
    experiment = make_experiment(pendulum, spread=(0.05, 0.5))
    simulated = pendulum.simulate(np.linspace(0.0, 0.2, 100)[:, None], experiment, np.arange(100))
    small = Trajectories(tuple(v * np.array([1e-3, 1.0]) for v in simulated.values), simulated.status)
    a, b = fit_summary(simulated, experiment), fit_summary(small, experiment)
    count = a.components.shape[1]
    np.testing.assert_allclose(a(simulated)[:, : min(count, 4)], b(small)[:, : min(count, 4)], atol=1e-6)


def test_few_pilots_give_few_components(pilot: Trajectories, experiment: Experiment) -> None:
    assert fit_summary(rows(pilot, slice(0, 40)), experiment).components.shape[1] == 10
    assert fit_summary(pilot, experiment, components=5).components.shape[1] == 5
