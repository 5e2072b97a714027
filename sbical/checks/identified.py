"""Combinations of parameters (products, ratios, sums) that the data determine although no single member is determined.

Recordings often know a product (mass times lever arm) or a ratio (stiffness over damping) and neither factor: ranges read
off one at a time then look far too wide, and drawn independently they break what was learned.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

import numpy as np

from sbical.checks.base import Evidence, Finding, percent

NAME = "identified"

#: A member is not determined by itself while its posterior sd is above this share of the prior's; a combination is below that.
LOOSE, TIGHT = 0.5, 0.25
#: Members of one combination; longer ones say little to a reader.
MOST = 4
#: A simple name is used where what it names varies at most this many times as much as the sharpest combination.
SIMPLE = 2.0
#: Directions count as new when at least this share of their squared length is not made of those already named.
NEW = 0.25

THRESHOLD = (
    f"posterior sd over the prior's: warn for a combination of up to {MOST} parameters below {TIGHT:g}, each of its members being "
    f"above {LOOSE:g}"
)
SOURCE = (
    "Directions of smallest posterior variance relative to the prior's (generalised eigenvectors: Spantini et al. 2015), in logarithms "
    "where the prior is less skewed in them. Reasoned limits: such members are correlated by more than 0.75, so that ranges drawn "
    "independently hold mostly what the recordings rule out."
)


class _Space(NamedTuple):
    """Coordinates in which the combinations are straight lines: logarithms or values, over the prior's standard deviation."""

    names: tuple[str, ...]
    units: tuple[str, ...]
    log: np.ndarray  # (d,) bool
    scale: np.ndarray  # (d,): standard deviation of the prior, of logarithms or in SI units
    prior: np.ndarray  # (d, d): covariances
    posterior: np.ndarray  # (d, d)

    def variance(self, direction: np.ndarray) -> float:
        """Posterior variance over the prior's, along a direction (d,)."""
        return float(direction @ self.posterior @ direction / (direction @ self.prior @ direction))


def check(evidence: Evidence) -> Finding:
    """Name the combinations of loose parameters that are tight, the sharpest ones first, none of them following from the others."""
    space = _space(evidence)
    alone = np.diag(space.posterior) / np.diag(space.prior)
    loose = np.flatnonzero(alone > LOOSE**2)
    found: list[np.ndarray] = []
    for direction in _directions(space, loose):
        if _new(direction, found):
            found.append(direction)
    values = {n: float(np.sqrt(v)) for n, v in zip(space.names, alone, strict=True)}
    if not found:
        figure = (
            "no combination is determined whose members are not" if len(loose) > 1 else "at most one parameter is not determined by itself"
        )
        return Finding(NAME, "pass", figure, THRESHOLD, SOURCE, "", values)
    named = [(_name(space, d), space.variance(d) ** 0.5) for d in found]
    figure = "; ".join(f"only {n} is determined (sd {percent(s, 1)} of the prior's), none of its members alone" for n, s in named)
    remedy = (
        "use the joint draws (npz, sample), not independent ranges; or fix one member of each from a data sheet, or record motions that "
        "tell them apart"
    )
    return Finding(NAME, "warn", figure, THRESHOLD, SOURCE, remedy, values | dict(named))


def _space(evidence: Evidence) -> _Space:
    prior, posterior = evidence.prior, evidence.posterior
    log = (prior > 0).all(axis=0) & (posterior > 0).all(axis=0)
    logged = np.log(np.where(log, prior, 1.0))
    log &= np.abs(_skewness(logged)) < np.abs(_skewness(prior))
    before, after = (np.where(log, np.log(np.where(log, x, 1.0)), x) for x in (prior, posterior))
    scale = before.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    return _Space(evidence.names, evidence.units, log, scale, _covariance(before / scale), _covariance(after / scale))


def _covariance(x: np.ndarray) -> np.ndarray:
    """(d, d), a little added to the diagonal so that a constant parameter does not make it singular."""
    return np.cov(x.T).reshape(x.shape[1], -1) + 1e-12 * np.eye(x.shape[1])


