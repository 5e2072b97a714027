"""Proposals that learn from the weights of their draws (adaptive importance sampling: Cappe et al. 2008,
doi:10.1007/s11222-008-9059-x).

An emulator learns the log posterior from all draws weighted so far. It costs nothing to evaluate, so that mixtures of Gaussians are
fitted to tens of thousands of draws weighted by it, and most of the draws that would carry little weight are turned down before they are
simulated. Networks and a heavy tail keep their part, so that a lobe that no weight has shown still gets its draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from sklearn.mixture import GaussianMixture

from sbical.emulator import Emulator, emulate
from sbical.importance import Importance
from sbical.weighing import Component, Sieve, Weighted

#: Mixtures have at most so many components; one more must be worth it (BIC, at the effective number of draws).
MOST_COMPONENTS = 8
#: Draws that a mixture is fitted to, made from the weighted ones.
FITTED = 4000
#: They are blurred by this many of their standard deviations: mixtures of Gaussians have thinner tails than most posteriors.
BLUR = 0.3
#: Draws that are weighted by the emulator alone.
FREE = 20_000
#: Share of all emulated weight whose draws are accepted for certain: the single largest ratio would have nearly all others turned down.
CERTAIN = 0.002
#: With fewer effective draws per parameter than this, weights say too little of the posterior's shape.
FEWEST = 8.0


def adapt(components: Sequence[Component], seen: Sequence[Weighted], least: float, rng: np.random.Generator) -> list[Component]:
    """The components with better proposals, and shares (at least ``least``) as the last weights say.

    ``seen`` are all draws weighted so far. A component whose weights rest on too few draws keeps the proposal it has.
    """
    out = []
    for i, c in enumerate(components):
        u, own, share = seen[-1].of(i)
        changed = replace(c, share=max(share, least))
        if own.size > FEWEST * u.shape[1]:
            mean, covariance = own.moments(u)
            changed = replace(changed, mixture=_mixture(c.at.box.whitened(u), own, rng), moments=(mean, covariance), sieve=None)
            points, values = (np.concatenate([getattr(w, k)[w.origin == i] for w in seen]) for k in ("u", "log_target"))
            learned = emulate(points, values, mean, covariance)
            changed = changed if learned is None else _sieved(changed, learned, rng)
        out.append(changed)
    total = sum(c.share for c in out)
    return [replace(c, share=c.share / total) for c in out]


def _sieved(c: Component, learned: Emulator, rng: np.random.Generator) -> Component:
    """The component with a mixture and a sieve that follow the emulator."""
    u, log_proposal, own = _free(c, learned, rng)
    if own.size > FEWEST * u.shape[1]:
        c = replace(c, mixture=_mixture(c.at.box.whitened(u), own, rng), moments=own.moments(u))
        u, log_proposal, own = _free(c, learned, rng)
    order = np.argsort(own.log_weights)
    certain = np.searchsorted(np.cumsum(own.weights[order]), 1 - CERTAIN)
    sieve = Sieve(learned, float(own.log_weights[order[min(certain, len(order) - 1)]]))
    return replace(c, sieve=replace(sieve, accepted=float(np.exp(sieve.log_acceptance(u, log_proposal)).mean())))


def _free(c: Component, learned: Emulator, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, Importance]:
    """Draws (n, d) that are not simulated, their log density (n,), and their weights as the emulator has them."""
    u = c.propose(FREE, rng)
    log_proposal = c.log_proposal(u, c.log_network(u))
    return u, log_proposal, Importance(learned(u) - log_proposal)


def _mixture(z: np.ndarray, own: Importance, rng: np.random.Generator) -> GaussianMixture:
    """A mixture of Gaussians for weighted points z (n, d), of as many components as they support."""
    n, d = z.shape
    root = np.linalg.cholesky(own.moments(z)[1] + 1e-9 * np.eye(d))
    points = z[own.resample(FITTED, rng)] + BLUR * rng.standard_normal((FITTED, d)) @ root.T
    best: tuple[float, GaussianMixture] | None = None
    for count in range(1, MOST_COMPONENTS + 1):
        mixture = GaussianMixture(count, reg_covar=1e-3, random_state=int(rng.integers(2**31))).fit(points)
        free = count * (d + d * (d + 1) / 2 + 1) - 1
        criterion = -2 * own.size * float(mixture.score(points)) + free * np.log(own.size)
        if best is None or criterion < best[0]:
            best = (criterion, mixture)
    if best is None:
        raise ValueError(f"no mixture for {n} points")
    return best[1]
