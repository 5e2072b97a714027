from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from sbical.checks import correction
from sbical.checks.base import Evidence, Finding
from sbical.inference.importance_weights import ImportanceWeights


def judged(evidence: Evidence, weights: ImportanceWeights) -> Finding:
    return correction.check(replace(evidence, importance=weights))


def weighted(proposal: float, n: int = 4000) -> ImportanceWeights:
    """Target N(0, I) in three dimensions, proposal N(0, proposal^2 I)."""
    z = proposal * np.random.default_rng(0).normal(size=(n, 3))
    return ImportanceWeights(norm.logpdf(z).sum(1) - norm.logpdf(z, 0, proposal).sum(1))


def test_only_where_there_is_something_to_correct_with(make_evidence: Callable[..., Evidence]) -> None:
    evidence = make_evidence(0)
    assert not correction.applies(evidence)
    assert correction.applies(replace(evidence, importance=weighted(1.3)))
    with pytest.raises(ValueError, match=r"ask applies\(\) first"):
        correction.check(evidence)


def test_good_weights_pass(make_evidence: Callable[..., Evidence]) -> None:
    weights = weighted(1.3)
    finding = judged(make_evidence(0), weights)
    assert finding.status == "pass"
    assert finding.remedy == ""
    assert finding.values == weights.figures
    assert f"{weights.size:.0f} effective draws" in finding.figure


def test_few_effective_draws_warn(make_evidence: Callable[..., Evidence]) -> None:
    weights = weighted(1.3, n=200)
    assert weights.trustworthy
    finding = judged(make_evidence(0), weights)
    assert finding.status == "warn"
    assert "more simulations" in finding.remedy


def test_a_heavy_tail_fails(make_evidence: Callable[..., Evidence]) -> None:
    assert judged(make_evidence(0), weighted(0.35)).status == "fail"


def test_a_few_draws_that_carry_everything_fail(make_evidence: Callable[..., Evidence]) -> None:
    spike = 0.1 * np.random.default_rng(0).normal(size=4000)
    spike[:30] += 20.0
    weights = ImportanceWeights(spike)
    assert weights.efficiency < 0.01
    assert judged(make_evidence(0), weights).status == "fail"


def test_nothing_that_carries_fails(make_evidence: Callable[..., Evidence]) -> None:
    finding = judged(make_evidence(0), ImportanceWeights(np.full(100, -np.inf)))
    assert finding.status == "fail"
    assert "0 effective draws" in finding.figure
