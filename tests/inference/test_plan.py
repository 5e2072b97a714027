"""Budgets of a plan."""

from __future__ import annotations

import pytest

import sbical
from sbical.common import catalog
from sbical.errors import ExperimentError
from sbical.inference.plan import BESIDE, FIXED, SIMULATIONS, Plan, plan


def planned(seconds: float | None, workers: int = 2) -> Plan:
    simulator = sbical.load_simulator("servo_pendulum")
    recordings = sbical.read_recordings(catalog.examples("servo_pendulum"), simulator.columns)
    return plan(simulator, sbical.load_prior("hobby_servo"), recordings, method="amortized", seconds=seconds, workers=workers)


def test_time_that_suffices_changes_nothing() -> None:
    free, ample = planned(None), planned(3600)
    assert free.simulations == ample.simulations == SIMULATIONS["amortized"]
    assert free.notes == ample.notes
    assert (free.limit, ample.limit) == (None, 3600)


def test_fewer_simulations_where_time_is_short() -> None:
    cost = planned(None).seconds_per_simulation
    short = planned(FIXED + 2500 * (cost / 2 + BESIDE))
    assert short.simulations == pytest.approx(2500, rel=0.4)
    assert short.notes[-1] == f"{short.limit:g} s suffice for {short.simulations} simulations instead of {SIMULATIONS['amortized']}"
    assert short.to_dict()["seconds"] == short.limit


@pytest.mark.parametrize("seconds", [0.0, -5.0, float("nan"), float("inf"), FIXED])
def test_time_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(ExperimentError, match=r"seconds = .*; a run needs at least 1000 simulations, about \d+ s here"):
        planned(seconds)
