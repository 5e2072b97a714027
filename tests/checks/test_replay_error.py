from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from sbical.checks import replay_error
from sbical.checks.base import Evidence
from sbical.simulation.replay import Replay


def one(make_replay: Callable[..., Replay], error: float) -> Replay:
    return make_replay(np.random.default_rng(4), draws=1, spread=0.0, error=error)


@pytest.mark.parametrize(("error", "status"), [(0.5, "pass"), (0.95, "warn"), (1.2, "fail")])
def test_ratio_of_rmse_decides(
    make_evidence: Callable[..., Evidence], make_replay: Callable[..., Replay], error: float, status: str
) -> None:
    evidence = replace(make_evidence(0), holdout_before=one(make_replay, 1.0), holdout_after=one(make_replay, error))
    finding = replay_error.check(evidence)
    assert finding.status == status
    assert finding.values["overall"] == pytest.approx(error)


def test_one_worse_channel_warns_although_the_mean_is_better(
    make_evidence: Callable[..., Evidence], make_replay: Callable[..., Replay]
) -> None:
    before, after = one(make_replay, 1.0), one(make_replay, 1.0)
    observed = after.windows[0].observed * np.array([0.2, 1.1])
    after = replace(after, windows=(replace(after.windows[0], observed=observed),))
    finding = replay_error.check(replace(make_evidence(0), holdout_before=before, holdout_after=after))
    assert finding.status == "warn"
    assert "velocity" in finding.figure
    assert "(1.10 of it)" in finding.figure


def test_a_replay_that_diverges_fails(make_evidence: Callable[..., Evidence], make_replay: Callable[..., Replay]) -> None:
    after = one(make_replay, 0.1)
    after = replace(after, windows=(replace(after.windows[0], draws=np.full_like(after.windows[0].draws, np.nan)),))
    assert replay_error.check(replace(make_evidence(0), holdout_after=after)).status == "fail"


def test_no_holdout_warns(make_evidence: Callable[..., Evidence]) -> None:
    finding = replay_error.check(replace(make_evidence(0), holdout_after=None))
    assert (finding.status, finding.figure) == ("warn", "no held-out recording")
    assert finding.remedy == "name a recording to hold out (--holdout)"
