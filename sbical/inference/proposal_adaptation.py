"""Proposals that learn from the weights of their draws (adaptive importance sampling: Cappe et al. 2008,
doi:10.1007/s11222-008-9059-x).

An emulator learns the log posterior from all draws weighted so far. Walkers explore what it has learned at no simulation, so that they
also find the thin end of a bent posterior, where no draw came yet; a mixture of Gaussians follows them; and most draws that would carry
little weight are turned down before they are simulated. Networks and a heavy tail keep their part, so that a lobe that no weight has shown
still gets its draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from sklearn.mixture import GaussianMixture

from sbical.inference.emulator import Emulator, emulate
from sbical.inference.importance_sampling import ProposalComponent, RejectionControl, WeightedDraws
from sbical.inference.importance_weights import ImportanceWeights

#: Mixtures have at most so many components; one more must be worth it (BIC, at the number of walkers).
MOST_COMPONENTS = 6
#: They are fitted to draws blurred by this many standard deviations: mixtures of Gaussians have thinner tails than most posteriors.
BLUR = 0.2
#: Walkers on the emulated posterior, their steps, and how many of the last positions of each are kept, every so many steps.
WALKERS, STEPS, KEPT, THIN = 600, 24, 4, 4
#: Draws, of which none is simulated, that measure how many the emulator accepts.
COUNTED = 6000
#: Share of all emulated weight whose draws are accepted for certain: the single largest ratio would have nearly all others turned down.
CERTAIN = 0.01
#: With fewer effective draws per parameter than this, weights say too little of the posterior's shape.
FEWEST = 3.0


def adapt(
    components: Sequence[ProposalComponent], seen: Sequence[WeightedDraws], least: float, rng: np.random.Generator
) -> list[ProposalComponent]:
    """The components with better proposals, and shares (at least ``least``) as the last weights say.

    ``seen`` are all draws weighted so far. A component of which they say too little keeps the proposal that it has.
    """
    out = []
    for i, c in enumerate(components):
        u, own, share = seen[-1].of(i)
        c = replace(c, share=max(share, least))
        if own.size > FEWEST * u.shape[1]:
            points, values = (np.concatenate([getattr(w, k)[w.origin == i] for w in seen]) for k in ("u", "log_target"))
            z, last = c.at.box.whitened(points), c.at.box.whitened(u)
            learned = emulate(z, values + c.at.box.log_scale(z), *own.moments(last))
            c = c if learned is None else _follow(c, learned, last[own.resample(WALKERS, rng)], rng)
        out.append(c)
    total = sum(c.share for c in out)
    return [replace(c, share=c.share / total) for c in out]


def _follow(c: ProposalComponent, learned: Emulator, start: np.ndarray, rng: np.random.Generator) -> ProposalComponent:
    """The component with a mixture and a rejection control that follow the emulator; walkers start at whitened ``start`` (n, d)."""
    walked = explore(learned, start, rng)
    c = replace(c, mixture=_mixture(walked, len(start), rng), moments=(walked.mean(0), np.cov(walked.T)), rejection=None)
    u = c.propose(COUNTED, rng)
    z, log_proposal, _ = c.log_proposal(u, c.log_network(u))
    own = ImportanceWeights(learned(z) - log_proposal)
    order = np.argsort(own.log_weights)
    certain = np.searchsorted(np.cumsum(own.weights[order]), 1 - CERTAIN)
    level = float(own.log_weights[order[min(certain, len(order) - 1)]])
    accepted = float(np.exp(RejectionControl(learned, level).log_acceptance(z, log_proposal)).mean())
    return replace(c, rejection=RejectionControl(learned, level, accepted))


def explore(learned: Emulator, start: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(KEPT n, d) draws of the emulated posterior, by differential evolution from start (n, d) (ter Braak 2006,
    doi:10.1007/s11222-006-8769-1).
    """
    n, d = start.shape
    u, value, kept = start.copy(), learned(start), []
    for step in range(STEPS):
        # two other walkers for each; a whole step now and then leads from lobe to lobe
        a, b = (np.arange(n) + rng.integers(1, n, (2, n))) % n
        length = 1.0 if step % 10 == 9 else 2.38 / np.sqrt(2 * d)
        proposed = u + length * (u[a] - u[b]) * rng.normal(1, 0.1, (n, 1))
        there = learned(proposed)
        moved = np.log(rng.uniform(size=n)) < there - value
        u[moved], value[moved] = proposed[moved], there[moved]
        if step >= STEPS - KEPT * THIN and (STEPS - 1 - step) % THIN == 0:
            kept.append(u.copy())
    return np.concatenate(kept)


def _mixture(z: np.ndarray, effective: int, rng: np.random.Generator) -> GaussianMixture:
    """A mixture of Gaussians for points z (n, d), of as many components as the ``effective`` number of points supports."""
    d = z.shape[1]
    points = z + BLUR * rng.multivariate_normal(np.zeros(d), np.cov(z.T), len(z))
    best: tuple[float, GaussianMixture] | None = None
    for count in range(1, MOST_COMPONENTS + 1):
        mixture = GaussianMixture(count, reg_covar=1e-3, random_state=int(rng.integers(2**31))).fit(points)
        free = count * (d + d * (d + 1) / 2 + 1) - 1
        criterion = -2 * effective * float(mixture.score(points)) + free * np.log(effective)
        if best is None or criterion < best[0]:
            best = (criterion, mixture)
    if best is None:
        raise ValueError(f"no mixture for {len(z)} points")
    return best[1]
