"""Local classifier two-sample test: can the truth be told from the estimator's draws, at the robot's own observation?

A linear discriminant on quadratic features of the parameters, whose coefficients depend linearly on the observation, is
trained to tell the truths of the fresh simulations from their draws, and applied to the posterior of the robot.

Why not sbi's ``LC2ST``: it is trained anew for each null trial, so that the p below 0.001 that a failure asks for take 6 s or
more (0.6 s per 100 trials with quadratic logistic regression), and it takes one draw per simulation. On the tests' toy, eight
seeds each of a posterior 1.5 times too narrow and of one 0.5 sd off, it gave p from 0.27 to 1 in the parameters as they are,
and 0 to 0.03 in the whitened coordinates used here, where this test gives 0.0002 every time: all draws count, and the
discriminant has a closed form, so that 4,000 trials cost 0.1 s.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit

from sbical.checks.base import ENOUGH, FAIL_P, WARN_P, Evidence, Finding, calibration_status, has_draws, listed
from sbical.checks.permutation_tests import means, p_value, pooled, standardised, swaps, whitened

NAME = "lc2st"

#: Leading directions of the summaries that the discriminant's coefficients depend on. More would be more local and less sensitive.
DIRECTIONS = 3
#: Draws at the observation that are classified, draws of each simulation that stand for its posterior, and rows of x_train used.
CLASSIFIED, PER_TRUTH, ROWS = 500, 100, 5000
#: Whitened coordinates bend towards this: quadratic features of heavy tails would drown the rest.
BEND = 4.0
#: What makes a significant difference matter: truths spread 1.28 times as wide (a 90 % range holds 80 %), or off by 0.4 sd.
SPREAD, SHIFT = 1.28, 0.4

THRESHOLD = (
    f"mean squared deviation of the classifier's probability from 1/2: warn at p < {WARN_P:g}; fail at p < {FAIL_P:g} where truths "
    f"spread {SPREAD:g} times as wide as the posterior or lie {SHIFT:g} sd off; too wide posteriors warn; at least {ENOUGH} simulations"
)
SOURCE = (
    "L-C2ST: Linhart, Gramfort and Rodrigues 2023, with a linear discriminant for the classifier. p by permutation: under exact "
    f"calibration the truth and its draws are exchangeable. Chance warns on {WARN_P:.0%} of exact posteriors (six such checks: at most "
    f"6 %) and fails at most {FAIL_P:.1%}. The limits are those of sbc: 90 % ranges that hold 80 %, 65 % of truths on one side."
)
NARROW = "ranges are too narrow for this observation: train on more simulations or with more ensemble members, and widen them before use"
BIASED = "the posterior of this observation lies to one side ({}, in sd of the posterior): train on more simulations"
WIDE = "ranges are wider than needed for this observation: safe, but more simulations would sharpen them"
SHAPE = "measurable, but neither too narrow, too wide nor off to one side by itself: more simulations help"
FEW = f"use at least {ENOUGH} fresh simulations for this test"


class _LocalTest(NamedTuple):
    """Differences between truths and draws at the observation: row 0 observed, n rows under exact calibration."""

    statistic: np.ndarray  # (1 + n,)
    shift: np.ndarray  # (1 + n, d): mean of the truths, in sd of the posterior
    spread: np.ndarray  # (1 + n,): mean square of the truths over that of the draws, less the shift


def applies(evidence: Evidence) -> bool:
    """Only an estimator that answers by itself is tested."""
    return has_draws(evidence)


def check(evidence: Evidence) -> Finding:
    """Test whether a local discriminant tells truths from draws at the observation better than under exact calibration."""
    local = _local(evidence)
    m, p = len(evidence.theta_u_fresh), p_value(local.statistic)
    shift, spread = local.shift[0], float(np.sqrt(max(local.spread[0], 0.0)))
    largest = np.abs(local.shift).max(axis=1)
    off = {n: float(s) for n, s in zip(evidence.names, shift, strict=True) if abs(s) > SHIFT} if p_value(largest) < WARN_P else {}
    narrow, wide = p_value(local.spread) < WARN_P, p_value(-local.spread) < WARN_P
    status = calibration_status(p, (narrow and spread > SPREAD) or bool(off), m)
    worst = int(np.argmax(np.abs(shift)))
    figure = (
        f"p = {p:.2g} on {m} fresh simulations; at this observation truths spread {spread:.2f} times as wide as the posterior and lie "
        f"at most {abs(shift[worst]):.2f} sd off ({evidence.names[worst]})"
    )
    remedies = []
    if p < WARN_P:
        remedies += [NARROW] if narrow else [WIDE] if wide else []
        remedies += [BIASED.format(listed(off, "{:+.2f}".format))] if off else []
        remedies = remedies or [SHAPE]
    if m < ENOUGH:
        remedies.append(FEW)
    values = {"p": p, "simulations": float(m), "spread": spread} | {
        f"{n}.shift": float(s) for n, s in zip(evidence.names, shift, strict=True)
    }
    return Finding(NAME, status, figure, THRESHOLD, SOURCE, "; ".join(remedies), values)


def _local(evidence: Evidence) -> _LocalTest:
    pool = pooled(evidence.theta_u_fresh, evidence.fresh_draws_u[:, :PER_TRUTH])
    d = pool.shape[2]
    features = _quadratic(whitened(pool))  # (m, members, F)
    square = features[..., d : 2 * d].mean()
    features -= features.mean(axis=1, keepdims=True)
    weights, chosen = _weights(evidence), swaps(*features.shape[:2])
    difference = means(features, chosen, weights)  # of the two classes' means at x_o
    flat = features.reshape(-1, features.shape[2])
    covariance = flat.T @ flat / len(flat)
    ridge = 1e-3 * np.diag(covariance).mean() * np.eye(len(covariance))
    direction = np.linalg.solve(covariance + ridge, difference.T)  # (F, 1 + n)
    own = _quadratic(whitened(evidence.posterior_u[None, :CLASSIFIED]))[0]
    odds = (own - own.mean(axis=0)) @ direction - 0.5 * np.sum(difference.T * direction, axis=0)
    statistic = np.mean((expit(odds) - 0.5) ** 2, axis=0)
    spread = 1 + (difference[:, d : 2 * d].mean(axis=1) - np.mean(difference[:, :d] ** 2, axis=1)) / square
    return _LocalTest(statistic, means(standardised(pool), chosen, weights), spread)


def _quadratic(z: np.ndarray) -> np.ndarray:
    """(m, n, 2d + d(d - 1)/2): coordinates z (m, n, d), their squares, their products."""
    z = BEND * np.tanh(z / BEND)
    rows, columns = np.triu_indices(z.shape[2], 1)
    return np.concatenate([z, z**2, z[..., rows] * z[..., columns]], axis=2)


def _weights(evidence: Evidence) -> np.ndarray:
    """(m,): weight of each fresh simulation at the observation; they sum to one, near ones count more (local linear regression).

    Directions are principal components of the summaries, scaled to the fresh simulations; an observation farther out than
    95 % of these is tested at their distance.
    """
    low, centre, high = np.quantile(evidence.x_train, [0.05, 0.5, 0.95], axis=0)
    scale = np.where(high > low, high - low, np.inf) / 3.29

    def bent(x: np.ndarray) -> np.ndarray:
        return np.tanh((x - centre) / scale / 3)

    rows = bent(evidence.x_train[:ROWS])
    _, vectors = np.linalg.eigh(np.cov(rows.T).reshape(rows.shape[1], -1))
    leading = vectors[:, -DIRECTIONS:]
    fresh, own = bent(evidence.x_fresh) @ leading, bent(evidence.x_o) @ leading
    middle = fresh.mean(axis=0)
    root = np.linalg.pinv(np.linalg.cholesky(np.cov(fresh.T, bias=True).reshape(len(middle), -1) + 1e-12 * np.eye(len(middle))))
    fresh, own = (fresh - middle) @ root.T, (own - middle) @ root.T
    limit = np.quantile(np.linalg.norm(fresh, axis=1), 0.95)
    own = own * min(1.0, limit / max(float(np.linalg.norm(own)), 1e-12))
    return (1 + fresh @ own) / len(fresh)
