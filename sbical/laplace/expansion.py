"""Laplace approximation at a mode: the box to simulate in, the linear summary used there, sensitivity to initial errors.

``Problem`` holds what all modes share. An ``Expansion`` is made at a point, by derivatives alone; nothing here draws conclusions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtr, ndtri

from sbical.laplace.gauss_newton import FARTHEST, Clean, Fit, NormalEquations, Target, derivatives, difference_steps, neg_log_posterior
from sbical.laplace.likelihood import NoiseModel, Sensitivity
from sbical.laplace.linear_summary import LinearSummary, linear_summary
from sbical.laplace.truncated_box import Box
from sbical.recordings.experiment import Experiment
from sbical.simulation.rollout import flatten

#: Half-width of what is simulated around a mode [posterior standard deviations]: wider, the motion bends too much for a linear
#: summary; narrower, the tails are never seen. On the six-parameter servo 4 gave 1.5 to 3 times the efficiency of 6.
RADIUS = 4.0
#: Where the change of the initial errors' effect is measured [posterior, at most prior, standard deviations].
BEND, BEND_PRIOR = 1.5, 0.5
#: Step of the second differences of the noise parameters' likelihood [prior standard deviations].
_CURVATURE_STEP = 0.05


@dataclass(frozen=True, eq=False)
class Problem:
    """One experiment, seen from the prior's unconstrained coordinates ``u`` (d,).

    ``clean`` simulates without noise; ``constrain`` turns u (n, d) into SI units; ``log_prior`` is the density of u.
    """

    noise: NoiseModel
    target: Target
    clean: Clean
    constrain: Callable[[np.ndarray], np.ndarray]
    log_prior: Callable[[np.ndarray], np.ndarray]

    @property
    def experiment(self) -> Experiment:
        """What is replayed."""
        return self.noise.experiment

    def windows(self, flat: np.ndarray) -> tuple[np.ndarray, ...]:
        """(n, D) cut back into windows, each (n, T_w, m)."""
        shapes = [o.shape for o in self.experiment.observed]
        edges = np.cumsum([0, *(a * b for a, b in shapes)])
        return tuple(flat[:, low:high].reshape(-1, *s) for low, high, s in zip(edges[:-1], edges[1:], shapes, strict=True))


def target_of(noise: NoiseModel, centre: np.ndarray, spread: np.ndarray, bounds: tuple[np.ndarray, np.ndarray]) -> Target:
    """What Gauss-Newton fits; ``bounds`` are thetas (1, d) at the lowest and the highest noise of the prior."""
    experiment = noise.experiment
    observed = flatten(tuple(o[None] for o in experiment.observed))[0]
    window = np.concatenate([np.full(o.size, w) for w, o in enumerate(experiment.observed)])
    channel = np.concatenate([np.tile(np.arange(o.shape[1]), len(o)) for o in experiment.observed])
    lowest, highest = (np.stack([_total(*noise.scales(theta, w))[0] for w in experiment.windows]) for theta in bounds)
    top = highest.max(0) if noise.exact else np.full(len(experiment.channels), np.inf)
    errors = np.flatnonzero(np.any([np.diag(w.initial.factor) > 0 for w in experiment.windows], axis=0))
    # a robot is never followed better than a thousandth of its motion
    floor = 1e-4 * np.maximum([np.std(observed[channel == c]) for c in range(len(experiment.channels))], 1e-6)
    return Target(
        observed, window, channel, np.maximum(lowest.min(0), floor if not noise.exact else 0.0), top, np.flatnonzero(noise.motion), centre,
        spread, errors, len(experiment.windows[0].initial.mean),
    )  # fmt: skip


def _total(std: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Standard deviation of noise and rounding together (Sheppard's correction)."""
    return np.sqrt(std**2 + step**2 / 12)


@dataclass(frozen=True, eq=False)
class RidgeTrace:
    """Along the knots (m,) of the ridge of an ``axis``: initial errors (m, windows, k), derivatives by them (m, D, q), and the posterior's
    ``density`` (m,) along the axis (log, up to a constant).
    """

    axis: int
    knots: np.ndarray
    errors: np.ndarray
    by_error: np.ndarray
    density: np.ndarray

    def moments(self) -> tuple[float, float]:
        """Mean and standard deviation along the axis."""
        along = np.linspace(self.knots[0], self.knots[-1], 500)
        weight = np.exp(np.interp(along, self.knots, self.density - self.density.max()))
        mean = float(weight @ along / weight.sum())
        return mean, float(np.sqrt(weight @ (along - mean) ** 2 / weight.sum()))

    def shares(self, y: np.ndarray) -> np.ndarray:
        """(n, m): weight of each knot in a linear interpolation at whitened y (n, d); the nearest knot's beyond the ends."""
        clipped = np.clip(y[:, self.axis], self.knots[0], self.knots[-1])
        return np.stack([np.interp(clipped, self.knots, row) for row in np.eye(len(self.knots))], axis=1)


