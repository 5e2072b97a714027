"""Gauss-Newton fits of the simulator to a recording, several starts at once, with the derivatives at the optimum.

Unknowns are the parameters that move the trajectories, in the prior's unconstrained coordinates, and the errors of every
window's initial state, in their own standard deviations: both have a normal prior, which keeps undetermined directions where
the prior has them. The noise scale of each channel is profiled out within its bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

#: Steps of the finite differences, at least and at most [prior standard deviations]; simulations are in double precision. Between them a
#: step is as long as the parameter is known with all others given: a longer one does not see where the trajectories bend (a servo with
#: 0.1 mrad of noise: 25 iterations with steps of 1e-3 ended 32 nats short), a shorter one drowns in rounding.
SHORTEST, LONGEST_STEP = 1e-6, 1e-3
#: Trial dampings of one iteration, relative to the present one: one batch of simulations serves them all.
TRIALS = (0.03, 0.3, 3.0)
#: A step moves no parameter further than this [prior standard deviations]: far from the recording the trajectories bend, and a longer
#: step runs into the edge of the prior, where nothing moves any more. Where it would, the prior counts so many times more, again and again,
#: which holds back what is hardly known and not what is.
LONGEST, FIRMER = 1.0, 4.0
#: Iterations in a row without any gain that end a start; damping rises thirtyfold each time.
MOST_FAILURES = 3
#: Iterations before a start that is too far behind is given up.
PATIENCE = 6
#: An iteration that gains less than this [nats] ends a start.
CONVERGED = 1e-3
#: Unknowns stay within so many standard deviations of their prior.
FARTHEST = 6.0

#: Clean trajectories, flattened (n, D), of unconstrained parameters (n, d) and initial errors (n, windows, k); NaN: failed.
Clean = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Target:
    """What is fitted. ``observed`` (D,); ``window`` and ``channel`` (D,) number each entry's; ``lowest`` and ``highest`` (m,) bound
    the noise of each channel; ``motion`` (p,) are the columns of the parameters that move trajectories, with the mean ``centre`` (d,)
    and standard deviation ``spread`` (d,) of their prior; ``errors`` (q,) are the entries of initial states that are uncertain;
    ``widths`` is the number of entries of an initial state.
    """

    observed: np.ndarray
    window: np.ndarray
    channel: np.ndarray
    lowest: np.ndarray
    highest: np.ndarray
    motion: np.ndarray
    centre: np.ndarray
    spread: np.ndarray
    errors: np.ndarray
    widths: int

    @property
    def windows(self) -> int:
        """Number of windows."""
        return int(self.window[-1]) + 1


@dataclass(frozen=True, eq=False)
class Fit:
    """A local optimum: parameters ``u`` (d,), initial ``errors`` (windows, k), clean trajectory (D,), ``noise`` (m,) per channel,
    ``neg_log_posterior`` [nats] has the noise profiled out; ``by_u`` (D, p) and ``by_error`` (D, q) are the derivatives.
    """

    u: np.ndarray
    errors: np.ndarray
    clean: np.ndarray
    noise: np.ndarray
    neg_log_posterior: float
    by_u: np.ndarray
    by_error: np.ndarray


def derivatives(
    clean: Clean, target: Target, u: np.ndarray, errors: np.ndarray, steps: np.ndarray | None = None, at: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """(n, D, p) by parameters and (n, D, q) by initial errors, central differences at u (n, d) and errors (n, windows, k).

    ``steps`` (n, p) in u, see ``resolved``; by default the longest. Where the trajectories ``at`` these points (n, D) are given,
    differences are one-sided: half as many simulations, and good enough for a step that is tried before it is taken.
    """
    p, q = len(target.motion), len(target.errors)
    if not p + q:
        return np.empty((len(u), len(target.observed), 0)), np.empty((len(u), len(target.observed), 0))
    sides = (1.0,) if at is not None else (1.0, -1.0)
    count = len(sides) * (p + q)
    points_u, points_e = np.repeat(u[:, None], count, 1), np.repeat(errors[:, None], count, 1)
    along = np.tile(LONGEST_STEP * target.spread[target.motion], (len(u), 1)) if steps is None else steps
    for k, sign in enumerate(sides):
        first = k * (p + q)
        for j, column in enumerate(target.motion):
            points_u[:, first + j, column] += sign * along[:, j]
        for j, column in enumerate(target.errors):
            # windows do not see each other's errors, so all of them move at once
            points_e[:, first + p + j, :, column] += sign * LONGEST_STEP
    values = clean(points_u.reshape(-1, u.shape[1]), points_e.reshape(-1, *errors.shape[1:])).reshape(len(u), len(sides), p + q, -1)
    lengths = np.concatenate([along, np.full((len(u), q), LONGEST_STEP)], 1)[..., None]
    change = values[:, 0] - at[:, None] if at is not None else (values[:, 0] - values[:, 1]) / 2
    slope = np.moveaxis(change / lengths, 1, 2)
    by_u, by_error = slope[..., :p], slope[..., p:]
    return by_u, by_error


def difference_steps(target: Target, by_u: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """(p,) steps in u that the next derivatives need, from the last ones by_u (D, p) and the noise (m,) of each channel."""
    spread = target.spread[target.motion]
    known = ((by_u / noise[target.channel, None]) ** 2).sum(0)
    return np.clip((known + spread**-2.0) ** -0.5, SHORTEST * spread, LONGEST_STEP * spread)


@dataclass(frozen=True)
class Stopping:
    """When starts end: after ``iterations``, or arrived, when the last iteration gained less than ``converged`` nats, or given up.

    Given up, after ``PATIENCE`` iterations, is a start that would, gaining as much in every iteration left as in the last, end
    ``behind`` nats behind the best one, or behind a fit known before, whose minus log posterior is ``known`` [nats].
    """

    iterations: int = 30
    behind: float = np.inf
    known: float = np.inf
    converged: float = CONVERGED


def fit(
    clean: Clean,
    target: Target,
    starts: np.ndarray,
    errors: np.ndarray | None = None,
    stopping: Stopping | None = None,
    *,
    roughly: bool = False,
) -> list[Fit]:
    """Fits from several starts (s, d) with initial errors (s, windows, k), by default none, best first.

    ``roughly``: by one-sided differences.
    """
    stopping = stopping or Stopping()
    first_errors = np.zeros((len(starts), target.windows, target.widths)) if errors is None else errors
    states = [_State(u, e) for u, e in zip(starts, first_errors, strict=True)]
    first = clean(np.stack([s.u for s in states]), np.stack([s.errors for s in states]))
    for state, f in zip(states, first, strict=True):
        state.place(target, f)
    states = [s for s in states if np.isfinite(s.neg_log_posterior)]
    for number in range(stopping.iterations):
        active = [s for s in states if not s.done]
        if not active:
            break
        _iterate(clean, target, active, roughly, stopping.converged)
        best = min([stopping.known, *(s.neg_log_posterior for s in states)])
        for s in active:
            s.done |= (
                number + 1 >= PATIENCE and s.neg_log_posterior - s.gained * (stopping.iterations - number - 1) > best + stopping.behind
            )
    best = min([stopping.known, *(s.neg_log_posterior for s in states)])
    kept = sorted((s for s in states if s.neg_log_posterior <= best + stopping.behind), key=lambda s: s.neg_log_posterior)
    if not kept:
        return []
    by_u, by_error = _derivatives(clean, target, kept, roughly)
    return [
        Fit(s.u, s.errors, s.clean, s.noise, s.neg_log_posterior, np.nan_to_num(a), np.nan_to_num(b))
        for s, a, b in zip(kept, by_u, by_error, strict=True)
    ]


class _State:
    """One start on its way."""

    def __init__(self, u: np.ndarray, errors: np.ndarray) -> None:
        self.u, self.errors = u, errors
        self.damping, self.neg_log_posterior, self.gained, self.done, self.failures = 1.0, np.inf, 0.0, False, 0
        self.clean = self.noise = np.empty(0)
        self.by_u: np.ndarray | None = None
        self.by_error: np.ndarray | None = None
        self.steps: np.ndarray | None = None

    def place(self, target: Target, clean: np.ndarray) -> None:
        self.clean = clean
        self.neg_log_posterior, self.noise = neg_log_posterior(target, self.u, self.errors, clean)


def neg_log_posterior(target: Target, u: np.ndarray, errors: np.ndarray, clean: np.ndarray) -> tuple[float, np.ndarray]:
    """Minus log posterior up to a constant [nats], and the noise (m,) of each channel that was profiled out; inf for a failure."""
    if not np.isfinite(clean).all():
        return np.inf, target.highest
    square, count = (target.observed - clean) ** 2, np.bincount(target.channel)
    total = np.bincount(target.channel, weights=square)
    noise = np.clip(np.sqrt(total / count), target.lowest, target.highest)
    z = ((u - target.centre) / target.spread)[target.motion]
    value = (count * np.log(noise) + total / (2 * noise**2)).sum() + 0.5 * (z**2).sum() + 0.5 * (errors**2).sum()
    return float(value), noise


def _derivatives(clean: Clean, target: Target, states: list[_State], roughly: bool) -> tuple[np.ndarray, np.ndarray]:
    longest = LONGEST_STEP * target.spread[target.motion]
    steps = np.stack([longest if s.steps is None else s.steps for s in states])
    at = np.stack([s.clean for s in states]) if roughly else None
    return derivatives(clean, target, np.stack([s.u for s in states]), np.stack([s.errors for s in states]), steps, at)


def _iterate(clean: Clean, target: Target, states: list[_State], roughly: bool, converged: float) -> None:
    """One damped step of every state: derivatives where it moved, then its trial steps, each in one batch."""
    moved = [s for s in states if s.by_u is None]
    if moved:
        by_u, by_error = _derivatives(clean, target, moved, roughly)
        for s, a, b in zip(moved, by_u, by_error, strict=True):
            slope = np.nan_to_num(a)
            s.by_u, s.by_error, s.steps = slope, np.nan_to_num(b), difference_steps(target, slope, s.noise)
    trials = [(s, s.damping * t, *_step(target, s, s.damping * t)) for s in states for t in TRIALS]
    values = clean(np.stack([t[2] for t in trials]), np.stack([t[3] for t in trials]))
    for i, s in enumerate(states):
        mine = range(i * len(TRIALS), (i + 1) * len(TRIALS))
        heights = [neg_log_posterior(target, trials[k][2], trials[k][3], values[k])[0] for k in mine]
        best = int(np.argmin(heights))
        if heights[best] < s.neg_log_posterior:
            s.gained = s.neg_log_posterior - heights[best]
            _, s.damping, s.u, s.errors = trials[mine[best]]
            s.place(target, values[mine[best]])
            s.failures, s.damping = 0, max(s.damping, 1e-7)
            if s.gained < converged:
                s.done = True
            else:
                s.by_u = s.by_error = None
        else:
            s.failures += 1
            s.gained, s.damping = 0.0, 30 * s.damping
            s.done = s.failures >= MOST_FAILURES


def _step(target: Target, state: _State, damping: float) -> tuple[np.ndarray, np.ndarray]:
    """Levenberg-Marquardt step with this damping; initial errors are eliminated window by window (Schur complement)."""
    normal = NormalEquations.of(target, state.by_u, state.by_error, state.noise, damping)
    residual = (target.observed - state.clean) / state.noise[target.channel] ** 2
    pull_u = -(state.u - target.centre)[target.motion] / target.spread[target.motion] ** 2
    move_u, move_e = normal.solve(residual, pull_u, -state.errors[:, target.errors])
    u, errors = state.u.copy(), state.errors.copy()
    low, high = target.centre - FARTHEST * target.spread, target.centre + FARTHEST * target.spread
    u[target.motion] += move_u
    errors[:, target.errors] = np.clip(errors[:, target.errors] + move_e, -FARTHEST, FARTHEST)
    return np.clip(u, low, high), errors


@dataclass(frozen=True, eq=False)
class NormalEquations:
    """The normal equations at a point: ``schur`` (p, p) is the precision of the parameters with the initial errors integrated out.

    ``cross`` (w, p, q) and ``inner`` (w, q, q): the rest of the precision, by window.
    """

    target: Target
    by_u: np.ndarray
    by_error: np.ndarray
    schur: np.ndarray
    cross: np.ndarray
    inner: np.ndarray

    @classmethod
    def of(
        cls, target: Target, by_u: np.ndarray | None, by_error: np.ndarray | None, noise: np.ndarray, damping: float = 0.0
    ) -> NormalEquations:
        """From derivatives (D, p) and (D, q) and the noise (m,) of each channel."""
        if by_u is None or by_error is None:
            raise ValueError("derivatives come first")
        weight = noise[target.channel] ** -2.0
        p, q, w = by_u.shape[1], by_error.shape[1], target.windows
        information = by_u.T @ (weight[:, None] * by_u)
        cross, inner = np.zeros((w, p, q)), np.zeros((w, q, q))
        for k in range(w):
            mine = target.window == k
            g = by_error[mine] * weight[mine, None]
            cross[k], inner[k] = by_u[mine].T @ g, by_error[mine].T @ g
        inner[:, range(q), range(q)] *= 1 + damping
        inner[:, range(q), range(q)] += 1.0
        information[range(p), range(p)] *= 1 + damping
        information[range(p), range(p)] += target.spread[target.motion] ** -2.0
        schur = information - np.einsum("wpq,wqr,wsr->ps", cross, np.linalg.inv(inner), cross)
        return cls(target, by_u, by_error, (schur + schur.T) / 2, cross, inner)

    def solve(self, residual: np.ndarray, pull_u: np.ndarray, pull_e: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(p,) and (w, q): the step for a weighted residual (D,) and the pull of the priors."""
        right_e = pull_e.copy()
        weighted = self.by_error * residual[:, None]
        np.add.at(right_e, self.target.window, weighted)
        right_u = self.by_u.T @ residual + pull_u
        inverse = np.linalg.inv(self.inner)
        right = right_u - np.einsum("wpq,wqr,wr->p", self.cross, inverse, right_e)
        move_u, spread, firm = np.linalg.solve(self.schur, right), self.target.spread[self.target.motion], 1.0
        while np.abs(move_u / spread).max(initial=0.0) > LONGEST:
            firm *= FIRMER
            move_u = np.linalg.solve(self.schur + np.diag((firm - 1) * spread**-2.0), right)
        # errors answer to the step that is taken
        move_e = np.einsum("wqr,wr->wq", inverse, right_e - np.einsum("wpq,p->wq", self.cross, move_u))
        return move_u, move_e

    def follow(self, shift: np.ndarray) -> np.ndarray:
        """(n, w, q): where the initial errors go when the parameters shift by (n, p), the trajectory kept as close as possible."""
        return -np.einsum("wqr,wpr,np->nwq", np.linalg.inv(self.inner), self.cross, shift)

    def reduced(self) -> np.ndarray:
        """(D, p): the derivatives by the parameters, less what the initial errors can make up for."""
        made_up = np.einsum("wpq,wqr->wpr", self.cross, np.linalg.inv(self.inner))[self.target.window]
        return self.by_u - np.einsum("dpq,dq->dp", made_up, self.by_error)