def _skewness(x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(axis=0)
    return (centred**3).mean(axis=0) / np.maximum((centred**2).mean(axis=0), 1e-100) ** 1.5


def _directions(space: _Space, loose: np.ndarray) -> Iterator[np.ndarray]:
    """Tight directions (d,) among loose parameters: pairs before triples, sharpest first within a size."""
    for size in range(2, MOST + 1):
        tight = []
        for members in combinations(loose.tolist(), size):
            sharpest = _sharpest(space, np.array(members))
            if space.variance(sharpest) < TIGHT**2:
                tight.append(_simplified(space, sharpest))
        yield from sorted(tight, key=space.variance)


def _sharpest(space: _Space, members: np.ndarray) -> np.ndarray:
    """(d,): direction within the members' coordinates of the smallest posterior variance relative to the prior's."""
    block = np.ix_(members, members)
    root = np.linalg.inv(np.linalg.cholesky(space.prior[block]))
    _, vectors = np.linalg.eigh(root @ space.posterior[block] @ root.T)
    direction = np.zeros(len(space.names))
    direction[members] = root.T @ vectors[:, 0]
    return direction


def _new(direction: np.ndarray, found: list[np.ndarray]) -> bool:
    """Whether a direction says something that those found do not."""
    if not found:
        return True
    basis, _ = np.linalg.qr(np.stack(found, axis=1))
    unit = direction / np.linalg.norm(direction)
    return float(np.sum((unit - basis @ (basis.T @ unit)) ** 2)) > NEW


def _comparable(space: _Space, direction: np.ndarray) -> bool:
    """Whether a sum of the members themselves, or of their logarithms, has a meaning."""
    members = np.flatnonzero(direction)
    return bool(space.log[members].all()) or (not space.log[members].any() and len({space.units[i] for i in members}) == 1)


def _simplified(space: _Space, direction: np.ndarray) -> np.ndarray:
    """The direction with small whole weights (of logarithms: exponents), where these describe it nearly as well; else as it was."""
    if not _comparable(space, direction):
        return direction
    weights = direction / space.scale
    weights = weights / np.abs(weights).max()
    for most in (1, 2, 3):
        whole = np.where(direction != 0, np.round(most * weights), 0.0)
        if np.array_equal(whole != 0, direction != 0) and space.variance(whole * space.scale) <= SIMPLE * space.variance(direction):
            return whole * space.scale
    return direction


def _name(space: _Space, direction: np.ndarray) -> str:
    """A product or ratio of powers, a sum or difference, or, without such a name, weights in standard deviations of the prior."""
    weights = direction / space.scale
    members = np.flatnonzero(direction)
    whole = np.allclose(weights[members], np.round(weights[members]), atol=1e-9)
    if whole and _comparable(space, direction):
        # the way round that has more members with a plus; in a tie, the first one has it
        balance = np.sign(weights).sum() or np.sign(weights[members[0]])
        weights = np.round(weights * np.sign(balance))
        if space.log[members].all():
            return _powers(space, weights)
        terms = [(weights[i], space.names[i]) for i in members]
        return _sum([(w, n if abs(w) == 1 else f"{abs(w):g} {n}") for w, n in terms])
    unit = direction / np.linalg.norm(direction)
    unit = unit * np.sign(unit[members[0]])
    terms = [(unit[i], f"{abs(unit[i]):.1f} {'log ' if space.log[i] else ''}{space.names[i]}") for i in members]
    return f"the combination {_sum(terms)} (each in standard deviations of its prior)"


def _sum(terms: list[tuple[float, str]]) -> str:
    text = " ".join(f"{'+' if w > 0 else '−'} {t}" for w, t in terms)
    return text.removeprefix("+ ")


def _powers(space: _Space, weights: np.ndarray) -> str:
    def factors(sign: int) -> str:
        parts = [(n, round(sign * w)) for n, w in zip(space.names, weights, strict=True) if sign * w > 0]
        return " × ".join(n if w == 1 else f"{n}^{w}" for n, w in parts)

    above, below = factors(1), factors(-1)
    if not below:
        return f"the product {above}"
    many = " × " in below
    return f"the ratio {above} / {f'({below})' if many else below}"
