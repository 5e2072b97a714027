from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from sbical.checks import support
from sbical.checks.base import Evidence


def moved(evidence: Evidence, feature: int, by: float) -> Evidence:
    x_o = evidence.x_o.copy()
    x_o[feature] += by
    return replace(evidence, x_o=x_o)


def test_observation_from_the_model_passes(make_evidence: Callable[..., Evidence]) -> None:
    finding = support.check(make_evidence(0))
    assert finding.status == "pass"
    assert {"inside.p", "outside.p"} <= set(finding.values)


def test_p_is_uniform_and_warnings_are_as_rare_as_stated(make_evidence: Callable[..., Evidence]) -> None:
    evidence = make_evidence(0, fresh=600)
    held_out = replace(evidence, x_fresh=evidence.x_fresh[300:])
    findings = [support.check(replace(held_out, x_o=x)) for x in evidence.x_fresh[:300]]
    for part in ("inside.p", "outside.p"):
        assert 0.43 < np.mean([f.values[part] for f in findings]) < 0.57
    assert sum(f.status != "pass" for f in findings) <= 8  # 3 expected at 1 %, three sigma
    assert all(f.status != "fail" for f in findings)


def test_observation_farther_along_warns_and_far_along_fails(make_evidence: Callable[..., Evidence]) -> None:
    near, far = (support.check(moved(make_evidence(0), 3, by)) for by in (5.0, 30.0))
    assert (near.status, far.status) == ("warn", "fail")
    assert far.values["inside.feature"] == 3
    assert far.values["inside.ratio"] > 3
    assert far.remedy.startswith("the robot moves as simulations do, but farther: widen the priors")
    assert "no simulation does" not in far.remedy


def test_motion_that_no_simulation_makes_warns_and_fails_far_beyond(make_evidence: Callable[..., Evidence]) -> None:
    evidence = make_evidence(0)
    limit = float(np.quantile(evidence.x_fresh[:, 11], 0.99) - evidence.x_o[11])
    near, far = (support.check(moved(evidence, 11, limit + np.log(times))) for times in (2.8, 20.0))
    assert (near.status, far.status) == ("warn", "fail")
    assert far.values["outside.ratio"] == pytest.approx(20.0)
    assert far.remedy.startswith("the robot moves as no simulation does: add the missing effect")


def test_less_noise_than_any_simulation_only_warns(make_evidence: Callable[..., Evidence]) -> None:
    finding = support.check(moved(make_evidence(0), 11, -50.0))
    assert finding.status == "warn"
    assert finding.remedy.startswith("the robot's signals hold less noise than any simulation")


def test_few_simulations_warn_only_beyond_all_of_them(make_evidence: Callable[..., Evidence]) -> None:
    evidence = make_evidence(0)
    few = replace(evidence, x_fresh=evidence.x_fresh[:60])
    assert support.check(few).status == "pass"
    assert support.check(moved(few, 3, 8.0)).status == "warn"


def test_feature_that_never_varies_is_outside_when_it_differs(make_evidence: Callable[..., Evidence]) -> None:
    evidence = make_evidence(0)

    def with_constant(x: np.ndarray, value: float) -> np.ndarray:
        return np.concatenate([x, np.full((*x.shape[:-1], 1), value)], axis=-1)

    fields = {"x_train": with_constant(evidence.x_train, 1.0), "x_fresh": with_constant(evidence.x_fresh, 1.0)}
    fields["residual_features"] = np.append(evidence.residual_features, False)
    assert support.check(replace(evidence, x_o=with_constant(evidence.x_o, 1.0), **fields)).status == "pass"
    assert support.check(replace(evidence, x_o=with_constant(evidence.x_o, 1.1), **fields)).status == "fail"


def test_non_finite_observation_fails(make_evidence: Callable[..., Evidence]) -> None:
    evidence = make_evidence(0)
    x_o = evidence.x_o.copy()
    x_o[2] = np.nan
    finding = support.check(replace(evidence, x_o=x_o))
    assert finding.status == "fail"
    assert finding.figure == "1 of 12 summary features of the observation are not finite (first: feature 2)"
