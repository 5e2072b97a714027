"""Traces curved ridges of the posterior from a mode: their length, bends and width.

Gauss-Newton sees a posterior as an ellipsoid. Where one direction is hardly determined and the others hang on it, the posterior is thinner
than that direction is straight, and an ellipsoid, of whatever size, misses its ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import softmax

from sbical.laplace.expansion import Expansion, Problem, RidgeTrace
from sbical.laplace.gauss_newton import Clean, Fit, NormalEquations, Stopping, Target, fit, neg_log_posterior
from sbical.laplace.ridge import Ridge

#: How far the axes are tried [posterior standard deviations], what a bend must add to the parabola there, and what a tail, which also needs
#: a longer box, must lack [nats].
TRIED, BENT, FLAT = 2.0, 1.0, 1.0
#: Points of a ridge to each side at most, and their distance [posterior standard deviations]: twice as far after each step that lost less
#: than this [nats].
POINTS, STEP, LEVEL = 8, 1.0, 0.75
#: A spline goes through at least so many.
FEWEST = 4
#: A ridge ends where it is this much below its top [nats], or so far from the middle of the prior [standard deviations].
DEPTH, EDGE = 9.0, 4.5
#: Iterations of the fit of one point, and the gain that ends it [nats].
ITERATIONS, CONVERGED = 8, 0.02
#: Where a point lies further than this from the curve through the others [its standard deviations], points come closer, so often.
LOOSE, CLOSER = 3.0, 2
#: A ridge is kept if the posterior is so much nearer to what it says than to what was said without it [nats], by so many draws of each.
GAINED, DRAWN = 0.05, 80
#: Beside the prior, which is measured like a motion, unknowns are held by one so many times as wide.
WIDER = 30.0


def traced(problem: Problem, at: Expansion) -> Expansion:
    """The expansion in a box that follows its ridge, if it has one that bends.

    A second ridge on top was tried on the benchmark with two delays, and never gained anything.
    """
    local = _RidgePoint.of(problem, at)
    axis = local.most_bent()
    bent = None if axis is None else local.along(axis)
    return at if bent is None or local.gained(bent) < GAINED else bent


def on_ridge(at: Expansion, u: np.ndarray, nearer: float) -> bool:
    """Whether u (d,) lies on a ridge of an expansion, within ``nearer`` of its standard deviations per axis (root mean square)."""
    if not at.box.ridges:
        return False
    y = at.box.whitened(u[None])[0]
    axes = [r.axis for r in at.box.ridges]
    return all(r.knots[0] <= y[r.axis] <= r.knots[-1] for r in at.box.ridges) and bool((np.delete(y, axes) ** 2).mean() < nearer**2)


@dataclass(frozen=True, eq=False)
class _RidgePoint:
    """The problem in an expansion's whitened coordinates; ``columns`` are those along which trajectories move.

    The prior is no Gaussian there, so it is measured: what is simulated begins with the prior's standard coordinates, observed as 0 with a
    standard deviation of 1.
    """

    problem: Problem
    at: Expansion
    columns: np.ndarray

    @classmethod
    def of(cls, problem: Problem, at: Expansion) -> _RidgePoint:
        share = (at.box.axes[problem.target.motion] ** 2).sum(0)
        # an axis that mixes motion with noise cannot be followed by motion alone
        mixed = (np.minimum(share, 1 - share) > 1e-6).any()
        return cls(problem, at, np.empty(0, int) if mixed else np.flatnonzero(share > 0.5))

    def clean(self, y: np.ndarray, errors: np.ndarray) -> np.ndarray:
        target, u = self.problem.target, self.at.box.unwhitened(y)
        standard = ((u - target.centre) / target.spread)[:, target.motion]
        return np.concatenate([standard, self.problem.clean(u, errors)], axis=1)

    def target(self, motion: np.ndarray) -> Target:
        """What is fitted with these columns free."""
        target, box = self.problem.target, self.at.box
        p, channels = len(target.motion), len(target.lowest)
        first = np.zeros(p, int)
        return replace(
            target, observed=np.concatenate([np.zeros(p), target.observed]), window=np.concatenate([first, target.window]),
            channel=np.concatenate([first + channels, target.channel]), lowest=np.append(target.lowest, 1.0),
            highest=np.append(target.highest, 1.0), motion=motion, centre=np.zeros(len(box.mode)), spread=WIDER / box.scale,
        )  # fmt: skip

    def most_bent(self) -> int | None:
        """The longest axis along which the posterior leaves its parabola: a shorter one that is cut off by a long one looks bent too."""
        columns = self.columns
        if not len(columns):
            return None
        both = np.concatenate([columns, columns])
        y = np.zeros((len(both), len(self.at.box.mode)))
        y[range(len(both)), both] = np.repeat([TRIED, -TRIED], len(columns))
        errors = self.at.follow(self.at.box.unwhitened(y))
        target = self.target(columns[:0])
        heights = np.array([neg_log_posterior(target, a, e, f)[0] for a, e, f in zip(y, errors, self.clean(y, errors), strict=True)])
        excess = heights - self.at.at.neg_log_posterior - TRIED**2 / 2
        # a side that cannot be simulated says nothing
        rows = np.flatnonzero(((excess > BENT) | (excess < -FLAT)) & np.isfinite(excess))
        return int(both[rows].max()) if len(rows) else None

    def gained(self, bent: Expansion) -> float:
        """KL(posterior || Gaussian in the present coordinates) less that in those of ``bent`` [nats].

        By importance sampling from both together: draws of one alone would not show what it misses.
        """
        rng, said = np.random.default_rng(0), (self.at, bent)
        drawn = [self._drawn(e, rng) for e in said]
        u, errors = np.concatenate(drawn), np.concatenate([e.follow(d) for e, d in zip(said, drawn, strict=True)])
        clean = self.problem.clean(u, errors)
        heights = np.array([neg_log_posterior(self.problem.target, a, e, f)[0] for a, e, f in zip(u, errors, clean, strict=True)])
        straight, along = (self._log_density(e, u) for e in said)
        return float(softmax(-heights - np.logaddexp(straight, along)) @ (along - straight))

    def _drawn(self, at: Expansion, rng: np.random.Generator) -> np.ndarray:
        """(DRAWN, d) draws of the Gaussian that an expansion's coordinates make of the posterior; what moves nothing stays at the mode."""
        mean, covariance = at.moments()
        y = np.tile(mean, (DRAWN, 1))
        y[:, self.columns] += rng.multivariate_normal(np.zeros(len(mean)), covariance, DRAWN)[:, self.columns]
        return at.box.unwhitened(y)

    def _log_density(self, at: Expansion, u: np.ndarray) -> np.ndarray:
        """(n,) log density of that Gaussian, up to a constant."""
        mean, covariance = at.moments()
        y, deviation = at.box.whitened(u), np.sqrt(np.diag(covariance))
        return -0.5 * (((y - mean) / deviation)[:, self.columns] ** 2).sum(1) - np.log(deviation).sum() - at.box.log_scale(y)

    def along(self, axis: int) -> Expansion | None:
        """The expansion with a box that follows the ridge of an axis; None if too few points of it could be simulated."""
        rest = np.setdiff1d(self.columns, [axis])
        target = self.target(rest)
        start = replace(self.at.at, u=np.zeros(len(self.at.box.mode)))
        points = _refined(self.clean, target, axis, _walked(self.clean, target, axis, start))
        if len(points) < FEWEST:
            return None
        ridge = _ridge(target, axis, points)
        box, middle = self.at.box, float(self.at.box.axes[:, axis] @ self.at.box.mode)
        low, high = box.low.copy(), box.high.copy()
        ends = middle + box.scale[axis] * ridge.knots[[0, -1]]
        low[axis], high[axis] = ends[0] if ends[0] > -EDGE else -np.inf, ends[1] if ends[1] < EDGE else np.inf
        p = len(self.problem.target.motion)
        density = np.linalg.slogdet(ridge.root)[1] - [f.neg_log_posterior for f in points]
        trace = RidgeTrace(axis, ridge.knots, np.stack([f.errors for f in points]), np.stack([f.by_error[p:] for f in points]), density)
        return replace(self.at, box=replace(box, low=low, high=high, ridges=(*box.ridges, ridge)), traces=(*self.at.traces, trace))


