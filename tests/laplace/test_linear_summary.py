"""Linear summaries on a robot that is a matrix, and on one that bends."""

from __future__ import annotations

import numpy as np
import pytest

from sbical.laplace.gauss_newton import Fit, Target
from sbical.laplace.linear_summary import LinearSummary, linear_summary
from sbical.simulation.rollout import Trajectories

#: Two windows of 15 samples and two channels; two parameters, one uncertain initial error in each window.
T, W, M, P = 15, 2, 2, 2
D = T * W * M
NOISE = np.array([0.1, 0.4])
SPREAD = np.array([1.0, 3.0])
_rng = np.random.default_rng(0)
BY_U, BY_ERROR, CLEAN = _rng.normal(size=(D, P)), _rng.normal(size=(D, 1)), _rng.normal(size=D)
WINDOW, CHANNEL = np.repeat(np.arange(W), T * M), np.tile([0, 1], T * W)
SIGMA = NOISE[CHANNEL]


@pytest.fixture
def summary() -> LinearSummary:
    target = Target(
        observed=CLEAN, window=WINDOW, channel=CHANNEL, lowest=NOISE, highest=NOISE, motion=np.arange(P), centre=np.zeros(P),
        spread=SPREAD, errors=np.zeros(1, int), widths=1,
    )  # fmt: skip
    mode = Fit(np.zeros(P), np.zeros((W, 1)), CLEAN, NOISE, 0.0, BY_U, BY_ERROR)
    return linear_summary(target, mode, CHANNEL, ("position", "velocity"), ("a", "b"))


def trajectories(flat: np.ndarray) -> Trajectories:
    values = tuple(np.moveaxis(flat.reshape(len(flat), W, T, M), 1, 0))
    return Trajectories(values, np.zeros((len(flat), W), np.int8))


def dense() -> tuple[np.ndarray, np.ndarray]:
    """Derivatives (D, P + W) by everything unknown, and the posterior's covariance."""
    j = np.hstack([BY_U, BY_ERROR * (WINDOW[:, None] == np.arange(W))])
    precision = j.T @ (j / SIGMA[:, None] ** 2) + np.diag(np.concatenate([SPREAD**-2.0, np.ones(W)]))
    return j, np.linalg.inv(precision)


def simulated(n: int, seed: int = 1) -> np.ndarray:
    """Noisy trajectories around the mode."""
    rng = np.random.default_rng(seed)
    j, covariance = dense()
    unknown = rng.multivariate_normal(np.zeros(P + W), 9 * covariance, n)
    return CLEAN + unknown @ j.T + SIGMA * rng.normal(size=(n, D))


def test_shift_is_the_whitened_ridge_estimate(summary: LinearSummary) -> None:
    x = simulated(20)
    j, covariance = dense()
    estimate = ((x - CLEAN) / SIGMA**2) @ j @ covariance
    root = np.linalg.cholesky(covariance[:P, :P])
    np.testing.assert_allclose(summary(trajectories(x))[:, :P], np.linalg.solve(root, estimate[:, :P].T).T, rtol=1e-8, atol=1e-10)


def test_residual_energy_is_that_of_the_ridge_fit(summary: LinearSummary) -> None:
    x = simulated(20)
    j, covariance = dense()
    rest = x - CLEAN - ((x - CLEAN) / SIGMA**2) @ j @ covariance @ j.T
    for c in range(M):
        energy = np.log(np.sqrt((rest[:, c::M] ** 2).mean(1)) / NOISE[c]) * np.sqrt(2 * T * W)
        np.testing.assert_allclose(summary(trajectories(x))[:, P + c], energy, rtol=1e-8, atol=1e-8)


def test_residual_energy_of_noise_is_near_zero_with_unit_spread(summary: LinearSummary) -> None:
    energy = summary(trajectories(simulated(500)))[:, P:]
    np.testing.assert_allclose(energy.std(0), 1.0, atol=0.15)
    assert (np.abs(energy.mean(0)) < 1.0).all()


