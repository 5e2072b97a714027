"""Finds the posterior modes by Gauss-Newton from the prior draws nearest to the recording; negligible modes are dropped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from sbical.laplace.expansion import Expansion, Problem, expand, fit_noise
from sbical.laplace.gauss_newton import Fit, NormalEquations, Stopping, fit, neg_log_posterior
from sbical.laplace.ridge_tracing import on_ridge, traced

#: Starts that are followed, and how many of these to the end.
STARTS, FINALISTS = 8, 4
#: Noise of every channel, at least, while starts are followed for some iterations each [standard deviations of its motion]. Fitted by what
#: is left of each channel from the beginning, a channel that is met early outweighs the others, and nothing else moves any more.
FLOORS, SCOUTING = (0.1, 0.03, 0.01, 0.003, 0.001), 4
#: Fits that are followed to the end; a start that will end this much behind the best [nats] is given up.
PATIENT = Stopping(iterations=25, behind=30.0)
#: How often a fit is taken up again that did not stop at rest, and what it must have gained for that [nats].
AGAIN, GAINED = 4, 0.1
#: Points of the scan along each parameter, and how far it reaches [prior standard deviations].
SCANNED, REACH = 25, 2.4
#: Starts differ by at least this in some parameter [prior standard deviations].
APART = 0.7
#: Fits closer than this are one mode [posterior standard deviations, per parameter].
SAME = 3.0
#: A mode whose evidence is this much below the best one's [nats] holds under 1e-5 of the posterior.
NEGLIGIBLE = 12.0


def find_modes(problem: Problem, pilot_u: np.ndarray, pilot: np.ndarray, names: Sequence[str]) -> tuple[list[Expansion], np.ndarray]:
    """Expansions at all modes that matter, best first, and the share of the posterior (Laplace) that each holds.

    ``pilot_u`` (n, d) are draws of the prior and ``pilot`` (n, D) their clean trajectories. No expansion means that nothing fits.
    """
    fits = _finished(problem, _followed(problem, pilot_u, pilot))
    if not fits:
        return [], np.empty(0)
    others = _scan(problem, fits[0])
    if len(others):
        found = fit(problem.clean, problem.target, others, None, replace(PATIENT, known=fits[0].neg_log_posterior), roughly=True)
        fits = _distinct(problem, sorted([*fits, *_finished(problem, found)], key=lambda f: f.neg_log_posterior), min)
    evidence = np.array([_log_evidence(problem, f) for f in fits])
    kept = [f for f, e in zip(fits, evidence, strict=True) if e > evidence.max() - NEGLIGIBLE]
    shares = np.exp(evidence[evidence > evidence.max() - NEGLIGIBLE] - evidence.max())
    settled = [fit_noise(problem, f) for f in kept]
    moved = [Fit(u, f.errors, f.clean, f.noise, f.neg_log_posterior, f.by_u, f.by_error) for f, (u, _) in zip(kept, settled, strict=True)]
    modes: list[Expansion] = []
    own: list[float] = []
    for expansion, share in zip(expand(problem, moved, [c for _, c in settled], names), shares, strict=True):
        # a fit that stopped on its way along a ridge is no mode of its own
        if not any(on_ridge(other, expansion.at.u, SAME) for other in modes):
            modes.append(traced(problem, expansion))
            own.append(float(share))
    return modes, np.array(own) / sum(own)


def _followed(problem: Problem, pilot_u: np.ndarray, pilot: np.ndarray) -> list[Fit]:
    """Starts from the pilot, followed while what is asked of them gets finer; those left that differ, best first."""
    target = problem.target
    size = np.array([np.std(target.observed[target.channel == c]) for c in range(len(target.highest))])

    def coarse(floor: float) -> Problem:
        # a start that misses by more than any noise must not be held to it: the prior would weigh nothing, and steps end at its edge
        lowest = np.maximum(target.lowest, floor * size)
        return replace(problem, target=replace(target, lowest=lowest, highest=np.full_like(target.highest, np.inf)))

    points = _starts(coarse(FLOORS[0]), pilot_u, pilot)
    errors: np.ndarray | None = None
    fits: list[Fit] = []
    for floor in FLOORS if len(points) else ():
        at = coarse(floor)
        fits = _distinct(at, fit(at.clean, at.target, points, errors, Stopping(SCOUTING), roughly=True), max)[:FINALISTS]
        if not fits:
            return []
        points, errors = np.stack([f.u for f in fits]), np.stack([f.errors for f in fits])
    return fit(problem.clean, coarse(0.0).target, points, errors, PATIENT, roughly=True) if fits else []


def _finished(problem: Problem, fits: list[Fit]) -> list[Fit]:
    """Fits at rest and distinct, best first."""
    for _ in range(AGAIN if fits else 0):
        before = fits[0].neg_log_posterior
        points, errors = np.stack([f.u for f in fits]), np.stack([f.errors for f in fits])
        found = fit(problem.clean, problem.target, points, errors, PATIENT)
        fits = _distinct(problem, found, min)
        if not fits or fits[0].neg_log_posterior > before - GAINED:
            break
    return fits


def _starts(problem: Problem, pilot_u: np.ndarray, pilot: np.ndarray) -> np.ndarray:
    """Draws near the recording that differ from each other."""
    target = problem.target
    none = np.zeros((target.windows, target.widths))
    height = np.array([neg_log_posterior(target, u, none, f)[0] for u, f in zip(pilot_u, pilot, strict=True)])
    order = np.argsort(height)
    z = ((pilot_u - target.centre) / target.spread)[:, target.motion]
    chosen: list[int] = []
    for row in order[: max(STARTS, len(order) // 5)]:
        if np.isfinite(height[row]) and all(np.abs(z[row] - z[other]).max(initial=0.0) > APART for other in chosen):
            chosen.append(int(row))
        if len(chosen) == STARTS:
            break
    return pilot_u[chosen]


def _scan(problem: Problem, best: Fit) -> np.ndarray:
    """(s, d): where else along single parameters the recording is nearly met, everything else as in the best fit.

    A mode that differs in one parameter (a delay by a period of the command, an offset by a turn) is found for certain, which starts at
    random prior draws do not promise.
    """
    target, d = problem.target, len(best.u)
    steps = np.linspace(-REACH, REACH, SCANNED)
    points = np.repeat(best.u[None, None], len(target.motion), 0).repeat(SCANNED, 1)
    for i, column in enumerate(target.motion):
        points[i, :, column] = target.centre[column] + steps * target.spread[column]
    errors = np.repeat(best.errors[None], SCANNED * len(target.motion), 0)
    clean = problem.clean(points.reshape(-1, d), errors) if len(errors) else np.empty((0, len(target.observed)))
    height = np.array([neg_log_posterior(target, u, e, f)[0] for u, e, f in zip(points.reshape(-1, d), errors, clean, strict=True)])
    height = height.reshape(-1, SCANNED)
    walls = np.pad(height, ((0, 0), (1, 1)), constant_values=np.inf)
    lowest = (height < walls[:, :-2]) & (height <= walls[:, 2:]) & np.isfinite(height)
    away = np.abs(points[range(len(height)), :, target.motion] - best.u[target.motion][:, None]) / target.spread[target.motion][:, None]
    rows = np.flatnonzero((lowest & (away > APART / 2)).ravel())
    return points.reshape(-1, d)[rows[np.argsort(height.ravel()[rows])][:FINALISTS]]


def _distinct(problem: Problem, fits: Sequence[Fit], view: Callable[[float, float], float]) -> list[Fit]:
    """The best fit of each mode; ``fits`` best first. Two fits are one if they are near each other in the eyes of both (``view``
    max: a fit on its way sees little yet) or of either (min: fits that stopped along a ridge).
    """
    kept: list[tuple[Fit, np.ndarray]] = []
    motion = problem.target.motion
    for f in fits:
        precision = NormalEquations.of(problem.target, f.by_u, f.by_error, f.noise).schur
        same = False
        for other, its in kept:
            away = (f.u - other.u)[motion]
            same |= view(float(away @ precision @ away), float(away @ its @ away)) < SAME**2 * len(motion)
        if not same:
            kept.append((f, precision))
    return [f for f, _ in kept]


def _log_evidence(problem: Problem, f: Fit) -> float:
    """Laplace's approximation, up to what all modes share; initial errors integrated out."""
    normal = NormalEquations.of(problem.target, f.by_u, f.by_error, f.noise)
    return -f.neg_log_posterior - 0.5 * float(np.linalg.slogdet(normal.schur)[1] + np.linalg.slogdet(normal.inner)[1].sum())
