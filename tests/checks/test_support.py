from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from sbical.checks import support
from sbical.checks.base import Evidence


def test_observation_from_the_model_passes(make_evidence: Callable[..., Evidence]) -> None:
    finding = support.check(make_evidence(0))
    assert finding.status == "pass"
    assert finding.values["share_farther"] > 0.01


def test_share_farther_is_uniform_for_simulated_observations(make_evidence: Callable[..., Evidence]) -> None:
    evidence = make_evidence(0)
    shares = [
        support.check(replace(evidence, x_o=x, x_fresh=evidence.x_fresh[100:])).values["share_farther"] for x in evidence.x_fresh[:60]
    ]
    assert 0.35 < np.mean(shares) < 0.65


def test_observation_outside_warns_and_far_outside_fails(make_evidence: Callable[..., Evidence]) -> None:
    evidence = make_evidence(0)
    outside = np.zeros_like(evidence.x_o)
    outside[3] = 1.0
    near = support.check(replace(evidence, x_o=evidence.x_o + 4.0 * outside))
    far = support.check(replace(evidence, x_o=evidence.x_o + 30.0 * outside))
    assert (near.status, far.status) == ("warn", "fail")
    assert far.values["worst_feature"] == 3
    assert far.values["ratio"] > 3
    assert "widen the priors, add the missing effect" in far.remedy


def test_feature_that_never_varies_is_outside_when_it_differs(make_evidence: Callable[..., Evidence]) -> None:
    evidence = make_evidence(0)

    def with_constant(x: np.ndarray, value: float) -> np.ndarray:
        return np.concatenate([x, np.full((*x.shape[:-1], 1), value)], axis=-1)

    fields = {"x_train": with_constant(evidence.x_train, 1.0), "x_fresh": with_constant(evidence.x_fresh, 1.0)}
    assert support.check(replace(evidence, x_o=with_constant(evidence.x_o, 1.0), **fields)).status == "pass"
    assert support.check(replace(evidence, x_o=with_constant(evidence.x_o, 1.1), **fields)).status == "fail"


def test_non_finite_observation_fails(make_evidence: Callable[..., Evidence]) -> None:
    evidence = make_evidence(0)
    x_o = evidence.x_o.copy()
    x_o[2] = np.nan
    finding = support.check(replace(evidence, x_o=x_o))
    assert finding.status == "fail"
    assert finding.figure == "1 of 12 summary features of the observation are not finite (first: feature 2)"
