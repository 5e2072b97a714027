from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sbical.checks import simulation_failures
from sbical.checks.base import Evidence


@pytest.mark.parametrize(("share", "status"), [(0.0, "pass"), (0.02, "pass"), (0.1, "warn"), (0.3, "fail"), (float("nan"), "fail")])
def test_share_of_failures_decides(make_evidence: Callable[..., Evidence], share: float, status: str) -> None:
    finding = simulation_failures.check(replace(make_evidence(0), failed_fraction=share))
    assert finding.status == status
    assert bool(finding.remedy) == (status != "pass")
