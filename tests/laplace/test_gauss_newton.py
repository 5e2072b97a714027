"""Gauss-Newton on simulators that are a matrix, or bend in a known way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from sbical.laplace.expansion import Problem, sensitivity
from sbical.laplace.gauss_newton import Clean, Fit, NormalEquations, Stopping, Target, derivatives, fit, neg_log_posterior
from sbical.laplace.likelihood import NoiseModel
from sbical.laplace.modes import find_modes
from sbical.recordings.experiment import Experiment
from sbical.simulation.simulator import Simulator

#: Two windows of 12 samples, two channels; three parameters that move them, one that does not; two initial errors, one uncertain.
T, W, M, NOISE = 12, 2, 2, (0.1, 0.3)
CENTRE, SPREAD = np.array([0.5, -1.0, 2.0, 7.0]), np.array([1.0, 0.5, 2.0, 3.0])
MOTION, ERRORS = np.array([0, 1, 2]), np.array([1])


def targeted(observed: np.ndarray, **changes: np.ndarray) -> Target:
    per_window = T * M
    target = Target(
        observed=observed, window=np.repeat(np.arange(W), per_window), channel=np.tile([0, 1], T * W), lowest=np.array(NOISE),
        highest=np.array(NOISE), motion=MOTION, centre=CENTRE, spread=SPREAD, errors=ERRORS, widths=2,
    )  # fmt: skip
    return replace(target, **changes)


class Linear:
    """clean = J u + G_w e_w; the last motion parameter has no effect."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.by_u = rng.normal(size=(T * M * W, 4))
        self.by_u[:, [2, 3]] = 0.0
        self.by_error = rng.normal(size=(T * M * W, 2))
        self.calls = 0

    def __call__(self, u: np.ndarray, errors: np.ndarray) -> np.ndarray:
        self.calls += 1
        moved = np.einsum("dk,nwk->nwd", self.by_error, errors)
        window = np.repeat(np.arange(W), T * M)
        return u @ self.by_u.T + np.take_along_axis(moved, window[None, None], 1)[:, 0]

    def dense(self) -> np.ndarray:
        """(D, 3 + W): derivatives by the parameters that move it, then by each window's uncertain error."""
        window = np.repeat(np.arange(W), T * M)
        errors = self.by_error[:, [1]] * (window[:, None] == np.arange(W))
        return np.hstack([self.by_u[:, MOTION], errors])


@pytest.fixture
def linear() -> Linear:
    return Linear()


@pytest.fixture
def observed(linear: Linear) -> np.ndarray:
    rng = np.random.default_rng(1)
    clean = linear(np.array([[1.2, -0.7, 0.0, 0.0]]), np.array([[[0.0, 1.3], [0.0, -0.8]]]))[0]
    return clean + np.tile(NOISE, T * W) * rng.normal(size=len(clean))


