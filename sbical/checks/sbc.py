"""Simulation-based calibration: on simulations with known truth, are the ranges as often right as they say?"""

from __future__ import annotations

import numpy as np

from sbical.checks.base import COVERAGE, ENOUGH, FAIL_P, SIDE, WARN_P, Evidence, Finding, calibration_status, has_draws, listed, percent
from sbical.checks.permutation_tests import ecdfs, p_value, pooled, ranks, swaps

NAME = "sbc"

#: Points of the rank ECDF.
POINTS = 41

THRESHOLD = (
    f"rank uniformity, all parameters jointly: warn at p < {WARN_P:g}; fail at p < {FAIL_P:g} with a 90 % range that holds fewer than "
    f"{percent(COVERAGE)} of truths or a median with more than {percent(SIDE)} of them on one side; "
    f"too wide ranges warn; at least {ENOUGH} simulations"
)
SOURCE = (
    "Talts et al. 2018; simultaneous ECDF bands after Säilynoja, Bürkner and Vehtari 2022, here by permutation: under exact calibration "
    f"the truth and its posterior draws are exchangeable, which keeps correlations and ties. Chance warns on {percent(WARN_P)} of exact "
    f"posteriors (six such checks: at most 6 %) and fails at most {percent(FAIL_P, 1)}. No trained network is exact, so with enough "
    "simulations p alone would fail every one: the two limits say what matters (reasoned)."
)


def applies(evidence: Evidence) -> bool:
    """Only an estimator that answers by itself is tested."""
    return has_draws(evidence)


def check(evidence: Evidence) -> Finding:
    """Largest standardised deviation of the rank ECDFs over all parameters, against its permutation distribution."""
    pool = pooled(evidence.theta_u_fresh, evidence.fresh_draws_u)
    pit = ranks(pool)  # (m, L + 1, d)
    m = len(pit)
    levels = np.linspace(0, 1, POINTS + 2)[1:-1]
    deviation = np.abs(ecdfs(pit, swaps(m, pit.shape[1]), levels) - levels) / np.sqrt(levels * (1 - levels) / m)
    p = p_value(deviation.max(axis=(1, 2)))
    coverage = (np.abs(pit[:, 0] - 0.5) <= 0.45).mean(axis=0)
    above = (pit[:, 0] > 0.5).mean(axis=0)
    narrow = {n: float(c) for n, c in zip(evidence.names, coverage, strict=True) if c < COVERAGE}
    biased = {n: float(a) for n, a in zip(evidence.names, above, strict=True) if max(a, 1 - a) > SIDE}
    if p >= WARN_P:
        narrow, biased = {}, {}  # deviations of the size that chance alone explains
    status = calibration_status(p, bool(narrow or biased), m)
    lowest = int(np.argmin(coverage))
    figure = (
        f"p = {p:.2g} on {m} fresh simulations; 90 % ranges hold the truth in {percent(coverage.mean(), 1)} of them "
        f"(lowest: {evidence.names[lowest]} {percent(coverage[lowest], 1)})"
    )
    values = {"p": p, "simulations": float(m), "coverage90": float(coverage.mean())}
    values |= {f"{n}.coverage90": float(c) for n, c in zip(evidence.names, coverage, strict=True)}
    remedy = "" if status == "pass" else _remedy(p, m, narrow, biased, float(coverage.mean()))
    return Finding(NAME, status, figure, THRESHOLD, SOURCE, remedy, values)


def _remedy(p: float, m: int, narrow: dict[str, float], biased: dict[str, float], coverage: float) -> str:
    parts = []
    if narrow:
        parts.append(
            f"ranges too narrow (90 % ranges hold {listed(narrow, percent)}): train on more simulations or with more ensemble members"
        )
    if biased:
        parts.append(f"medians lean to one side (truth above: {listed(biased, percent)}): train on more simulations")
    if not parts and p < WARN_P:
        more = "ranges are wider than needed: safe, but more simulations would sharpen them"
        parts.append(more if coverage > 0.9 else "measurable, but no parameter is beyond the limits of a failure: more simulations help")
    if m < ENOUGH:
        parts.append(f"use at least {ENOUGH} fresh simulations for this test")
    return "; ".join(parts)
