"""Pooled batches of several proposals, on Gaussians; and what a component says of its own draws where the posterior is bent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.mixture import GaussianMixture

from sbical.inference.importance_sampling import ProposalComponent, RejectionControl, WeightedDraws, pool
from sbical.inference.importance_weights import ImportanceWeights
from sbical.laplace.ridge import Ridge
from sbical.laplace.truncated_box import Box

EVIDENCE = -7.0
N = 4000


@dataclass
class Gaussian:
    """Stands in for a component: N(0, sd^2) in one dimension."""

    sd: float
    share: float = 1.0

    def log_prob(self, u: np.ndarray, log_network: np.ndarray) -> np.ndarray:
        return norm.logpdf(u[:, 0], 0, self.sd) + 0 * log_network


def batch(sd: float, seed: int) -> tuple[Any, WeightedDraws]:
    u = sd * np.random.default_rng(seed).normal(size=(N, 1))
    target = EVIDENCE + norm.logpdf(u[:, 0])
    none = np.zeros((N, 1, 0))
    own = ImportanceWeights(target - norm.logpdf(u[:, 0], 0, sd))
    return [Gaussian(sd)], WeightedDraws(u, none, np.zeros(N, int), own, target, np.zeros((1, N)))


def test_pooled_draws_are_of_one_mixture() -> None:
    """The narrow proposal's own weights are useless in the tails; beside the wide one they are bounded."""
    narrow, wide = batch(0.4, 0), batch(1.5, 1)
    both = pool([narrow, wide])
    assert len(both.u) == 2 * N
    assert not narrow[1].importance.trustworthy
    assert both.importance.trustworthy
    assert both.importance.log_weights.max() < EVIDENCE + np.log(2 * 1.5) + 1e-9
    assert both.importance.log_evidence == pytest.approx(EVIDENCE, abs=4 * both.importance.evidence_error)
    assert float(both.importance.moments(both.u)[1][0, 0]) == pytest.approx(1.0, abs=0.06)


def test_one_batch_keeps_its_weights() -> None:
    one = batch(1.3, 2)
    np.testing.assert_allclose(pool([one]).importance.log_weights, one[1].importance.log_weights)


KNOTS = np.linspace(-4.0, 4.0, 9)
BENT = Box.around(np.zeros(2), np.diag([1e-4, 0.25]), np.zeros(2), np.ones(2), 4.0)
BENT = replace(BENT, ridges=(Ridge(1, KNOTS, np.stack([30 * KNOTS**2, 0 * KNOTS], 1), np.repeat(np.eye(2)[None], 9, 0)),))


class Mode:
    """Stands in for an expansion at the origin."""

    box = BENT

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(2), np.eye(2)


class Wide:
    """Stands in for a network: N(0, 1.2^2 I) in whitened coordinates."""

    def sample_many(self, x: np.ndarray, n: int, seed: int) -> np.ndarray:
        return BENT.unwhitened(1.2 * np.random.default_rng(seed).normal(size=(n, 2)))[None]

    def log_prob_pairs(self, u: np.ndarray, x: np.ndarray) -> np.ndarray:
        z = BENT.whitened(u)
        return norm.logpdf(z, 0, 1.2).sum(1) - BENT.log_scale(z)


def component(*, adapted: bool) -> ProposalComponent:
    parts: Any = {"at": Mode(), "simulated": None, "estimator": Wide(), "x_o": np.zeros(1), "share": 1.0, "starts": None}
    if not adapted:
        return ProposalComponent(**parts)
    mixture = GaussianMixture(1, random_state=0).fit(np.random.default_rng(0).normal(size=(500, 2)))
    emulator: Any = lambda z: norm.logpdf(z).sum(1)  # noqa: E731
    full = ProposalComponent(**parts, mixture=mixture, moments=(np.zeros(2), np.eye(2)))
    u = full.propose(200_000, np.random.default_rng(1))
    z, log_proposal, _ = full.log_proposal(u, full.log_network(u))
    accepted = float(np.exp(RejectionControl(emulator, 0.5).log_acceptance(z, log_proposal)).mean())
    return replace(full, rejection=RejectionControl(emulator, 0.5, accepted))


@pytest.mark.parametrize("adapted", [False, True])
def test_along_a_ridge_draws_have_the_density_that_they_are_weighted_by(adapted: bool) -> None:
    """The evidence of a normalised density is one, whatever the proposal, if its density is right."""
    proposal = component(adapted=adapted)
    u = proposal.sample(N, np.random.default_rng(2))
    z = BENT.whitened(u)
    assert np.abs(u[:, 0]).max() > 50 * 0.01  # far off the straight box
    target = norm.logpdf(z, 0.1, 0.9).sum(1) - BENT.log_scale(z)
    own = ImportanceWeights(target - proposal.log_prob(u, proposal.log_network(u)))
    assert own.efficiency > 0.5
    assert own.log_evidence == pytest.approx(0.0, abs=4 * own.evidence_error)
