from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from sbical.checks import contraction
from sbical.checks.base import Evidence


def test_identified_parameters_pass(make_evidence: Callable[..., Evidence]) -> None:
    finding = contraction.check(make_evidence(0))
    assert finding.status == "pass"
    assert all(c > 0.9 for c in finding.values.values())


def test_known_contraction_is_recovered(make_evidence: Callable[..., Evidence]) -> None:
    u = 0.2 + 0.5 * np.random.default_rng(1).normal(size=(4000, 4))
    finding = contraction.check(replace(make_evidence(0), posterior=np.exp(0.5 * u)))
    assert list(finding.values.values()) == pytest.approx([0.75] * 4, abs=0.03)


def test_a_parameter_that_was_not_identified_is_named(make_evidence: Callable[..., Evidence]) -> None:
    evidence = make_evidence(0)
    posterior = evidence.posterior.copy()
    posterior[:, 1] = np.exp(0.5 * np.random.default_rng(2).normal(size=len(posterior)))
    finding = contraction.check(replace(evidence, posterior=posterior))
    assert finding.status == "warn"
    assert finding.remedy.startswith("damping not identified by these motions; the range is the prior's")


def test_nothing_identified_fails(make_evidence: Callable[..., Evidence]) -> None:
    evidence = make_evidence(0)
    posterior = np.exp(0.5 * np.random.default_rng(3).normal(size=(2000, 4)))
    finding = contraction.check(replace(evidence, posterior=posterior))
    assert finding.status == "fail"
    assert finding.remedy.startswith("nothing was learned")
