"""Posteriors of known quality are judged right by every test of calibration; rates over many seeds: ``benchmarks/checks.py``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sbical.checks import expected_coverage, lc2st, sbc, tarp
from sbical.checks.base import Check, Evidence

CHECKS: tuple[Check, ...] = (sbc, tarp, expected_coverage, lc2st)
WRONG = {"over-confident": {"factor": 1 / 1.5}, "biased": {"shift": 0.5}, "conservative": {"factor": 1.5}}

each = pytest.mark.parametrize("member", CHECKS, ids=lambda c: c.NAME)


@pytest.fixture(scope="module")
def exact(build_evidence: Callable[..., Evidence]) -> list[Evidence]:
    return [build_evidence(seed) for seed in range(40)]


@each
def test_exact_posterior_passes(member: Check, exact: list[Evidence]) -> None:
    statuses = [member.check(e).status for e in exact]
    assert statuses.count("pass") >= 38  # 39.6 expected at 1 %; fewer than 38 in one of 130 such sets
    assert "fail" not in statuses


@each
@pytest.mark.parametrize("seed", range(3))
def test_overconfident_posterior_fails(member: Check, build_evidence: Callable[..., Evidence], seed: int) -> None:
    assert member.check(build_evidence(seed, **WRONG["over-confident"])).status == "fail"


@each
@pytest.mark.parametrize("seed", range(3))
def test_biased_posterior_is_flagged(member: Check, build_evidence: Callable[..., Evidence], seed: int) -> None:
    if member is expected_coverage:  # regions around a wrong centre lose little coverage: it takes 0.7 sd to be seen every time
        assert member.check(build_evidence(seed, shift=0.7)).status != "pass"
    else:
        assert member.check(build_evidence(seed, **WRONG["biased"])).status == "fail"


@each
@pytest.mark.parametrize("seed", range(3))
def test_conservative_posterior_warns_and_never_fails(member: Check, build_evidence: Callable[..., Evidence], seed: int) -> None:
    finding = member.check(build_evidence(seed, **WRONG["conservative"]))
    assert finding.status == "warn"
    assert "wider than needed" in finding.remedy or "larger than needed" in finding.remedy


@each
def test_few_simulations_warn(member: Check, build_evidence: Callable[..., Evidence]) -> None:
    finding = member.check(build_evidence(1, fresh=60))
    assert finding.status == "warn"
    assert finding.remedy == "use at least 200 fresh simulations for this test"
