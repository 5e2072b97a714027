"""Do the estimator's densest regions hold the truth as often as they say, all parameters together?"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri
from scipy.stats import chi2

from sbical.checks.base import COVERAGE, ENOUGH, FAIL_P, WARN_P, Evidence, Finding, calibration_status, has_draws, percent
from sbical.checks.permutation_tests import ecdfs, p_value, pooled, ranks, swaps

NAME = "expected_coverage"

LEVELS = np.array([0.5, 0.8, 0.9, 0.95])
#: What makes too small a region matter: every sd too small by 22 %, as in sbc. A 90 % range of one parameter then holds 80 %.
RATIO = float(ndtri((1 + COVERAGE) / 2) / ndtri(0.95))


def limit(parameters: int) -> float:
    """Coverage of the 90 % region of a Gaussian posterior whose every standard deviation is RATIO times what it should be."""
    return float(chi2.cdf(RATIO**2 * chi2.ppf(0.9, parameters), parameters))


THRESHOLD = (
    f"share of truths in the 50, 80, 90 and 95 % regions: warn outside simultaneous {percent(1 - WARN_P)} bands; fail at p < {FAIL_P:g} "
    f"with fewer in the 90 % region than if every sd were {percent(1 - RATIO)} too small (one parameter: {percent(limit(1))}, four: "
    f"{percent(limit(4))}, nine: {percent(limit(9))}); too many only warn; at least {ENOUGH} simulations"
)
SOURCE = (
    "Expected coverage of highest-density regions: Hermans et al. 2022. Bands by permutation: under exact calibration the truth and its "
    "draws are exchangeable, all draws of one truth being one cluster. "
    f"Chance warns on {percent(WARN_P)} of exact posteriors (six such checks: at most 6 %) and fails at most {percent(FAIL_P, 1)}. "
    "Reasoned limit: that of sbc, which is a lower coverage where errors of many parameters meet in one region."
)
NARROW = "joint regions are too small or off: train on more simulations or with more ensemble members, and widen ranges before using them"
WIDE = "joint regions are larger than needed: safe, but more simulations would sharpen them"
FEW = f"use at least {ENOUGH} fresh simulations for this test"


def applies(evidence: Evidence) -> bool:
    """Only an estimator that answers by itself is tested."""
    return has_draws(evidence)


def check(evidence: Evidence) -> Finding:
    """Share of truths within the highest-density region of each level; a truth's level is the share of its draws that are denser."""
    pit = ranks(-pooled(evidence.fresh_log_q, evidence.fresh_draws_log_q)[..., None])  # (m, L + 1, 1)
    m = len(pit)
    covered = ecdfs(pit, swaps(m, pit.shape[1]), LEVELS)[:, 0]  # (1 + n, 4)
    exact, spread = covered[1:].mean(axis=0), np.maximum(covered[1:].std(axis=0), 1e-9)
    deviation = (np.abs(covered - exact) / spread).max(axis=1)
    p = p_value(deviation)
    half = np.quantile(deviation[1:], 1 - WARN_P) * spread
    low, high = np.maximum(exact - half, 0), np.minimum(exact + half, 1)
    mine = covered[0]
    status = calibration_status(p, bool(mine[2] < limit(len(evidence.names))), m)
    figure = f"p = {p:.2g} on {m} fresh simulations; " + ", ".join(
        f"{percent(level)} region holds {percent(c, 1)} ({percent(a)} to {percent(b)})"
        for level, c, a, b in zip(LEVELS, mine, low, high, strict=True)
    )
    remedies = [NARROW if (mine - exact).sum() < 0 else WIDE] if p < WARN_P else []
    values = {"p": p, "simulations": float(m)} | {f"coverage{100 * v:.0f}": float(c) for v, c in zip(LEVELS, mine, strict=True)}
    return Finding(NAME, status, figure, THRESHOLD, SOURCE, "; ".join([*remedies, *([FEW] if m < ENOUGH else [])]), values)