def test_labels_tell_what_is_outside(summary: LinearSummary) -> None:
    assert summary.labels == ("shift 0 (a)", "shift 1 (b)", "residual position", "residual velocity")
    assert summary.residual_features.tolist() == [False, False, True, True]
    assert summary.row(CLEAN).shape == (4,)
    np.testing.assert_allclose(summary.row(CLEAN)[:P], 0.0, atol=1e-12)


def test_rows_do_not_depend_on_their_company(summary: LinearSummary) -> None:
    bent = summary.bent(bending(120), SIGMA)
    x = simulated(37)
    together = bent(trajectories(x))
    apart = np.concatenate([bent(trajectories(part)) for part in (x[:1], x[1:9], x[9:])])
    np.testing.assert_array_equal(together, apart)
    np.testing.assert_array_equal(together[::-1], bent(trajectories(x[::-1])))


def test_a_failed_simulation_is_a_row_of_nan(summary: LinearSummary) -> None:
    x = simulated(3)
    x[1] = np.nan
    rows = summary(trajectories(x))
    assert np.isnan(rows[1]).all()
    assert np.isfinite(rows[[0, 2]]).all()


#: A bend that is orthogonal to nothing in particular.
CURVE = np.sin(np.arange(D))


def bending(n: int, size: float = 1.0) -> np.ndarray:
    rng = np.random.default_rng(2)
    j, covariance = dense()
    unknown = rng.multivariate_normal(np.zeros(P + W), 9 * covariance, n)
    q = (unknown[:, 0] / np.sqrt(covariance[0, 0])) ** 2
    return CLEAN + unknown @ j.T + size * q[:, None] * CURVE


def test_a_linear_robot_has_no_bends(summary: LinearSummary) -> None:
    assert summary.bent(bending(100, size=0.0), SIGMA) is summary
    assert summary.bent(bending(100, size=1e-4), SIGMA) is summary


def test_a_bend_is_found(summary: LinearSummary) -> None:
    bent = summary.bent(bending(120), SIGMA)
    assert bent.labels == ("shift 0 (a)", "shift 1 (b)", "bend 0", "residual position", "residual velocity")
    assert bent.residual_features.tolist() == [False, False, False, True, True]
    # the direction is what the linear estimate leaves of the curve, in units of the noise
    j, covariance = dense()
    left = (CURVE - (CURVE / SIGMA**2) @ j @ covariance @ j.T) / SIGMA
    left /= np.linalg.norm(left)
    assert abs(bent.bends[0] * SIGMA @ left) == pytest.approx(1.0, abs=1e-4)
    # scores tell the curvature, and what was bent no longer counts as residual
    flat = bending(50)
    rows = bent(trajectories(flat))
    curvature = (flat - CLEAN) @ np.linalg.pinv(np.hstack([j, CURVE[:, None]])).T[:, -1]
    assert abs(np.corrcoef(rows[:, P], curvature)[0, 1]) > 0.9999
    assert (rows[:, P + 1 :] < summary(trajectories(flat))[:, P:]).all()


def test_components_are_orthonormal(summary: LinearSummary) -> None:
    rng = np.random.default_rng(3)
    several = CLEAN + rng.normal(size=(200, 6)) @ rng.normal(size=(6, D))
    bent = summary.bent(several, SIGMA)
    components = bent.bends * SIGMA
    assert 1 < len(components) <= 6
    np.testing.assert_allclose(components @ components.T, np.eye(len(components)), atol=1e-8)
    np.testing.assert_allclose(bent.straight, SIGMA[:, None] * components.T, rtol=1e-12)


def test_failed_simulations_bend_nothing(summary: LinearSummary) -> None:
    flat = bending(120)
    flat[[4, 9]] = np.nan
    bent = summary.bent(flat, SIGMA)
    np.testing.assert_allclose(bent.bends, summary.bent(np.delete(flat, [4, 9], 0), SIGMA).bends)
