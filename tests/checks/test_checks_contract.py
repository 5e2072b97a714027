"""What every check owes, built in or from another package, and the verdict they add up to."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from sbical.checks import BUILT_IN, Check, Evidence, Finding, Verdict, judge, registered
from sbical.errors import OutputError
from sbical.inference.importance_weights import ImportanceWeights
from sbical.simulation.replay import Reproduction


@pytest.mark.parametrize("member", registered().values(), ids=lambda c: c.NAME)
def test_contract(member: Check, make_evidence: Callable[..., Evidence], make_reproduced: Callable[..., Reproduction]) -> None:
    weights = np.random.default_rng(0).normal(size=2000)
    good = replace(make_evidence(0), importance=ImportanceWeights(0.3 * weights))
    bad = replace(
        make_evidence(0, factor=0.3, x_shift=40.0),
        posterior_u=good.prior_u + 3.0,
        posterior=np.column_stack([good.prior[:, 0], 1 / good.prior[:, 0], good.prior[:, 2:]]),
        importance=ImportanceWeights(4.0 * weights),
        holdout_after=None,
        holdout=None,
        fitted=make_reproduced(np.random.default_rng(0), lambda _, n: np.cumsum(np.ones(n))),
        failed_fraction=0.5,
    )
    for evidence in (good, bad):
        before = {k: v.copy() for k, v in vars(evidence).items() if isinstance(v, np.ndarray)}
        finding = member.check(evidence)
        assert finding.name == member.NAME
        assert all((finding.figure, finding.threshold, finding.source))
        assert bool(finding.remedy) == (finding.status != "pass")
        assert all(isinstance(v, float) for v in finding.values.values())
        assert finding == member.check(evidence)
        assert all(np.array_equal(v, vars(evidence)[k]) for k, v in before.items())
    assert member.check(good).status == "pass"
    assert member.check(bad).status != "pass"


def test_every_module_of_the_package_is_registered() -> None:
    assert [c.NAME for c in BUILT_IN] == [
        "support",
        "prior_edges",
        "contraction",
        "identified",
        "residuals",
        "replay_error",
        "predictive_coverage",
        "correction",
        "sbc",
        "tarp",
        "expected_coverage",
        "lc2st",
        "simulation_failures",
    ]


def test_exact_posterior_is_trustworthy(make_evidence: Callable[..., Evidence]) -> None:
    verdict = judge(make_evidence(0))
    assert verdict.status == "pass"
    assert verdict.trustworthy
    assert str(verdict).splitlines()[0] == "verdict: pass (every check passed)"
    # there is no likelihood, so "correction" does not apply
    assert len(str(verdict).splitlines()) == 1 + len(BUILT_IN) - 1


def test_overconfident_posterior_is_not(make_evidence: Callable[..., Evidence]) -> None:
    verdict = judge(make_evidence(0, factor=0.5))
    assert verdict.status == "fail"
    assert not verdict.trustworthy
    assert "✗ fail  sbc" in str(verdict)
    assert "do: ranges too narrow" in str(verdict)


def test_verdict_is_as_bad_as_its_worst_check() -> None:
    def finding(status: str) -> Finding:
        return Finding("a", status, "f", "t", "s", "r")  # type: ignore[arg-type]

    assert Verdict((finding("pass"), finding("warn"))).status == "warn"
    assert Verdict((finding("warn"), finding("fail"), finding("pass"))).status == "fail"
    assert Verdict((finding("warn"),)).trustworthy
    assert Verdict(()).status == "pass"


def test_verdict_survives_json(make_evidence: Callable[..., Evidence]) -> None:
    verdict = judge(make_evidence(0, factor=2.0))
    again = Verdict.from_dict(json.loads(json.dumps(verdict.to_dict(), allow_nan=False)))
    assert again == verdict


def test_values_that_are_not_finite_become_null() -> None:
    verdict = Verdict((Finding("a", "fail", "f", "t", "s", "r", {"x": math.inf}),))
    data = json.loads(json.dumps(verdict.to_dict(), allow_nan=False))
    assert data["checks"][0]["values"] == {"x": None}
    assert math.isnan(Verdict.from_dict(data).checks[0].values["x"])


@pytest.mark.parametrize("data", [{}, {"checks": 3}, {"checks": [{"name": "a"}]}, []])
def test_foreign_verdict_is_an_error(data: object) -> None:
    with pytest.raises(OutputError, match=r"not a verdict of sbical .*; give the verdict.json of a run, or calibrate again"):
        Verdict.from_dict(data)  # type: ignore[arg-type]
