"""Simulation-based calibration: on simulations with known truth, are the ranges as often right as they say?"""

from __future__ import annotations

import numpy as np

from sbical.checks.base import Evidence, Finding, Status, listed, percent

NAME = "sbc"

#: p-values of the joint rank test.
WARN_P, FAIL_P = 0.05, 0.001
#: What makes a significant deviation matter: coverage of a 90 % range (0.8: sd too small by 22 %), and the share of truths on one
#: side of the median (0.65: off by 0.4 sd).
COVERAGE, SIDE = 0.8, 0.65
ENOUGH = 200
#: Null replicates (the smallest p is 1/(1 + NULL)) and points of the rank ECDF.
NULL, POINTS = 4000, 41

THRESHOLD = (
    f"rank uniformity, all parameters jointly: warn at p < {WARN_P:g}; fail at p < {FAIL_P:g} with a 90 % range that holds fewer than "
    f"{percent(COVERAGE)} of truths or a median with more than {percent(SIDE)} of them on one side; "
    f"too wide ranges warn; at least {ENOUGH} simulations"
)
SOURCE = (
    "Talts et al. 2018; simultaneous ECDF bands after Säilynoja, Bürkner and Vehtari 2022, here by permutation: under exact calibration "
    "the truth and its posterior draws are exchangeable, which keeps correlations and ties. No trained network is exactly calibrated, so "
    "with enough simulations p alone would fail every one: the two limits say what matters (reasoned)."
)


def check(evidence: Evidence) -> Finding:
    """Largest standardised deviation of the rank ECDFs over all parameters, against its permutation distribution."""
    pool = np.concatenate([evidence.theta_u_fresh[:, None], evidence.fresh_draws_u], axis=1)
    pit = _ranks(pool)  # (m, L + 1, d)
    m = len(pit)
    rng = np.random.default_rng(0)
    observed = _deviation(pit[:, 0])
    null = np.array([_deviation(pit[np.arange(m), rng.integers(0, pit.shape[1], m)]) for _ in range(NULL)])
    p = float((1 + np.sum(null >= observed)) / (1 + NULL))
    coverage = (np.abs(pit[:, 0] - 0.5) <= 0.45).mean(axis=0)
    above = (pit[:, 0] > 0.5).mean(axis=0)
    narrow = {n: float(c) for n, c in zip(evidence.names, coverage, strict=True) if c < COVERAGE}
    biased = {n: float(a) for n, a in zip(evidence.names, above, strict=True) if max(a, 1 - a) > SIDE}
    status: Status = "pass" if p >= WARN_P else "fail" if p < FAIL_P and (narrow or biased) else "warn"
    if p >= WARN_P:
        narrow, biased = {}, {}  # deviations of the size that chance alone explains
    if m < ENOUGH and status == "pass":
        status = "warn"
    lowest = int(np.argmin(coverage))
    figure = (
        f"p = {p:.2g} on {m} fresh simulations; 90 % ranges hold the truth in {percent(coverage.mean(), 1)} of them "
        f"(lowest: {evidence.names[lowest]} {percent(coverage[lowest], 1)})"
    )
    values = {"p": p, "simulations": float(m), "coverage90": float(coverage.mean())}
    values |= {f"{n}.coverage90": float(c) for n, c in zip(evidence.names, coverage, strict=True)}
    remedy = "" if status == "pass" else _remedy(p, m, narrow, biased, float(coverage.mean()))
    return Finding(NAME, status, figure, THRESHOLD, SOURCE, remedy, values)


def _ranks(pool: np.ndarray) -> np.ndarray:
    """(m, L + 1, d) in: each member's rank among its simulation's L + 1, as a mid-rank in (0, 1)."""
    order = np.argsort(pool, axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.broadcast_to(np.arange(pool.shape[1])[None, :, None], pool.shape), axis=1)
    return (ranks + 0.5) / pool.shape[1]


def _deviation(pit: np.ndarray) -> float:
    """Largest |ECDF - uniform| in units of its pointwise standard deviation, over points and parameters; ``pit`` (m, d)."""
    m = len(pit)
    levels = np.linspace(0, 1, POINTS + 2)[1:-1]
    ecdf = np.stack([np.searchsorted(np.sort(column), levels, side="right") for column in pit.T]) / m
    return float(np.max(np.abs(ecdf - levels) / np.sqrt(levels * (1 - levels) / m)))


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
