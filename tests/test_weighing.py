"""Pooled batches of several proposals, on Gaussians."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from sbical.importance import Importance
from sbical.weighing import Weighted, pool

EVIDENCE = -7.0
N = 4000


@dataclass
class Gaussian:
    """Stands in for a component: N(0, sd^2) in one dimension."""

    sd: float
    share: float = 1.0

    def log_prob(self, u: np.ndarray, log_network: np.ndarray) -> np.ndarray:
        return norm.logpdf(u[:, 0], 0, self.sd) + 0 * log_network


def batch(sd: float, seed: int) -> tuple[Any, Weighted]:
    u = sd * np.random.default_rng(seed).normal(size=(N, 1))
    target = EVIDENCE + norm.logpdf(u[:, 0])
    none = np.zeros((N, 1, 0))
    own = Importance(target - norm.logpdf(u[:, 0], 0, sd))
    return [Gaussian(sd)], Weighted(u, none, np.zeros(N, int), own, target, np.zeros((1, N)))


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
