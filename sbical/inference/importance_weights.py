"""Importance weights: efficiency, Pareto k-hat, evidence, and resampling to equally weighted draws."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

#: Above this Pareto k-hat an importance estimate cannot be trusted (Vehtari et al. 2024, JMLR 25(72)).
K_HAT = 0.7
#: Weights this nearly equal change little of what the draws say without them, whatever their tail (total variation <= 1/6: half the root
#: of 1 / efficiency - 1); and a tail index of such weights tells how their noise is distributed.
NEARLY_EQUAL = 0.9
#: Below this efficiency the draws that carry the weight are too few.
LEAST_EFFICIENCY = 0.01
#: A weight so far below the largest [nats] is nothing beside it, and near the smallest number that there is.
UNDERFLOW = 300.0


@dataclass(frozen=True, eq=False)
class ImportanceWeights:
    """Draws of a proposal and their log weights (n,), log target minus log proposal; -inf where the target is zero."""

    log_weights: np.ndarray

    @cached_property
    def weights(self) -> np.ndarray:
        """(n,) normalised weights; zero everywhere if no draw has any."""
        top = self.log_weights.max(initial=-np.inf)
        if not np.isfinite(top):
            return np.zeros(len(self.log_weights))
        relative = np.exp(self.log_weights - top)
        return relative / relative.sum()

    @property
    def size(self) -> float:
        """Effective sample size 1 / sum w^2 (Kish 1965)."""
        square = float((self.weights**2).sum())
        return 1 / square if square > 0 else 0.0

    @property
    def efficiency(self) -> float:
        """Effective sample size per draw."""
        return self.size / max(len(self.log_weights), 1)

    @cached_property
    def k_hat(self) -> float:
        """Shape of the weights' tail by Pareto-smoothed importance sampling; inf if hardly any draw has weight."""
        # imported late: arviz takes a second; it expects log likelihoods, whose negative is the weight
        from arviz_stats.base.array import array_stats

        used = np.sort(self.log_weights[np.isfinite(self.log_weights)])
        tail = int(np.ceil(min(len(used) / 5, 3 * np.sqrt(len(used)))))
        # most of the tail would underflow, and the fit of nothing finds no tail at all
        if len(used) < 25 or used[-tail + tail // 4] < used[-1] - UNDERFLOW:
            return float("inf")
        return float(array_stats.psislw(-used)[1])

    @property
    def log_evidence(self) -> float:
        """Log of the mean weight [nats]: the evidence of the model, if target and proposal are normalised densities."""
        top = self.log_weights.max(initial=-np.inf)
        if not np.isfinite(top):
            return -np.inf
        return float(top + np.log(np.mean(np.exp(self.log_weights - top))))

    @property
    def evidence_error(self) -> float:
        """Standard error of ``log_evidence`` [nats], by the delta method."""
        return float(np.sqrt(max(1 / max(self.efficiency, 1e-300) - 1, 0.0) / max(len(self.log_weights), 1)))

    def divergence(self, log_ratio: np.ndarray) -> float:
        """KL(target || q) [nats] estimated from these draws; ``log_ratio`` (n,) is the log of target over q at each."""
        positive = self.weights > 0
        return float(self.weights[positive] @ (log_ratio[positive] - self.log_evidence)) if positive.any() else float("inf")

    @property
    def figures(self) -> dict[str, float]:
        """What is kept of the weights."""
        return {
            "efficiency": self.efficiency, "effective_sample_size": self.size, "k_hat": self.k_hat,
            "log_evidence": self.log_evidence, "log_evidence_error": self.evidence_error,
        }  # fmt: skip

    @property
    def trustworthy(self) -> bool:
        """Whether estimates from these weights can be used."""
        return self.efficiency >= LEAST_EFFICIENCY and (self.k_hat <= K_HAT or self.efficiency >= NEARLY_EQUAL)

    def resample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n,) rows in random order, each row as often as its weight says (systematic resampling); few repeat while n is below
        a third of the draws.
        """
        edges = np.cumsum(self.weights)
        at = (np.arange(n) + rng.uniform()) / n
        return rng.permutation(np.minimum(np.searchsorted(edges, at * edges[-1]), len(edges) - 1))

    def moments(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weighted mean (d,) and covariance (d, d) of values (n, d)."""
        mean = self.weights @ values
        away = values - mean
        return mean, (away * self.weights[:, None]).T @ away
