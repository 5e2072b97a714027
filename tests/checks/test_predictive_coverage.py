from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from sbical.checks import predictive_coverage
from sbical.checks.base import Evidence
from sbical.simulation.replay import Replay


@pytest.mark.parametrize(
    ("spread", "status", "coverage"),
    [(1.0, "pass", 0.90), (0.6, "warn", 0.676), (0.5, "fail", 0.589), (2.0, "warn", 0.999)],  # 2 Φ(1.645 spread) - 1
)
def test_width_of_the_bands_decides(
    make_evidence: Callable[..., Evidence], make_replay: Callable[..., Replay], spread: float, status: str, coverage: float
) -> None:
    holdout = make_replay(np.random.default_rng(6), spread=spread)
    finding = predictive_coverage.check(replace(make_evidence(0), holdout=holdout))
    assert finding.status == status
    assert finding.values["position"] == pytest.approx(coverage, abs=0.04)


def test_remedy_names_the_channel_and_direction(make_evidence: Callable[..., Evidence], make_replay: Callable[..., Replay]) -> None:
    holdout = make_replay(np.random.default_rng(6))
    window = holdout.windows[0]
    holdout = replace(holdout, windows=(replace(window, draws=window.draws * np.array([0.2, 3.0])),))
    finding = predictive_coverage.check(replace(make_evidence(0), holdout=holdout))
    assert finding.status == "fail"
    assert finding.remedy.startswith("the bands are too narrow for position:")
    assert "wider than needed for velocity" in finding.remedy


def test_no_holdout_warns(make_evidence: Callable[..., Evidence]) -> None:
    assert predictive_coverage.check(replace(make_evidence(0), holdout=None)).status == "warn"
