"""Statistics of parameter draws: central intervals, prior scores, contraction, principal directions."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri


def central_interval(draws: np.ndarray, mass: float) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper ends, each of the shape of one draw, of the central interval that holds ``mass`` of ``draws`` (n, ...)."""
    low, high = np.quantile(draws, [(1 - mass) / 2, (1 + mass) / 2], axis=0)
    return low, high


def prior_scores(prior: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Where values lie within the prior, in standard deviations of it: Φ⁻¹(F(value)), F the prior's marginal CDF.

    ``prior`` (N, d) draws, ``values`` (n, d) in the same units, returns (n, d). The prior itself scores N(0, 1) per
    parameter, whatever its units or shape, so scores of different parameters compare. Limited to the N draws: nothing
    scores beyond ±Φ⁻¹(1 - 1/2N).
    """
    n = len(prior)
    levels = (np.arange(n) + 0.5) / n
    columns = [np.interp(values[:, i], np.sort(prior[:, i]), levels) for i in range(prior.shape[1])]
    return ndtri(np.stack(columns, axis=1))


def contraction(prior: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """(d,): 1 - Var(posterior)/Var(prior) of the prior scores: 0 nothing learned, 1 known exactly.

    ``prior`` (N, d) and ``draws`` (n, d) in the same units. Posterior contraction of Schad, Betancourt and Vasishth
    2021, taken in scores so that a log-uniform prior counts decades rather than the upper end of its range.
    """
    return 1 - np.var(prior_scores(prior, draws), axis=0) / np.var(prior_scores(prior, prior), axis=0)


def principal_directions(rows: np.ndarray, most: int, least: float, relative: float = 1e-12) -> tuple[np.ndarray, np.ndarray]:
    """At most ``most`` orthonormal directions (k, D) in which the rows (n, D) spread, and the sum of squares (k,) along each, descending.

    Directions along which it is not above ``least``, nor above ``relative`` of the largest, are left out. For far fewer rows than columns:
    found through the small Gram matrix. A direction has no sign of its own; its largest entry is made positive, so that the same
    rows give the same directions everywhere.
    """
    values, vectors = np.linalg.eigh(rows @ rows.T)
    order = np.argsort(values)[::-1][:most]
    order = order[values[order] > max(least, relative * values.max())]
    directions = (rows.T @ (vectors[:, order] / np.sqrt(values[order]))).T
    return values[order], directions * np.sign(directions[np.arange(len(order)), np.abs(directions).argmax(1)])[:, None]