@dataclass(frozen=True, eq=False)
class Expansion:
    """A point of the posterior and its surroundings.

    ``at`` holds the point and the derivatives there, ``normal`` the precision, ``box`` what is simulated, ``summary`` the summary;
    ``traces`` belong to the box's ridges.
    """

    at: Fit
    normal: NormalEquations
    box: Box
    summary: LinearSummary
    traces: tuple[RidgeTrace, ...] = ()

    def propose(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Parameters (n, d) and initial errors (n, windows, k), both from the prior cut down to ``RADIUS`` around the point.

        Errors follow the parameters, so that the box in them is as narrow as the recording allows.
        """
        u = self.box.sample(n, rng)
        errors = self.follow(u)
        used = self.normal.target.errors
        if len(used):
            values, axes = np.linalg.eigh(self.normal.inner)
            along = np.einsum("nwq,wqr->nwr", errors[..., used], axes)
            half = RADIUS / np.sqrt(values)
            low, high = ndtr(along - half), ndtr(along + half)
            along = np.clip(ndtri(low + rng.uniform(size=along.shape) * (high - low)), along - half, along + half)
            errors[..., used] = np.einsum("nwr,wqr->nwq", along, axes)
        return u, errors

    def follow(self, u: np.ndarray) -> np.ndarray:
        """(n, windows, k): the likeliest initial errors at parameters u (n, d), to first order."""
        target = self.normal.target
        away, shares = self.away(u)
        errors = np.repeat(self.at.errors[None], len(u), 0)
        for trace, share in zip(self.traces, shares, strict=True):
            errors += np.einsum("nm,mwk->nwk", share, trace.errors - self.at.errors)
        errors[..., target.errors] += self.normal.follow(away)
        return np.clip(errors, -FARTHEST, FARTHEST)

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean (d,) and covariance (d, d) of the posterior in the box's whitened coordinates, as far as is known."""
        mean, deviation = np.zeros(len(self.box.mode)), np.ones(len(self.box.mode))
        for trace in self.traces:
            mean[trace.axis], deviation[trace.axis] = trace.moments()
        return mean, np.diag(deviation**2)

    def away(self, u: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """Distance (n, p) of the parameters that move trajectories from the mode, or from its ridges, and the shares of the latter's knots,
        each (n, m).
        """
        motion, y = self.normal.target.motion, self.box.whitened(u)
        shares = [trace.shares(y) for trace in self.traces]
        y[:, np.setdiff1d(range(y.shape[1]), [trace.axis for trace in self.traces])] = 0.0
        foot = self.box.unwhitened(y) if self.traces else self.at.u
        return (u - foot)[:, motion], shares


def fit_noise(problem: Problem, fit: Fit) -> tuple[np.ndarray, np.ndarray]:
    """Parameters (d,) with the noise parameters at their likeliest, and the joint covariance (d, d) that the curvature gives."""
    target, d = problem.target, len(fit.u)
    free = np.setdiff1d(np.arange(d), target.motion)
    normal = NormalEquations.of(target, fit.by_u, fit.by_error, fit.noise)
    covariance = np.diag(target.spread**2)
    covariance[np.ix_(target.motion, target.motion)] = np.linalg.inv(normal.schur)
    u = fit.u.copy()
    u[free] = target.centre[free]
    if not len(free) or not problem.noise.exact:
        return u, covariance
    values = problem.windows(fit.clean[None])

    def cost(z: np.ndarray) -> float:
        point = u.copy()
        point[free] = z
        likelihood = problem.noise.log_likelihood(values, problem.constrain(point[None]))[0]
        return float(-likelihood - problem.log_prior(point[None])[0])

    low, high = (target.centre + side * FARTHEST * target.spread for side in (-1, 1))
    found = minimize(cost, u[free], method="Nelder-Mead", bounds=list(zip(low[free], high[free], strict=True)), options={"xatol": 1e-3})
    u[free] = found.x
    covariance[np.ix_(free, free)] = np.linalg.inv(_curvature(cost, found.x, target.spread[free]))
    return u, covariance


def _curvature(cost: Callable[[np.ndarray], float], at: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Second differences, at least the prior's precision."""
    steps = np.diag(_CURVATURE_STEP * spread)
    k, centre = len(at), cost(at)
    out = np.empty((k, k))
    for i in range(k):
        for j in range(i + 1):
            if i == j:
                out[i, i] = (cost(at + steps[i]) - 2 * centre + cost(at - steps[i])) / steps[i, i] ** 2
            else:
                corners = cost(at + steps[i] + steps[j]) - cost(at + steps[i] - steps[j]) - cost(at - steps[i] + steps[j])
                out[i, j] = out[j, i] = (corners + cost(at - steps[i] - steps[j])) / (4 * steps[i, i] * steps[j, j])
    values, vectors = np.linalg.eigh(out)
    return (vectors * np.maximum(values, (1 / spread**2).min())) @ vectors.T


def expand(problem: Problem, fits: Sequence[Fit], covariances: Sequence[np.ndarray], names: Sequence[str]) -> list[Expansion]:
    """Expansions at fits whose derivatives are known."""
    target = problem.target
    labels = problem.experiment.channels
    out = []
    for fit, covariance in zip(fits, covariances, strict=True):
        normal = NormalEquations.of(target, fit.by_u, fit.by_error, fit.noise)
        box = Box.around(fit.u, covariance, target.centre, target.spread, RADIUS)
        summary = linear_summary(target, fit, target.channel, labels, [str(names[int(k)]) for k in target.motion])
        out.append(Expansion(fit, normal, box, summary))
    return out


def refit(problem: Problem, points: np.ndarray, errors: np.ndarray, near: Sequence[Fit]) -> list[Fit]:
    """Derivatives at points (n, d) with initial errors (n, windows, k) given, each ``near`` a fit: fits that did not move."""
    target = problem.target
    clean = problem.clean(points, errors)
    steps = np.stack([difference_steps(target, f.by_u, f.noise) for f in near])
    by_u, by_error = derivatives(problem.clean, target, points, errors, steps)
    out = []
    for u, e, f, a, b in zip(points, errors, clean, by_u, by_error, strict=True):
        value, noise = neg_log_posterior(target, u, e, f)
        out.append(Fit(u, e, np.nan_to_num(f), noise, value, np.nan_to_num(a), np.nan_to_num(b)))
    return out


def sensitivity(problem: Problem, at: Expansion) -> Callable[[np.ndarray], Sensitivity]:
    """Effect of the initial errors near an expansion, to first order in the parameters: call it with parameters u (n, d).

    Along ridges it is interpolated between their knots.
    """
    target, normal = problem.target, at.normal
    p, base = len(target.motion), _by_window(problem, at.at.by_error)
    if not p:
        # only the noise is unknown: nothing shifts
        return lambda u: Sensitivity(base, [np.zeros((0, *b.shape)) for b in base], np.zeros((len(u), 0)))
    root = np.linalg.cholesky(np.linalg.inv(normal.schur))
    reach = np.minimum(BEND, BEND_PRIOR / np.abs(root / target.spread[target.motion][:, None]).max(0))
    points = np.repeat(at.at.u[None], 2 * p, 0)
    for k in range(p):
        points[2 * k, target.motion] += reach[k] * root[:, k]
        points[2 * k + 1, target.motion] -= reach[k] * root[:, k]
    still = replace(target, motion=np.empty(0, int))
    _, bent = derivatives(problem.clean, still, points, np.repeat(at.at.errors[None], 2 * p, 0))
    slopes = np.nan_to_num((bent[0::2] - bent[1::2]) / (2 * reach[:, None, None]))
    changes = np.concatenate([slopes, *(trace.by_error - at.at.by_error for trace in at.traces)])
    used = [_by_window(problem, s) for s in changes]
    per_window = [np.stack([u[w] for u in used]) for w in range(target.windows)]

    def at_parameters(u: np.ndarray) -> Sensitivity:
        away, shares = at.away(u)
        return Sensitivity(base, per_window, np.concatenate([np.linalg.solve(root, away.T).T, *shares], 1))

    return at_parameters


def _by_window(problem: Problem, by_error: np.ndarray) -> list[np.ndarray]:
    """(D, q) as one (T_w, m, q) per window."""
    return [np.moveaxis(v, 0, -1) for v in problem.windows(by_error.T)]
