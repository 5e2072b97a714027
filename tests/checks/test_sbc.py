from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sbical.checks import sbc
from sbical.checks.base import Evidence


def test_exact_posterior_passes(make_evidence: Callable[..., Evidence]) -> None:
    finding = sbc.check(make_evidence(0))
    assert finding.status == "pass"
    assert finding.remedy == ""
    assert finding.values["coverage90"] == pytest.approx(0.9, abs=0.03)


def test_p_value_is_uniform_under_exact_calibration(make_evidence: Callable[..., Evidence]) -> None:
    p = np.array([sbc.check(make_evidence(seed, fresh=200)).values["p"] for seed in range(30)])
    assert 0.35 < p.mean() < 0.65
    assert np.sum(p < 0.05) <= 5


def test_overconfident_posterior_fails(make_evidence: Callable[..., Evidence]) -> None:
    finding = sbc.check(make_evidence(0, factor=0.5))
    assert finding.status == "fail"
    assert finding.values["coverage90"] == pytest.approx(0.589, abs=0.05)  # 2 Φ(1.645 / 2) - 1
    assert "ranges too narrow" in finding.remedy


def test_conservative_posterior_is_flagged_but_usable(make_evidence: Callable[..., Evidence]) -> None:
    finding = sbc.check(make_evidence(0, factor=2.0))
    assert finding.status == "warn"
    assert finding.values["p"] < 0.001
    assert finding.remedy == "ranges are wider than needed: safe, but more simulations would sharpen them"


def test_biased_posterior_fails(make_evidence: Callable[..., Evidence]) -> None:
    finding = sbc.check(make_evidence(0, shift=0.6))
    assert finding.status == "fail"
    assert "medians lean to one side" in finding.remedy


def test_few_simulations_warn(make_evidence: Callable[..., Evidence]) -> None:
    finding = sbc.check(make_evidence(0, fresh=60))
    assert finding.status == "warn"
    assert finding.remedy == "use at least 200 fresh simulations for this test"
