"""The ranges say where each parameter is written and what the box loses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sbical.results.randomization import Randomization


def test_ranges_and_writes_of_each_parameter(tmp_path: Path, randomization: Randomization) -> None:
    data = json.loads(randomization.export("json", tmp_path / "ranges.json").read_text())
    kt = data["parameters"]["kt"]
    low, high = np.quantile(randomization.draws[:, 0], [0.05, 0.95])
    assert (kt["unit"], kt["low"], kt["high"]) == ("N m/A", pytest.approx(low), pytest.approx(high))
    assert [(w["field"], w["index"], w["op"]) for w in kt["writes"]] == [
        ("actuator_gainprm", [0, 0], "set"),
        ("actuator_biasprm", [0, 1], "set"),
        ("actuator_forcerange", [0, 0], "set"),
        ("actuator_forcerange", [0, 1], "set"),
        ("dof_damping", [0], "add"),
    ]
    assert kt["writes"][3] == {
        "field": "actuator_forcerange",
        "index": [0, 1],
        "object": "actuator servo",
        "op": "set",
        "low": pytest.approx(3.7 * low),
        "median": pytest.approx(3.7 * randomization.median[0]),
        "high": pytest.approx(3.7 * high),
        "effect": "motor",
        "depends_on": ["kt"],
    }
    assert kt["signal_path"] == []
    lag = data["parameters"]["lag"]
    assert lag["writes"] == []
    assert lag["signal_path"] == [{"effect": "lag", "family": "command_delay", "role": "delay", "targets": ["goal"]}]


def test_header_of_the_ranges(tmp_path: Path, randomization: Randomization) -> None:
    data = json.loads(randomization.export("json", tmp_path / "ranges.json").read_text())
    assert (data["verdict"], data["warning"], data["mass"], data["draws"]) == ("pass", None, 0.9, 400)
    assert data["kind"] == "central 90 % range of each parameter by itself; sample rows of the table to keep correlations"
    assert data["conditions"] == {"supply": 7.4}


def test_only_notable_correlations_are_listed(tmp_path: Path, randomization: Randomization) -> None:
    data = json.loads(randomization.export("json", tmp_path / "ranges.json").read_text())
    assert [c["pair"] for c in data["rank_correlations"]] == [["kt", "tip_mass"]]
    assert data["rank_correlations"][0]["rho"] == pytest.approx(0.95, abs=0.02)
