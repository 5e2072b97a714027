"""TARP: are distances from random points to the truth what the posterior says, all parameters together?"""

from __future__ import annotations

import numpy as np

from sbical.checks.base import COVERAGE, ENOUGH, FAIL_P, SIDE, WARN_P, Evidence, Finding, calibration_status, has_draws, percent
from sbical.checks.permutation_tests import joint, means, p_value, pooled, ranks, swaps, whitened

NAME = "tarp"

#: Pairs of opposite reference points, how far out they are drawn [sd of the posterior, per coordinate], points of the curve.
PAIRS, FAR, POINTS = 10, 3.0, 19

THRESHOLD = (
    f"coverage against credibility, {2 * PAIRS} reference points: warn at p < {WARN_P:g}; fail at p < {FAIL_P:g} when the central 90 % of "
    f"distances hold fewer than {percent(COVERAGE)} of truths, or more than {percent(SIDE)} of truths lie on one side; "
    f"too wide posteriors warn; at least {ENOUGH} simulations"
)
SOURCE = (
    "Lemos et al. 2023. Reference points lie around each posterior, in its own standard coordinates (they may depend on the "
    "observation), the same ones for all simulations, so that a common bias does not average out. p by permutation: under exact "
    f"calibration the truth and its draws are exchangeable. Chance warns on {percent(WARN_P)} of exact posteriors (six such checks: at "
    f"most 6 %) and fails at most {percent(FAIL_P, 1)}. The limits are those of sbc."
)
REMEDIES = {
    "over-confident": "ranges are too narrow: train on more simulations or with more ensemble members, and widen them before use",
    "biased": "posteriors lean to one side of the truth: train on more simulations",
    "under-confident": "ranges are wider than needed: safe, but more simulations would sharpen them",
    "off in shape": "measurable, but neither too narrow, too wide nor biased as a whole: more simulations help",
}
FEW = f"use at least {ENOUGH} fresh simulations for this test"


def applies(evidence: Evidence) -> bool:
    """Only an estimator that answers by itself is tested."""
    return has_draws(evidence)


def check(evidence: Evidence) -> Finding:
    """Expected coverage of balls around random points that reach to the truth, against the share of draws that they hold."""
    pit = _credibility(whitened(pooled(evidence.theta_u_fresh, evidence.fresh_draws_u)))
    m = len(pit)
    chosen = swaps(m, pit.shape[1])
    levels = np.linspace(0, 1, POINTS + 2)[1:-1]
    below = np.stack([(pit <= level).mean(axis=2) for level in levels], axis=2)  # (m, L + 1, POINTS)
    curve = means(below, chosen)
    bend = (np.abs(curve - levels) / np.sqrt(levels * (1 - levels))).max(axis=1)
    # a width error moves both points of a pair alike, a bias moves them apart
    lean = np.abs(means(pit[..., :PAIRS] - pit[..., PAIRS:], chosen)).max(axis=1)
    p = p_value(joint(np.stack([bend, lean], axis=1)))
    inside = (np.abs(pit - 0.5) <= 0.45).mean(axis=2, keepdims=True)  # (m, L + 1, 1): share of reference points
    coverage = means(inside, chosen)[:, 0]
    above = (pit[:, 0] > 0.5).mean(axis=0)
    side = float((0.5 + np.abs(above[:PAIRS] - above[PAIRS:]) / 2).max())
    found = _words(coverage, lean, side) if p < WARN_P else []
    status = calibration_status(p, bool(coverage[0] < COVERAGE) or side > SIDE, m)
    says = f"{' and '.join(found)}: " if found else ""
    figure = (
        f"{says}p = {p:.2g} on {m} fresh simulations; central 90 % of distances hold {percent(coverage[0], 1)} of truths, "
        f"at most {percent(side)} of truths on one side"
    )
    remedy = "; ".join([*(REMEDIES[f] for f in found), *([FEW] if m < ENOUGH else [])])
    values = {"p": p, "simulations": float(m), "coverage90": float(coverage[0]), "side": side}
    return Finding(NAME, status, figure, THRESHOLD, SOURCE, remedy, values)


def _credibility(pool: np.ndarray) -> np.ndarray:
    """(m, L + 1, 2 PAIRS): share of the pool (m, L + 1, d) nearer to each reference point than the member; opposite points last."""
    points = FAR * np.random.default_rng(0).normal(size=(PAIRS, pool.shape[2]))
    # |z - r|² less |r|², which is common to all members
    square, cross = np.sum(pool**2, axis=2)[..., None], 2 * pool @ points.T
    return ranks(np.concatenate([square - cross, square + cross], axis=2))


def _words(coverage: np.ndarray, lean: np.ndarray, side: float) -> list[str]:
    """What is wrong, from statistics (1 + n,) whose first is the observed one; each at the level of a warning.

    A bias costs some coverage and a width error moves the two sides a little: of several words, those beyond the limits stay.
    """
    found = {
        "over-confident": p_value(-coverage) < WARN_P,
        "under-confident": p_value(coverage) < WARN_P,
        "biased": p_value(lean) < WARN_P,
    }
    words = [word for word, is_so in found.items() if is_so]
    small = {"over-confident": coverage[0] >= COVERAGE, "biased": side <= SIDE}
    return [w for w in words if not small.get(w, False)] or words or ["off in shape"]