def _walked(clean: Clean, target: Target, axis: int, start: Fit) -> list[Fit]:
    """Optima of all other coordinates at positions along the axis, ascending, from the mode to both sides."""
    found = _fitted(clean, target, [start.u], [start])
    if not found:
        return []
    middle = found[0]
    sides: dict[int, list[Fit]] = {-1: [middle], 1: [middle]}
    steps, top, going = {-1: STEP, 1: STEP}, middle.neg_log_posterior, [-1, 1]
    for _ in range(POINTS):
        starts = [_onwards(sides[side][-3:], axis, side * steps[side]) for side in going]
        found = _fitted(clean, target, starts, [sides[side][-1] for side in going])
        on = []
        for f in found:
            side = 1 if f.u[axis] > 0 else -1
            lost = f.neg_log_posterior - sides[side][-1].neg_log_posterior
            sides[side].append(f)
            top = min(top, f.neg_log_posterior)
            steps[side] *= 2 if lost < LEVEL else 1
            standard = f.clean[: len(target.motion) + 1]
            if f.neg_log_posterior < top + DEPTH and np.abs(standard).max() < EDGE:
                on.append(side)
        going = on
        if not going:
            break
    return [*sides[-1][:0:-1], *sides[1]]


def _fitted(clean: Clean, target: Target, starts: list[np.ndarray], near: list[Fit]) -> list[Fit]:
    errors = np.stack([f.errors for f in near])
    return fit(clean, target, np.stack(starts), errors, Stopping(ITERATIONS, converged=CONVERGED), roughly=True)


