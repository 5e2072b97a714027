"""Do the estimator's densest regions hold the truth as often as they say, all parameters together?"""

from __future__ import annotations

import numpy as np

from sbical.checks.base import COVERAGE, ENOUGH, FAIL_P, WARN_P, Evidence, Finding, calibration_status, percent
from sbical.exchangeability import ecdfs, p_value, pooled, ranks, swaps

NAME = "expected_coverage"

LEVELS = np.array([0.5, 0.8, 0.9, 0.95])

THRESHOLD = (
    f"share of truths in the 50, 80, 90 and 95 % regions: warn outside simultaneous {percent(1 - WARN_P)} bands; fail at p < {FAIL_P:g} "
    f"with fewer than {percent(COVERAGE)} in the 90 % region; too many only warn; at least {ENOUGH} simulations"
)
SOURCE = (
    "Expected coverage of highest-density regions: Hermans et al. 2022. Bands by permutation: under exact calibration the truth and its "
    "draws are exchangeable, all draws of one truth being one cluster. "
    f"Chance warns on {percent(WARN_P)} of exact posteriors (five such checks: at most 5 %) and fails at most {percent(FAIL_P, 1)}. "
    "Reasoned limit: below it a 90 % region misses twice as often as it says."
)
NARROW = "joint regions are too small or off: train on more simulations or with more ensemble members, and widen ranges before using them"
WIDE = "joint regions are larger than needed: safe, but more simulations would sharpen them"
FEW = f"use at least {ENOUGH} fresh simulations for this test"


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
    status = calibration_status(p, bool(mine[2] < COVERAGE), m)
    figure = f"p = {p:.2g} on {m} fresh simulations; " + ", ".join(
        f"{percent(level)} region holds {percent(c, 1)} ({percent(a)} to {percent(b)})"
        for level, c, a, b in zip(LEVELS, mine, low, high, strict=True)
    )
    remedies = [NARROW if (mine - exact).sum() < 0 else WIDE] if p < WARN_P else []
    values = {"p": p, "simulations": float(m)} | {f"coverage{100 * v:.0f}": float(c) for v, c in zip(LEVELS, mine, strict=True)}
    return Finding(NAME, status, figure, THRESHOLD, SOURCE, "; ".join([*remedies, *([FEW] if m < ENOUGH else [])]), values)
