"""Draws near the modes, weighted by the explicit likelihood.

The first proposal is what the networks answer, with a heavy tail beside it, so that no weight is unbounded. What it becomes once weights
have been seen is up to ``sbical.inference.proposal_adaptation``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.stats import multivariate_t
from sklearn.mixture import GaussianMixture

from sbical.inference.emulator import Emulator
from sbical.inference.importance_weights import ImportanceWeights
from sbical.inference.mode_estimator import ModeEstimator
from sbical.laplace.expansion import Expansion, Problem
from sbical.laplace.likelihood import Sensitivity
from sbical.priors.prior import Prior
from sbical.simulation.fanout import SimulationSet
from sbical.simulation.runner import Runner

#: Share of draws from a heavy-tailed density around each mode (Hesterberg 1995), its degrees of freedom, and its width squared.
DEFENSIVE, DEGREES, WIDTH = 0.08, 5.0, 1.3
#: Share of draws from the networks once mixtures are fitted.
NETWORK = 0.2
#: No draw is accepted with less than this probability: the emulator may be wrong where it has seen nothing.
LEAST_ACCEPTANCE = 0.1


@dataclass(frozen=True, eq=False)
class RejectionControl:
    """Rejection control (Liu, Chen & Wong 1998): draws whose emulated weight is low are turned down before they cost a simulation.

    The log weight is the emulated log posterior less the proposal's log density, both in whitened coordinates; at ``level`` and above
    draws are accepted for certain.

    ``accepted`` is the share of all draws that pass.
    """

    emulator: Emulator
    level: float
    accepted: float = 1.0

    def log_acceptance(self, z: np.ndarray, log_proposal: np.ndarray) -> np.ndarray:
        """(n,) log probability that a draw z (n, d) is accepted."""
        return np.clip(self.emulator(z) - log_proposal - self.level, np.log(LEAST_ACCEPTANCE), 0.0)


@dataclass(frozen=True, eq=False)
class ProposalComponent:
    """A mode with what was simulated there, its trained estimator, the recordings' summary x_o (k,), its share of draws, and what
    errors of the ``starts`` do there, see ``laplace.expansion.sensitivity``.

    Once weights have been seen: a ``mixture`` in the mode's whitened coordinates, and ``moments`` there, mean (d,) and covariance (d, d);
    with ``rejection``, draws that the emulated posterior holds for unlikely are turned down.
    """

    at: Expansion
    simulated: SimulationSet
    estimator: ModeEstimator
    x_o: np.ndarray
    share: float
    starts: Callable[[np.ndarray], Sensitivity]
    mixture: GaussianMixture | None = None
    moments: tuple[np.ndarray, np.ndarray] | None = None
    rejection: RejectionControl | None = None

    @cached_property
    def tail(self) -> Any:
        """A heavy-tailed density around the mode, in its whitened coordinates."""
        mean, covariance = self.moments or self.at.moments()
        return multivariate_t(loc=mean, shape=WIDTH * covariance, df=DEGREES, allow_singular=True)  # pyright: ignore[reportArgumentType]

    def parts(self) -> tuple[float, float, float]:
        """Shares of network, mixture and tail."""
        return (1 - DEFENSIVE, 0.0, DEFENSIVE) if self.mixture is None else (NETWORK, 1 - NETWORK - DEFENSIVE, DEFENSIVE)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, d) draws of unconstrained parameters."""
        if self.rejection is None:
            return self.propose(n, rng)
        kept, count = [np.empty((0, len(self.at.box.mode)))], 0
        while count < n:
            u = self.propose(int(1.2 * (n - count) / self.rejection.accepted) + 10, rng)
            log_acceptance = self.rejection.log_acceptance(*self.log_proposal(u, self.log_network(u))[:2])
            kept.append(u[np.log(rng.uniform(size=len(u))) < log_acceptance])
            count += len(kept[-1])
        return np.concatenate(kept)[:n]

    def propose(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, d) draws before any is turned down, in random order."""
        network, mixture, tail = rng.multinomial(n, self.parts()).tolist()
        drawn = [np.empty((0, len(self.at.box.mode)))]
        if network:
            drawn.append(self.estimator.sample_many(self.x_o[None], network, int(rng.integers(2**62)))[0])
        if mixture and self.mixture is not None:
            self.mixture.random_state = int(rng.integers(2**31))
            drawn.append(self.at.box.unwhitened(self.mixture.sample(mixture)[0]))
        if tail:
            drawn.append(self.at.box.unwhitened(self.tail.rvs(tail, random_state=rng).reshape(tail, -1)))
        return rng.permutation(np.concatenate(drawn))

    def log_network(self, u: np.ndarray) -> np.ndarray:
        """(n,) log density of the network's answer at u (n, d)."""
        return self.estimator.log_prob_pairs(u, np.broadcast_to(self.x_o, (len(u), len(self.x_o))))

    def log_prob(self, u: np.ndarray, log_network: np.ndarray) -> np.ndarray:
        """(n,) log density of ``sample`` at u (n, d)."""
        z, out, log_scale = self.log_proposal(u, log_network)
        if self.rejection is not None:
            out = out + self.rejection.log_acceptance(z, out) - np.log(self.rejection.accepted)
        return out - log_scale

    def log_proposal(self, u: np.ndarray, log_network: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Whitened coordinates z (n, d) of u (n, d), log density (n,) of ``propose`` in these, and log |du/dz| (n,)."""
        network, mixture, tail = self.parts()
        z = self.at.box.whitened(u)
        log_scale = self.at.box.log_scale(z)
        out = np.logaddexp(log_network + log_scale + np.log(network), np.atleast_1d(self.tail.logpdf(z)) + np.log(tail))
        if self.mixture is not None:
            out = np.logaddexp(out, self.mixture.score_samples(z) + np.log(mixture))
        return z, out, log_scale


@dataclass(frozen=True, eq=False)
class WeightedDraws:
    """Draws u (n, d) with initial errors (n, windows, k), the component (n,) each came from, and their weights.

    ``log_target`` (n,) is prior times likelihood; ``networks`` (components, n) holds the log density of every network's answer.
    """

    u: np.ndarray
    errors: np.ndarray
    origin: np.ndarray
    importance: ImportanceWeights
    log_target: np.ndarray
    networks: np.ndarray

    def log_network(self, components: Sequence[ProposalComponent]) -> np.ndarray:
        """(n,) log density of the networks' answer."""
        return np.logaddexp.reduce(self.networks + np.log([c.share for c in components])[:, None], axis=0)

    def of(self, component: int) -> tuple[np.ndarray, ImportanceWeights, float]:
        """A component's draws, their weights, and the share of all weight that they carry."""
        mine = self.origin == component
        return self.u[mine], ImportanceWeights(self.importance.log_weights[mine]), float(self.importance.weights[mine].sum())


def weigh(
    runner: Runner, prior: Prior, problem: Problem, components: Sequence[ProposalComponent], n: int, rng: np.random.Generator
) -> WeightedDraws:
    """n draws of the components' mixture with their importance weights."""
    counts = rng.multinomial(n, [c.share for c in components])
    drawn = [c.sample(int(count), rng) for c, count in zip(components, counts, strict=True)]
    u, origin = np.concatenate(drawn), np.repeat(np.arange(len(components)), counts)
    errors = np.concatenate([c.at.follow(part) for c, part in zip(components, drawn, strict=True)])
    networks = np.stack([c.log_network(u) for c in components])
    log_target = _log_target(runner, prior, problem, components, u, errors, origin)
    return WeightedDraws(u, errors, origin, ImportanceWeights(log_target - _log_density(components, u, networks)), log_target, networks)


def pool(batches: Sequence[tuple[Sequence[ProposalComponent], WeightedDraws]]) -> WeightedDraws:
    """Draws of several versions of the same components as draws of one mixture (balance heuristic: Veach & Guibas 1995)."""
    drawn = [w for _, w in batches]
    u, errors, origin, log_target = (np.concatenate([getattr(w, k) for w in drawn]) for k in ("u", "errors", "origin", "log_target"))
    networks = np.concatenate([w.networks for w in drawn], axis=1)
    log_q = [_log_density(components, u, networks) + np.log(len(w.u) / len(u)) for components, w in batches]
    return WeightedDraws(u, errors, origin, ImportanceWeights(log_target - np.logaddexp.reduce(log_q, axis=0)), log_target, networks)


def _log_density(components: Sequence[ProposalComponent], u: np.ndarray, networks: np.ndarray) -> np.ndarray:
    """(n,) log density of the components' mixture at u (n, d)."""
    return np.logaddexp.reduce([c.log_prob(u, own) + np.log(c.share) for c, own in zip(components, networks, strict=True)], axis=0)


def _log_target(
    runner: Runner,
    prior: Prior,
    problem: Problem,
    components: Sequence[ProposalComponent],
    u: np.ndarray,
    errors: np.ndarray,
    origin: np.ndarray,
) -> np.ndarray:
    """(n,) log prior + log likelihood with the initial errors integrated out, in unconstrained coordinates."""
    theta = prior.to_constrained(u)
    found = runner.trajectories("weigh", theta, problem.experiment, noise=False, errors=errors)
    out = prior.log_prob_unconstrained(u)
    with runner.timed("likelihood"):
        for i, c in enumerate(components):
            mine = np.flatnonzero(origin == i)
            if len(mine):
                values = [v[mine].astype(np.float64) for v in found.values]
                out[mine] += problem.noise.log_marginal(values, theta[mine], errors[mine][..., problem.target.errors], c.starts(u[mine]))
    return out
