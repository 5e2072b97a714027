"""The likelihood of readings against SciPy's densities, and with the initial error integrated out against quadrature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

from sbical import load_simulator, read_recordings
from sbical.common import catalog
from sbical.laplace.likelihood import (
    NoiseModel,
    Sensitivity,
    _reading,  # pyright: ignore[reportPrivateUsage]
)
from sbical.recordings.experiment import Experiment, build
from sbical.simulation.simulator import Simulator

NOISY = """
[effects.noise]
family = "sensor_noise"
target = "position"
std = "noise"
[effects.hum]
family = "sensor_noise"
target = "velocity"
std = 0.2
"""
ROUNDED = """
[effects.rounding]
family = "sensor_quantisation"
target = "position"
resolution = "step"
"""
THETA = np.array([[0.01, 0.05, 0.1], [0.02, 0.2, 0.3]])


@pytest.fixture(scope="module")
def noisy(make_simulator: Callable[[str, str], Simulator], pendulum_toml: str, pendulum_xml: str) -> Simulator:
    """Both channels are noisy; parameters viscous and noise."""
    return make_simulator(pendulum_toml + NOISY, pendulum_xml)


@pytest.fixture(scope="module")
def rounded(make_simulator: Callable[[str, str], Simulator], pendulum_toml: str, pendulum_xml: str) -> Simulator:
    """The position is rounded too; parameters viscous, noise and step."""
    return make_simulator(pendulum_toml + NOISY + ROUNDED, pendulum_xml)


@pytest.fixture
def observing(make_experiment: Callable[..., Experiment]) -> Callable[..., NoiseModel]:
    """The noise model of windows with these measurements, each (T, 2)."""

    def make(simulator: Simulator, *observed: np.ndarray) -> NoiseModel:
        windows = [
            replace(w, observed=o, time=0.01 * np.arange(len(o)))
            for w, o in zip(make_experiment(simulator, seconds=[0.3] * len(observed)).windows, observed, strict=True)
        ]
        return NoiseModel(simulator, replace(make_experiment(simulator), windows=tuple(windows)))

    return make


def interval(residual: np.ndarray, std: float, step: float) -> np.ndarray:
    """Log density of a rounded reading, in the tail that keeps its digits."""
    near, far = (-np.abs(residual) + side * step / 2 for side in (1, -1))
    return np.log(norm.cdf(near / std) - norm.cdf(far / std)) - np.log(step)


def test_gaussian_readings(noisy: Simulator, observing: Callable[..., NoiseModel]) -> None:
    rng = np.random.default_rng(0)
    observed = [rng.normal(size=(n, 2)) for n in (5, 9)]
    clean = [rng.normal(size=(2, n, 2)) for n in (5, 9)]
    found = observing(noisy, *observed).log_likelihood(clean, THETA[:, :2])
    stds = [np.array([noise, 0.2]) for noise in THETA[:, 1]]
    wanted = [sum(norm.logpdf(o, c[i], std).sum() for o, c in zip(observed, clean, strict=True)) for i, std in enumerate(stds)]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_a_failed_simulation_has_no_likelihood(noisy: Simulator, rounded: Simulator, observing: Callable[..., NoiseModel]) -> None:
    clean = np.zeros((2, 5, 2))
    clean[1] = np.nan
    flat = Sensitivity([np.ones((5, 2, 1))], [np.zeros((1, 5, 2, 1))], np.zeros((2, 1)))
    for simulator in (noisy, rounded):
        model, theta = observing(simulator, np.zeros((5, 2))), THETA[:, : len(simulator.parameters)]
        for found in (model.log_likelihood([clean], theta), model.log_marginal([clean], theta, np.zeros((2, 1, 1)), flat)):
            assert np.isfinite(found).tolist() == [True, False]
            assert found[1] == -np.inf


def test_rounded_and_plain_channels_mix(rounded: Simulator, observing: Callable[..., NoiseModel]) -> None:
    rng = np.random.default_rng(1)
    observed, clean = 0.1 * rng.normal(size=(8, 2)), 0.1 * rng.normal(size=(2, 8, 2))
    found = observing(rounded, observed).log_likelihood([clean], THETA)
    residual = observed - clean
    wanted = [
        interval(r[:, 0], noise, step).sum() + norm.logpdf(r[:, 1], 0, 0.2).sum()
        for r, (_, noise, step) in zip(residual, THETA, strict=True)
    ]
    np.testing.assert_allclose(found, wanted, rtol=1e-10)


@pytest.mark.parametrize("step", [1e-4, 0.3, 5.0])
def test_a_rounded_reading_is_an_interval(step: float) -> None:
    residual = np.linspace(-6, 6, 41)
    log_p, _, _ = _reading(residual, np.array([0.7]), np.array([step]))
    np.testing.assert_allclose(log_p, interval(residual, 0.7, step), rtol=1e-8, atol=1e-12)
    wide = step * np.arange(-40000, 40001) if step < 1e-3 else step * np.arange(-200, 201)
    total = (step * np.exp(_reading(wide - 0.123, np.array([0.7]), np.array([step]))[0])).sum()
    assert total == pytest.approx(1.0, abs=1e-7)  # all readings together are certain


def test_fine_rounding_is_no_rounding() -> None:
    residual = np.linspace(-5, 5, 21)
    fine, plain = (_reading(residual, np.array([1.0]), np.array([step])) for step in (1e-4, 0.0))
    for a, b, tolerance in zip(fine, plain, (1e-6, 1e-6, 1e-3), strict=True):
        np.testing.assert_allclose(a, b, atol=tolerance)


def test_the_far_tail_stays_finite() -> None:
    residual = np.array([-1e4, -300.0, -40.0, 40.0, 300.0, 1e4])
    log_p, slope, curvature = _reading(residual, np.array([1.0]), np.array([0.5]))
    assert np.isfinite(log_p).all()
    assert np.isfinite(slope).all()
    assert np.isfinite(curvature).all()
    # nearly all of the interval's mass lies at its near end: Phi(-x) ~ phi(x) / x
    near = np.abs(residual) - 0.25
    np.testing.assert_allclose(log_p, norm.logpdf(near) - np.log(near) - np.log(0.5), rtol=1e-3)
    np.testing.assert_allclose(slope, np.sign(residual) * near, rtol=1e-3)
    assert (curvature >= 0).all()
    np.testing.assert_array_equal(log_p, log_p[::-1])
    np.testing.assert_array_equal(slope, -slope[::-1])


@pytest.mark.parametrize("step", [np.zeros(1), np.full(1, 0.4), np.full(1, 3.0), np.tile([0.0, 0.8], 10)[None]])
def test_slope_and_curvature_are_derivatives(step: np.ndarray) -> None:
    residual, std, h = np.linspace(-4, 4, 20)[None], np.array([[0.6]]), 1e-4

    def moved(by: float) -> tuple[np.ndarray, np.ndarray]:
        """By the clean value: the residual goes the other way."""
        log_p, slope, _ = _reading(residual - by, std, step)
        return log_p, slope

    _, slope, curvature = _reading(residual, std, step)
    np.testing.assert_allclose(slope, (moved(h)[0] - moved(-h)[0]) / (2 * h), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(curvature, -(moved(h)[1] - moved(-h)[1]) / (2 * h), rtol=1e-5, atol=1e-5)


def test_gaussian_marginal_is_a_wide_normal(noisy: Simulator, observing: Callable[..., NoiseModel]) -> None:
    """x = clean at e + G (z - e) + noise, z standard normal: covariance sigma^2 I + G G^T, whichever e it was linearised at."""
    rng = np.random.default_rng(2)
    observed, clean = [0.3 * rng.normal(size=(n, 2)) for n in (4, 6)], [0.3 * rng.normal(size=(2, n, 2)) for n in (4, 6)]
    at_mode, slopes = [0.5 * rng.normal(size=(n, 2, 3)) for n in (4, 6)], [0.1 * rng.normal(size=(1, n, 2, 3)) for n in (4, 6)]
    for g in (*at_mode, *slopes):
        g[..., 1] = 0.0  # an error that moves nothing
    shifts, errors = rng.normal(size=(2, 1)), rng.normal(size=(2, 2, 3))
    found = observing(noisy, *observed).log_marginal(clean, THETA[:, :2], errors, Sensitivity(at_mode, slopes, shifts))
    for i, noise in enumerate(THETA[:, 1]):
        wanted = 0.0
        for w, (x, c) in enumerate(zip(observed, clean, strict=True)):
            g = (at_mode[w] + shifts[i, 0] * slopes[w][0]).reshape(-1, 3)
            covariance = np.diag(np.tile([noise**2, 0.2**2], len(x))) + g @ g.T
            wanted += multivariate_normal(c[i].ravel() - g @ errors[i, w], covariance).logpdf(x.ravel())
        assert found[i] == pytest.approx(wanted, abs=1e-8)


@pytest.mark.parametrize("k", [0, 2])
def test_without_errors_that_move_anything_the_marginal_is_the_likelihood(
    k: int, noisy: Simulator, rounded: Simulator, observing: Callable[..., NoiseModel]
) -> None:
    rng = np.random.default_rng(6)
    observed, clean = 0.1 * rng.normal(size=(7, 2)), 0.1 * rng.normal(size=(2, 7, 2))
    still = Sensitivity([np.zeros((7, 2, k))], [np.zeros((1, 7, 2, k))], np.zeros((2, 1)))
    for simulator in (noisy, rounded):
        model, theta = observing(simulator, observed), THETA[:, : len(simulator.parameters)]
        found = model.log_marginal([clean], theta, rng.normal(size=(2, 1, k)), still)
        np.testing.assert_allclose(found, model.log_likelihood([clean], theta))


@pytest.mark.parametrize(("step", "tolerance"), [(0.02, 1e-3), (0.1, 0.02), (0.3, 0.1)])
def test_rounded_marginal_is_the_integral(step: float, tolerance: float, rounded: Simulator, observing: Callable[..., NoiseModel]) -> None:
    rng = np.random.default_rng(3)
    gradient = np.stack([np.full(12, 0.1), np.linspace(0.1, -0.3, 12)], 1)[..., None]
    noise, error = 0.08, 0.4
    clean = 0.2 * rng.normal(size=(12, 2))
    reading = clean + gradient[..., 0] * 0.9 + rng.normal(size=(12, 2)) * [noise, 0.2]
    reading[:, 0] = step * np.round(reading[:, 0] / step)
    flat = Sensitivity([gradient], [np.zeros((1, 12, 2, 1))], np.zeros((1, 1)))
    found = observing(rounded, reading).log_marginal([clean[None]], np.array([[0.01, noise, step]]), np.full((1, 1, 1), error), flat)

    def density(z: float) -> float:
        r = reading - clean - gradient[..., 0] * (z - error)
        return float(np.exp(interval(r[:, 0], noise, step).sum() + norm.logpdf(r[:, 1], 0, 0.2).sum() + norm.logpdf(z)))

    assert found[0] == pytest.approx(np.log(quad(density, -6, 6, limit=300, points=[0.4, 1.3])[0]), abs=tolerance)


def test_blocks_of_rows_do_not_matter(rounded: Simulator, observing: Callable[..., NoiseModel]) -> None:
    rng = np.random.default_rng(4)
    n, observed = 600, 0.1 * rng.normal(size=(5, 2))
    clean, theta, errors = 0.1 * rng.normal(size=(n, 5, 2)), rng.uniform(0.05, 0.3, (n, 3)), rng.normal(size=(n, 1, 1))
    parts = [rng.normal(size=(5, 2, 1))], [rng.normal(size=(1, 5, 2, 1))]
    shifts = rng.normal(size=(n, 1))
    model = observing(rounded, observed)
    found = model.log_marginal([clean], theta, errors, Sensitivity(*parts, shifts))
    some = [0, 249, 250, 599]
    alone = model.log_marginal([clean[some]], theta[some], errors[some], Sensitivity(*parts, shifts[some]))
    np.testing.assert_allclose(found[some], alone, rtol=1e-10)


def test_what_stands_in_the_way_is_named(
    noisy: Simulator, rounded: Simulator, pendulum: Simulator, servo: Simulator, observing: Callable[..., NoiseModel]
) -> None:
    none = np.zeros((5, 2))
    assert observing(noisy, none).exact
    assert observing(rounded, none).exact
    silent = observing(pendulum, none)
    assert not silent.exact
    assert silent.why_not_explicit == "position has no noise; add a sensor_noise effect"
    assert observing(servo, none[:, :1]).why_not_explicit == "effects.push (disturbance_torque) is random beyond its parameters"


def test_the_catalogs_servo_has_a_disturbance() -> None:
    simulator = load_simulator("servo_pendulum")
    recordings = read_recordings(catalog.examples("servo_pendulum")[:1], simulator.columns)
    model = NoiseModel(simulator, build(recordings, simulator.columns, simulator.layout))
    assert not model.exact
    assert "disturbance" in model.why_not_explicit
    moves = dict(zip(simulator.parameters.names, model.motion, strict=True))
    assert [name for name, moved in moves.items() if not moved] == ["push_std", "encoder_noise"]


def test_noise_parameters_move_nothing(rounded: Simulator, observing: Callable[..., NoiseModel]) -> None:
    model = observing(rounded, np.zeros((5, 2)))
    assert dict(zip(rounded.parameters.names, model.motion.tolist(), strict=True)) == {"viscous": True, "noise": False, "step": False}
    std, step = model.scales(THETA, model.experiment.windows[0])
    np.testing.assert_allclose(std, [[0.05, 0.2], [0.2, 0.2]])
    np.testing.assert_allclose(step, [[0.1, 0.0], [0.3, 0.0]])
