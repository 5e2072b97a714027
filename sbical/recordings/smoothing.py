"""Position and velocity at one instant from noisy samples, by a smoothing spline, with their covariance.

A smoothing spline with random jerk, as a mixed model with truncated powers (Ruppert, Wand and Carroll 2003, ch. 4): the jerk's
variance is averaged over by its restricted likelihood, so that motions that bend fast come out less certain. Own code, because
SciPy's smoothing splines give no covariance. A polynomial of fixed degree is not enough: a parabola's velocities were off by
5 of its own standard deviations (root mean square) on simulated six-axis arms, a cubic's by 1.4 to 2.6, this by 1.1 to 1.3.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

#: Samples within this distance of the start are used [s], and at least so many, however far away.
SPAN, FEWEST = 0.08, 9
#: With fewer there is nothing to tell noise from motion by.
LEAST = 4
#: Knots of the spline, at most: one every 8 ms of a full span.
KNOTS = 20
#: Variances of the jerk that are averaged over, in units of the noise's and of the window's length.
JERKS = np.logspace(-4, 8, 25)


def smoothed(
    start: float, time: np.ndarray, value: np.ndarray, kind: Literal["position", "velocity"], resolution: float
) -> tuple[np.ndarray, np.ndarray] | None:
    """Mean and covariance of (position, velocity) at ``start`` [s], or of (velocity,) where velocities are read.

    ``time`` (T,) [s], ``value`` (T,) [rad or m, per second for a velocity], ``resolution`` in the unit of the values: noise is
    at least a step's. None with too few samples.
    """
    distance = np.abs(time - start)
    near = np.flatnonzero(distance <= SPAN)
    if len(near) < FEWEST:
        near = np.sort(np.argsort(distance, kind="stable")[:FEWEST])
    length = float(np.ptp(time[near])) if len(near) else 0.0
    if len(near) < LEAST or length == 0.0:
        return None
    s, y = (time[near] - start) / length, value[near]
    knots = np.linspace(s[0], s[-1], min(KNOTS, len(s)) + 1)[:-1]
    # position is made of 1, s, s^2 / 2 and (s - knot)^2 / 2 beyond each knot; velocity of their derivatives
    order = 2 if kind == "position" else 1
    design, here = _powers(s, knots, order), _powers(np.zeros(1), knots, order)
    if order == 2:
        here = np.concatenate([here, np.pad(_powers(np.zeros(1), knots, 1), ((0, 0), (1, 0)))])
    free, freedom = order + 1, len(s) - order - 1
    least = max(resolution**2 / 12, 1e-12)
    gram, moment = design.T @ design, design.T @ y
    means, covariances, scores = [], [], []
    for jerk in JERKS / len(knots):
        penalty = np.concatenate([np.full(free, 1e-10), np.full(len(knots), 1 / jerk)])
        factor = np.linalg.cholesky(gram + np.diag(penalty))
        weights = np.linalg.solve(factor.T, np.linalg.solve(factor, moment))
        misfit = float(((y - design @ weights) ** 2).sum() + (penalty * weights**2)[free:].sum())
        noise = max(misfit / freedom, least)
        scores.append(-np.log(np.diag(factor)).sum() - 0.5 * (len(knots) * np.log(jerk) + freedom * np.log(noise) + misfit / noise))
        half = np.linalg.solve(factor, here.T)
        means.append(here @ weights)
        # the noise is estimated: a t distribution, by its variance, which two degrees of freedom or fewer do not have
        covariances.append(half.T @ half * noise * freedom / max(freedom - 2, 0.5))
    share = np.exp(np.array(scores) - max(scores))
    share = share / share.sum()
    mean = share @ np.array(means)
    apart = np.array(means) - mean
    covariance = np.einsum("i,ijk->jk", share, covariances) + np.einsum("i,ij,ik->jk", share, apart, apart)
    unit = np.diag(length ** -np.arange(2.0)) if order == 2 else np.eye(1)
    return unit @ mean, unit @ covariance @ unit


def _powers(s: np.ndarray, knots: np.ndarray, order: int) -> np.ndarray:
    """(n, order + 1 + knots): powers of s up to ``order`` over their factorials, then those truncated at each knot."""
    beyond = np.maximum(s[:, None] - knots, 0.0)
    return np.concatenate([np.stack([s**k / max(k, 1) for k in range(order + 1)], 1), beyond**order / order], 1)
