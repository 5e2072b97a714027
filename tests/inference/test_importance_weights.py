"""Importance weights against Gaussians, where everything is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from sbical.inference.importance_weights import K_HAT, NEARLY_EQUAL, ImportanceWeights

#: Log evidence of the toy [nats], arbitrary.
EVIDENCE = -12.3
D = 3


def weighted(proposal: float, n: int = 4000, seed: int = 0, d: int = D) -> tuple[np.ndarray, ImportanceWeights]:
    """Target exp(EVIDENCE) N(0, I), proposal N(0, proposal^2 I)."""
    z = proposal * np.random.default_rng(seed).normal(size=(n, d))
    return z, ImportanceWeights(EVIDENCE + norm.logpdf(z).sum(1) - norm.logpdf(z, 0, proposal).sum(1))


def expected_efficiency(proposal: float) -> float:
    """1 / E[w^2] with E[w] = 1 for normals: (2 - 1/s^2)^(1/2) / s per dimension."""
    return (np.sqrt(2 - proposal**-2) / proposal) ** D


def test_a_perfect_proposal_loses_nothing() -> None:
    _, weights = weighted(1.0)
    assert weights.efficiency == pytest.approx(1.0)
    assert weights.size == pytest.approx(4000)
    assert weights.log_evidence == pytest.approx(EVIDENCE)
    assert weights.evidence_error == pytest.approx(0.0, abs=1e-6)
    np.testing.assert_allclose(weights.weights, 1 / 4000)


@pytest.mark.parametrize("proposal", [1.2, 1.5, 2.0])
def test_efficiency_of_a_wide_proposal(proposal: float) -> None:
    _, weights = weighted(proposal)
    assert weights.efficiency == pytest.approx(expected_efficiency(proposal), rel=0.1)
    assert weights.weights.sum() == pytest.approx(1.0)
    assert weights.k_hat < 0.5
    assert weights.trustworthy


def test_evidence_is_as_near_as_its_error_says() -> None:
    runs = [weighted(1.5, n=1000, seed=s)[1] for s in range(60)]
    score = np.array([(r.log_evidence - EVIDENCE) / r.evidence_error for r in runs])
    assert abs(score.mean()) < 0.5
    assert 0.7 < score.std() < 1.3


def test_a_narrow_proposal_is_found_out() -> None:
    _, weights = weighted(0.35)
    assert weights.k_hat > K_HAT
    assert not weights.trustworthy


@pytest.mark.parametrize(("at", "sd"), [(50, 0.1), (50, 1.0), (5, 0.1), (3, 0.05), (0, 0.02)])
def test_a_hopeless_proposal_is_found_out(at: float, sd: float) -> None:
    """The target is so narrow or far away that one draw carries all, and most weights underflow."""
    z = np.random.default_rng(0).normal(size=(1000, D))
    weights = ImportanceWeights(norm.logpdf(z, at, sd).sum(1) - norm.logpdf(z).sum(1))
    assert weights.size < 1.1
    assert weights.k_hat > K_HAT
    assert not weights.trustworthy


def test_nothing_anywhere() -> None:
    nothing = ImportanceWeights(np.full(100, -np.inf))
    assert nothing.efficiency == 0.0
    assert nothing.size == 0.0
    assert nothing.log_evidence == -np.inf
    assert nothing.k_hat == np.inf
    assert not nothing.trustworthy
    np.testing.assert_array_equal(nothing.weights, 0.0)
    assert nothing.divergence(np.zeros(100)) == np.inf
    empty = ImportanceWeights(np.empty(0))
    assert empty.efficiency == 0.0
    assert not empty.trustworthy


def test_zero_weights_count_as_draws() -> None:
    """Half of the draws fall where the target is zero: the evidence halves, and so does the efficiency."""
    _, weights = weighted(1.0)
    half = ImportanceWeights(np.where(np.arange(4000) % 2, weights.log_weights, -np.inf))
    assert half.log_evidence == pytest.approx(EVIDENCE + np.log(0.5))
    assert half.efficiency == pytest.approx(0.5)
    assert half.evidence_error == pytest.approx(np.sqrt(1 / 4000))


def test_huge_log_weights_do_not_overflow() -> None:
    _, weights = weighted(1.5)
    moved = ImportanceWeights(weights.log_weights + 1e5)
    np.testing.assert_allclose(moved.weights, weights.weights, rtol=1e-6)
    assert moved.log_evidence == pytest.approx(EVIDENCE + 1e5, abs=0.2)


def test_resampled_rows_follow_the_weights() -> None:
    _, weights = weighted(1.5)
    rng = np.random.default_rng(0)
    rows = weights.resample(50_000, rng)
    counts = np.bincount(rows, minlength=4000)
    assert np.abs(counts - 50_000 * weights.weights).max() <= 1.0  # systematic: never farther than one
    assert np.corrcoef(rows[:-1], rows[1:])[0, 1] == pytest.approx(0.0, abs=0.02)
    np.testing.assert_array_equal(rows, weights.resample(50_000, np.random.default_rng(0)))


def test_rows_without_weight_are_never_drawn() -> None:
    heights = np.full(10, -np.inf)
    heights[[3, 7]] = [0.0, np.log(3)]
    rows = ImportanceWeights(heights).resample(400, np.random.default_rng(1))
    assert np.bincount(rows, minlength=10).tolist() == [0, 0, 0, 100, 0, 0, 0, 300, 0, 0]


def test_moments_are_the_targets() -> None:
    z, weights = weighted(1.5, n=40_000)
    mean, covariance = weights.moments(z)
    np.testing.assert_allclose(mean, 0.0, atol=0.03)
    np.testing.assert_allclose(covariance, np.eye(D), atol=0.05)
    np.testing.assert_allclose(mean, np.average(z, axis=0, weights=weights.weights))
    np.testing.assert_allclose(covariance, np.cov(z.T, aweights=weights.weights, ddof=0))


def test_divergence_of_gaussians() -> None:
    """KL(N(0, 1) || N(m, s^2)) per dimension = log s + (1 + m^2) / (2 s^2) - 1/2, whatever the target's constant."""
    mean, s = 0.3, 1.4
    z, weights = weighted(1.5, n=40_000)
    log_ratio = EVIDENCE + norm.logpdf(z).sum(1) - norm.logpdf(z, mean, s).sum(1)
    wanted = D * (np.log(s) + (1 + mean**2) / (2 * s**2) - 0.5)
    assert weights.divergence(log_ratio) == pytest.approx(wanted, abs=0.03)


def test_figures() -> None:
    figures = weighted(1.5)[1].figures
    assert set(figures) == {"efficiency", "effective_sample_size", "k_hat", "log_evidence", "log_evidence_error"}
    assert all(np.isfinite(v) for v in figures.values())


def test_nearly_equal_weights_are_trusted_whatever_their_tail() -> None:
    """One weight in a hundred is off by a few percent, with a heavy tail: that moves nothing."""
    rng = np.random.default_rng(0)
    off = np.where(rng.uniform(size=4000) < 0.01, 0.02 * rng.pareto(0.8, size=4000).clip(max=50), 0.0)
    weights = ImportanceWeights(np.log1p(off) + 1e-6 * rng.normal(size=4000))
    assert weights.k_hat > K_HAT
    assert weights.efficiency > NEARLY_EQUAL
    assert weights.trustworthy