def ridge(linear: Linear, observed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Posterior mean (3 + W,) and covariance of parameters and errors."""
    dense, weight = linear.dense(), np.tile(NOISE, T * W) ** -2.0
    precision = np.diag(np.concatenate([SPREAD[MOTION] ** -2.0, np.ones(W)]))
    prior = np.concatenate([CENTRE[MOTION], np.zeros(W)])
    covariance = np.linalg.inv(dense.T @ (weight[:, None] * dense) + precision)
    return covariance @ (dense.T @ (weight * observed) + precision @ prior), covariance


def test_derivatives_of_a_matrix(linear: Linear, observed: np.ndarray) -> None:
    u, errors = np.random.default_rng(2).normal(size=(3, 4)), np.random.default_rng(3).normal(size=(3, W, 2))
    by_u, by_error = derivatives(linear, targeted(observed), u, errors)
    for a, b in zip(by_u, by_error, strict=True):
        np.testing.assert_allclose(a, linear.by_u[:, MOTION], atol=1e-10)
        np.testing.assert_allclose(b, linear.by_error[:, ERRORS], atol=1e-10)


def test_a_linear_robot_is_solved_by_ridge_regression(linear: Linear, observed: np.ndarray) -> None:
    starts = CENTRE + SPREAD * np.array([[0.0, 0, 0, 0.4], [2.0, -2, 1, 0.0]])
    fits = fit(linear, targeted(observed), starts)
    mean, covariance = ridge(linear, observed)
    sd = np.sqrt(np.diag(covariance))
    for found in fits:
        assert (np.abs(found.u[MOTION] - mean[:3]) < 0.03 * sd[:3]).all()
        assert (np.abs(found.errors[:, 1] - mean[3:]) < 0.03 * sd[3:]).all()
        np.testing.assert_array_equal(found.errors[:, 0], 0.0)  # known exactly
        np.testing.assert_allclose(found.noise, NOISE)
        normal = NormalEquations.of(targeted(observed), found.by_u, found.by_error, found.noise)
        np.testing.assert_allclose(np.linalg.inv(normal.schur), covariance[:3, :3], rtol=1e-6, atol=1e-12)
    assert fits[0].neg_log_posterior <= fits[1].neg_log_posterior
    assert {round(float(f.u[3]), 6) for f in fits} == {7.0, 8.2}  # what moves nothing stays where it started


def test_a_parameter_without_effect_keeps_its_prior(linear: Linear, observed: np.ndarray) -> None:
    (found,) = fit(linear, targeted(observed), CENTRE[None] + [[0.0, 0.0, 3.0, 0.0]])
    assert abs(found.u[2] - CENTRE[2]) < 0.05 * SPREAD[2]
    covariance = np.linalg.inv(NormalEquations.of(targeted(observed), found.by_u, found.by_error, found.noise).schur)
    assert covariance[2, 2] == pytest.approx(SPREAD[2] ** 2)
    np.testing.assert_allclose(covariance[2, :2], 0.0, atol=1e-12)


def test_normal_equations_equal_the_dense_ones(linear: Linear, observed: np.ndarray) -> None:
    rng = np.random.default_rng(4)
    target = targeted(observed, errors=np.array([0, 1]))
    normal = NormalEquations.of(target, linear.by_u[:, MOTION], linear.by_error, np.array(NOISE))
    residual, pull_u, pull_e = rng.normal(size=len(observed)), rng.normal(size=3), rng.normal(size=(W, 2))
    apart = (target.window[:, None] == np.arange(W))[:, :, None] * linear.by_error[:, None]
    dense = np.hstack([linear.by_u[:, MOTION], apart.reshape(len(observed), -1)])
    weight = np.tile(NOISE, T * W) ** -2.0
    precision = dense.T @ (weight[:, None] * dense) + np.diag(np.concatenate([SPREAD[MOTION] ** -2.0, np.ones(2 * W)]))
    solution = np.linalg.solve(precision, dense.T @ residual + np.concatenate([pull_u, pull_e.ravel()]))
    move_u, move_e = normal.solve(residual, pull_u, pull_e)
    np.testing.assert_allclose(move_u, solution[:3], rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(move_e.ravel(), solution[3:], rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(np.linalg.inv(normal.schur), np.linalg.inv(precision)[:3, :3], rtol=1e-8, atol=1e-14)
    # errors follow the parameters to where the posterior given the parameters has its mean
    shift = rng.normal(size=(5, 3))
    wanted = -np.linalg.solve(precision[3:, 3:], precision[3:, :3] @ shift.T).T.reshape(5, W, 2)
    np.testing.assert_allclose(normal.follow(shift), wanted, rtol=1e-8, atol=1e-12)
    # and make up for the same part of the trajectory
    moved = shift @ linear.by_u[:, MOTION].T + wanted.reshape(5, -1) @ apart.reshape(len(observed), -1).T
    np.testing.assert_allclose(shift @ normal.reduced().T, moved, rtol=1e-8, atol=1e-10)


def test_noise_is_profiled_within_its_bounds(linear: Linear, observed: np.ndarray) -> None:
    rng = np.random.default_rng(5)
    clean = observed + np.tile([0.2, 5.0], T * W) * rng.normal(size=len(observed))
    target = targeted(observed, lowest=np.array([0.01, 0.01]), highest=np.array([3.0, 3.0]))
    value, noise = neg_log_posterior(target, CENTRE, np.zeros((W, 2)), clean)
    rms = np.sqrt(((observed - clean).reshape(-1, 2) ** 2).mean(0))
    np.testing.assert_allclose(noise, [rms[0], 3.0])
    log_p = sum(-0.5 * ((observed - clean)[c::2] / s) ** 2 - np.log(s) for c, s in enumerate(noise))
    assert value == pytest.approx(-np.sum(log_p))
    moved, _ = neg_log_posterior(target, CENTRE + SPREAD * [1, 2, 0, 9], np.full((W, 2), 0.5), clean)
    assert moved == pytest.approx(value + 0.5 * (1 + 4) + 0.5 * 4 * 0.25)
    assert neg_log_posterior(target, CENTRE, np.zeros((W, 2)), np.full(len(observed), np.nan))[0] == np.inf


#: Time course of the two-mode toy: the trajectory tells u^2 only, and a second parameter that sets in later.
PATTERN, LATE = np.linspace(0.5, 1.5, T * W * M), np.tile(np.repeat([0.0, 1.0], T * M // 2), W)


def squared(u: np.ndarray, errors: np.ndarray) -> np.ndarray:
    return u[:, :1] ** 2 * PATTERN + u[:, 1:2] * LATE


def two_modes(side: float = 0.0) -> Target:
    """Standard normal prior, its mean moved by ``side``; the truth is u = (+-1.2, 0.4)."""
    rng = np.random.default_rng(6)
    x = 1.44 * PATTERN + 0.4 * LATE + 0.1 * rng.normal(size=len(PATTERN))
    common = {"motion": np.array([0, 1]), "errors": np.empty(0, int), "centre": np.array([side, 0.0]), "spread": np.ones(2)}
    return targeted(x, lowest=np.full(2, 0.1), highest=np.full(2, 0.1), **common)


def test_several_starts_find_both_modes() -> None:
    fits = fit(squared, two_modes(), np.array([[2.0, 0.0], [-0.3, 1.0], [0.5, -1.0]]))
    assert [round(abs(f.u[0]), 1) for f in fits] == [1.2, 1.2, 1.2]
    assert {float(np.sign(f.u[0])) for f in fits} == {-1.0, 1.0}
    assert all(abs(f.u[1] - 0.4) < 0.1 for f in fits)
    assert fits[0].neg_log_posterior == pytest.approx(fits[-1].neg_log_posterior, abs=0.02)


def test_starts_that_fail_are_left_out() -> None:
    def half(u: np.ndarray, errors: np.ndarray) -> np.ndarray:
        return np.where(u[:, :1] < 0, np.nan, squared(u, errors))

    (found,) = fit(half, two_modes(), np.array([[2.0, 0.0], [-2.0, 0.0]]))
    assert found.u[0] == pytest.approx(1.2, abs=0.1)
    assert fit(half, two_modes(), np.array([[-1.0, 0.0], [-2.0, 0.0]])) == []


def test_starts_far_behind_are_given_up() -> None:
    def wall(u: np.ndarray, errors: np.ndarray) -> np.ndarray:
        """The left half fits worse, wherever it is."""
        return squared(u, errors) + np.where(u[:, :1] < 0, 2.0, 0.0) * np.cos(np.arange(len(PATTERN)))

    starts = np.array([[1.0, 0.0], [-1.0, 0.0]])
    assert len(fit(wall, two_modes(), starts)) == 2
    assert [f.u[0] > 0 for f in fit(wall, two_modes(), starts, stopping=Stopping(behind=20.0))] == [True]


@pytest.fixture
def problem(pendulum: Simulator, make_experiment: Callable[..., Experiment]) -> Callable[[Clean, Target], Problem]:
    """A problem whose noise has no likelihood; the experiment only gives shapes."""

    def make(clean: Clean, target: Target) -> Problem:
        experiment = make_experiment(pendulum, seconds=(0.3, 0.3), time=0.01 * np.arange(T))
        return Problem(NoiseModel(pendulum, experiment), target, clean, lambda u: u, lambda u: -0.5 * (u**2).sum(1))

    return make


@pytest.mark.parametrize("side", [0.0, 0.5])
def test_both_modes_get_their_share(side: float, problem: Callable[[Clean, Target], Problem]) -> None:
    target = two_modes(side)
    pilot_u = target.centre + np.random.default_rng(7).normal(size=(200, 2))
    modes, shares = find_modes(problem(squared, target), pilot_u, squared(pilot_u, np.empty(0)), ("a", "b"))
    assert len(modes) == 2
    at = np.array([m.at.u[0] for m in modes])
    np.testing.assert_allclose(np.abs(at), 1.2, atol=0.05)
    # by quadrature over the first parameter; the second is linear and alike in both
    grid = np.linspace(-3, 3, 20_001)
    rest = target.observed - grid[:, None] ** 2 * PATTERN
    rest_square = (rest**2).sum(1) / 0.01 - (rest @ LATE / 0.01) ** 2 / ((LATE**2).sum() / 0.01 + 1)
    density = np.exp(-0.5 * (rest_square - rest_square.min()) - 0.5 * (grid - side) ** 2)
    right = density[grid > 0].sum() / density.sum()
    assert shares[at > 0][0] == pytest.approx(right, abs=0.01)
    assert shares.sum() == pytest.approx(1.0)
    if side:
        assert at[0] > 0  # best first


def test_one_mode_is_found_once(linear: Linear, observed: np.ndarray, problem: Callable[[Clean, Target], Problem]) -> None:
    target = targeted(observed)
    pilot_u = CENTRE + SPREAD * np.random.default_rng(8).normal(size=(200, 4))
    pilot = linear(pilot_u, np.zeros((200, W, 2)))
    (mode,), shares = find_modes(problem(linear, target), pilot_u, pilot, ("a", "b", "c", "d"))
    mean, covariance = ridge(linear, observed)
    np.testing.assert_array_equal(shares, [1.0])
    assert (np.abs(mode.at.u[MOTION] - mean[:3]) < 0.05 * np.sqrt(np.diag(covariance))[:3]).all()
    assert mode.at.u[3] == CENTRE[3]
    np.testing.assert_allclose(mode.box.factor @ mode.box.factor.T, _with_noise(covariance), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(mode.box.mode_u, mode.at.u)


def _with_noise(covariance: np.ndarray) -> np.ndarray:
    out = np.zeros((4, 4))
    out[:3, :3] = covariance[:3, :3]
    out[3, 3] = SPREAD[3] ** 2
    return out


def test_proposed_errors_follow_the_parameters(linear: Linear, observed: np.ndarray, problem: Callable[[Clean, Target], Problem]) -> None:
    """Without data the proposal is the prior; with them, errors stay within four standard deviations of where they are likeliest."""
    target = targeted(observed)
    pilot_u = CENTRE + SPREAD * np.random.default_rng(9).normal(size=(100, 4))
    (mode,), _ = find_modes(problem(linear, target), pilot_u, linear(pilot_u, np.zeros((100, W, 2))), ("a", "b", "c", "d"))
    u, errors = mode.propose(2000, np.random.default_rng(0))
    assert np.isfinite(mode.box.log_prob(u)).all()
    np.testing.assert_array_equal(errors[..., 0], 0.0)
    dense, weight = linear.dense(), np.tile(NOISE, T * W) ** -2.0
    inner = (dense[:, 3:] ** 2 * weight[:, None]).sum(0) + 1
    likeliest = ((observed - u @ linear.by_u.T) * weight) @ dense[:, 3:] / inner
    assert (np.abs(errors[..., 1] - likeliest) * np.sqrt(inner)).max() < 4.05
    np.testing.assert_allclose(mode.follow(u)[..., 1], likeliest, atol=0.01)


def test_sensitivity_follows_the_parameters(problem: Callable[[Clean, Target], Problem]) -> None:
    """A product of parameter and error: its derivative by the error is linear in the parameter, so first order is exact."""
    rng = np.random.default_rng(10)
    effect, by_u = rng.normal(size=len(PATTERN)), rng.normal(size=(len(PATTERN), 2))
    window = np.repeat(np.arange(W), T * M)

    def clean(u: np.ndarray, errors: np.ndarray) -> np.ndarray:
        return u @ by_u.T + (1 + 0.5 * u[:, :1]) * effect * errors[:, window, 1]

    target = replace(two_modes(), errors=ERRORS)
    posed = problem(clean, target)
    pilot_u = rng.normal(size=(100, 2))
    modes, _ = find_modes(posed, pilot_u, clean(pilot_u, np.zeros((100, W, 2))), ("a", "b"))
    u = modes[0].at.u + 0.3 * rng.normal(size=(6, 2))
    at = sensitivity(posed, modes[0])(u)
    for w in range(W):
        wanted = (1 + 0.5 * u[:, :1]) * effect[window == w]
        np.testing.assert_allclose(at(w, slice(0, 6))[..., 0], wanted.reshape(6, T, M), atol=1e-8)
        np.testing.assert_allclose(at(w, slice(2, 4)), at(w, slice(0, 6))[2:4])


def test_windows_are_cut_as_they_were_joined(problem: Callable[[Clean, Target], Problem]) -> None:
    flat = np.arange(2.0 * len(PATTERN)).reshape(2, -1)
    cut = problem(squared, two_modes()).windows(flat)
    assert [c.shape for c in cut] == [(2, T, M)] * W
    np.testing.assert_array_equal(np.concatenate([c.reshape(2, -1) for c in cut], 1), flat)


def test_nothing_fits_where_everything_fails(problem: Callable[[Clean, Target], Problem]) -> None:
    def broken(u: np.ndarray, errors: np.ndarray) -> np.ndarray:
        return np.full((len(u), len(PATTERN)), np.nan)

    pilot_u = np.random.default_rng(7).normal(size=(50, 2))
    modes, shares = find_modes(problem(broken, two_modes()), pilot_u, broken(pilot_u, np.empty(0)), ("a", "b"))
    assert modes == []
    assert len(shares) == 0


def test_normal_needs_derivatives(observed: np.ndarray) -> None:
    with pytest.raises(ValueError, match="derivatives come first"):
        NormalEquations.of(targeted(observed), None, None, np.array(NOISE))


def test_fits_are_plain(linear: Linear, observed: np.ndarray) -> None:
    (found,) = fit(linear, targeted(observed), CENTRE[None], stopping=Stopping(0))
    assert isinstance(found, Fit)
    np.testing.assert_array_equal(found.u, CENTRE)  # no iteration, no move