def _onwards(past: list[Fit], axis: int, step: float) -> np.ndarray:
    """Where a ridge goes on after up to three points: the parabola through them."""
    along, places = np.array([f.u[axis] for f in past]), np.stack([f.u for f in past])
    there = along[-1] + step
    weights = [np.prod([(there - b) / (a - b) for b in along if b != a]) for a in along]
    out = np.asarray(weights) @ places
    out[axis] = there
    return out


def _refined(clean: Clean, target: Target, axis: int, points: list[Fit]) -> list[Fit]:
    """More points where a curve through the others misses one."""
    for _ in range(CLOSER):
        if len(points) <= FEWEST:
            break
        top = min(f.neg_log_posterior for f in points)
        gaps: set[int] = set()
        for j in range(1, len(points) - 1):
            ridge = _ridge(target, axis, points[:j] + points[j + 1 :])
            offset, _ = ridge.at(points[j].u[axis : axis + 1])
            own = _root(target, points[j])
            away = np.linalg.solve(own, (points[j].u - offset[0])[target.motion])
            if points[j].neg_log_posterior < top + DEPTH and np.sqrt((away**2).mean()) > LOOSE:
                gaps |= {j - 1, j}
        if not gaps:
            break
        ridge = _ridge(target, axis, points)
        between = np.array([(points[j].u[axis] + points[j + 1].u[axis]) / 2 for j in sorted(gaps)])
        starts, _ = ridge.at(between)
        starts[:, axis] = between
        points = sorted([*points, *_fitted(clean, target, list(starts), [points[j] for j in sorted(gaps)])], key=lambda f: f.u[axis])
    return points


def _root(target: Target, point: Fit) -> np.ndarray:
    return np.linalg.cholesky(np.linalg.inv(NormalEquations.of(target, point.by_u, point.by_error, point.noise).schur))


def _ridge(target: Target, axis: int, points: list[Fit]) -> Ridge:
    """The ridge through points that ascend along the axis."""
    d = len(target.centre)
    offset, root = np.stack([f.u for f in points]), np.repeat(np.eye(d)[None], len(points), 0)
    knots = offset[:, axis].copy()
    offset[:, axis] = 0.0
    for own, f in zip(root, points, strict=True):
        own[np.ix_(target.motion, target.motion)] = _root(target, f)
    return Ridge(axis, knots, offset, root)
