"""Reference posteriors by a method that shares nothing with sbical's: tempered sequential Monte Carlo, then a long ensemble of chains.

Sequential Monte Carlo (Del Moral, Doucet and Jasra 2006) finds every mode from the prior; differential-evolution Metropolis (ter Braak
2006) moves the particles, and now and then a draw of a wide t distribution around them (Tierney 1994). Initial errors are sampled
with the parameters, by exact simulation, never linearised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import logsumexp
from scipy.stats import multivariate_t

#: At the last temperature particles move until no mean shifts by more than this from block to block [standard errors], so often in a row:
#: means that have settled seldom do. At most so many blocks.
SETTLED, CALM, MOST_BLOCKS = 3.2, 3, 60
#: Share of moves that are drawn anew around the other half of the particles, and the degrees of freedom of that t distribution.
ANEW, DEGREES = 0.4, 5

#: Log likelihood (n,) of points (n, d) whose prior is standard normal.
LogLikelihood = Callable[[np.ndarray], np.ndarray]


def sample(
    log_likelihood: LogLikelihood, d: int, rng: np.random.Generator, *, particles: int, moves: int, final: int
) -> tuple[np.ndarray, float]:
    """Draws (particles, d) of the posterior, and the log evidence that the tempering gives.

    ``moves`` Metropolis steps at every temperature, blocks of ``final`` ones at the last.

    Raises RuntimeError if the particles do not settle.
    """
    x = rng.standard_normal((particles, d))
    value, temperature, evidence = log_likelihood(x), 0.0, 0.0
    while temperature < 1:
        step = _next(value, 1 - temperature)
        weight = step * value
        evidence += float(logsumexp(weight) - np.log(particles))
        temperature += step
        weight = np.exp(weight - weight.max())
        edges = np.cumsum(weight)
        rows = np.minimum(np.searchsorted(edges, (np.arange(particles) + rng.uniform()) / particles * edges[-1]), particles - 1)
        x, value = x[rows], value[rows]
        for _ in range(moves):
            x, value = _move(log_likelihood, x, value, temperature, rng)
    calm = 0
    for _ in range(MOST_BLOCKS):
        before = x.mean(0)
        for _ in range(final):
            x, value = _move(log_likelihood, x, value, 1.0, rng)
        calm = calm + 1 if (np.abs(x.mean(0) - before) < SETTLED * x.std(0) / np.sqrt(particles)).all() else 0
        if calm == CALM:
            return x, evidence
    raise RuntimeError(f"{MOST_BLOCKS} blocks of {final} moves did not settle the particles; give more particles or moves")


def _next(value: np.ndarray, most: float) -> float:
    """The largest step of temperature that keeps half of the particles effective."""

    def effective(step: float) -> float:
        w = np.exp(step * (value - value.max()))
        return w.sum() ** 2 / (w**2).sum()

    if effective(most) > len(value) / 2:
        return most
    low, high = 0.0, most
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if effective(middle) > len(value) / 2 else (low, middle)
    return low


def _move(
    log_likelihood: LogLikelihood, x: np.ndarray, value: np.ndarray, temperature: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """One Metropolis step; each half of the particles moves along differences of the other half, or to a draw around it."""
    n, d = x.shape
    order = rng.permutation(n)
    x, value = x.copy(), value.copy()
    for mine, other in ((order[: n // 2], order[n // 2 :]), (order[n // 2 :], order[: n // 2])):
        pairs = [rng.integers(len(other), size=len(mine)) for _ in (0, 1)]
        # now and then a whole difference: it leads from one mode to another
        scale = np.where(rng.uniform(size=(len(mine), 1)) < 0.1, 1.0, 2.38 / np.sqrt(2 * d) * rng.uniform(0.3, 1.2, size=(len(mine), 1)))
        trial = x[mine] + scale * (x[other[pairs[0]]] - x[other[pairs[1]]]) + 1e-5 * rng.standard_normal((len(mine), d))
        spread = np.cov(x[other].T) + 1e-10 * np.eye(d)
        around: Any = multivariate_t(loc=x[other].mean(0), shape=spread, df=DEGREES)  # pyright: ignore[reportArgumentType]
        anew = rng.uniform(size=len(mine)) < ANEW
        trial[anew] = around.rvs(int(anew.sum()), random_state=rng).reshape(-1, d)
        new = log_likelihood(trial)
        ratio = temperature * (new - value[mine]) - 0.5 * ((trial**2).sum(1) - (x[mine] ** 2).sum(1))
        ratio[anew] += np.atleast_1d(around.logpdf(x[mine[anew]]) - around.logpdf(trial[anew]))
        accepted = np.log(rng.uniform(size=len(mine))) < ratio
        x[mine[accepted]], value[mine[accepted]] = trial[accepted], new[accepted]
    return x, value
