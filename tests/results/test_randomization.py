"""The randomization: central ranges, rows that keep their correlations, and where each parameter acts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sbical.errors import OutputError
from sbical.results.randomization import Randomization
from sbical.simulation.simulator_toml import parse

XML = """
<mujoco><worldbody><body><joint name="q" axis="0 1 0"/><geom size="0.1" mass="1"/></body></worldbody>
<actuator><position name="servo" joint="q" kp="1"/></actuator><sensor><jointpos name="angle" joint="q"/></sensor></mujoco>
"""

TOML = """
[commands.goal]
actuator = "servo"
column = "goal"
unit = "rad"
[measurements.position]
sensor = "angle"
column = "position"
unit = "rad"
[conditions.gain]
unit = "N m/rad"
[effects.bearing]
family = "joint_damping"
target = "q"
damping = "viscous"
[effects.rotor]
family = "armature"
target = "q"
armature = 0.01
[effects.servo]
family = "position_servo"
target = "servo"
kp = { condition = "gain" }
kv = 0.1
[effects.lag]
family = "command_delay"
target = "goal"
delay = "lag"
[effects.read]
family = "sensor_noise"
target = "position"
std = 0.001
"""


def line(n: int = 1001) -> Randomization:
    """Two parameters on a line: b = 10 a."""
    a = np.linspace(0.0, 1.0, n)
    return Randomization(("a", "b"), ("s", "m"), np.stack([a, 10 * a], axis=1))


def test_ranges_are_central_and_hold_the_mass() -> None:
    narrow = Randomization(("a",), ("s",), np.linspace(0.0, 1.0, 1001)[:, None], mass=0.5)
    assert (narrow.low[0], narrow.median[0], narrow.high[0]) == pytest.approx((0.25, 0.5, 0.75))
    np.testing.assert_allclose(line().low, [0.05, 0.5])
    np.testing.assert_allclose(line().high, [0.95, 9.5])


@pytest.mark.parametrize("mass", [0.0, 1.0, 90.0, float("nan")])
def test_a_mass_that_is_no_probability_is_an_error(mass: float) -> None:
    with pytest.raises(OutputError) as caught:
        Randomization(("a",), ("s",), np.zeros((3, 1)), mass=mass)
    assert str(caught.value) == f"a range cannot hold a mass of {mass:g}; give a number between 0 and 1, for example 0.9"


def test_samples_are_whole_rows_each_used_once_before_any_again() -> None:
    rows = line(100).sample(250, seed=1)
    np.testing.assert_array_equal(rows[:, 1], 10 * rows[:, 0])
    assert len(np.unique(rows[:100, 0])) == 100
    assert len(np.unique(rows[100:200, 0])) == 100
    assert rows.shape == (250, 2)
    np.testing.assert_array_equal(rows, line(100).sample(250, seed=1))
    assert not np.array_equal(rows, line(100).sample(250, seed=2))
    assert line(100).sample(0, seed=1).shape == (0, 2)


def test_of_a_simulator_finds_writes_and_signal_path(tmp_path: Path) -> None:
    simulator = parse(TOML, tmp_path, name="servo", xml=XML)
    draws = np.stack([np.linspace(1.0, 2.0, 101), np.full(101, 0.01)], axis=1)
    found = Randomization.of(simulator, draws, mass=0.8, conditions={"gain": 5.0})
    assert [(w.field, w.parameters) for w in found.writes] == [("dof_damping", ("viscous",))], "a number is not randomized"
    assert (found.writes[0].low, found.writes[0].median, found.writes[0].high) == pytest.approx((1.1, 1.5, 1.9))
    signals = [(s.effect, s.role, s.unit, s.parameter, s.median) for s in found.signal_path]
    assert signals == [("lag", "delay", "s", "lag", pytest.approx(0.01)), ("read", "std", "rad", None, 0.001)]
    assert found.unknown_conditions == ()
    assert Randomization.of(simulator, draws).unknown_conditions == ("gain",)


def test_a_bare_table_cannot_change_its_conditions() -> None:
    with pytest.raises(OutputError) as caught:
        line().under({"kp": 100.0})
    assert str(caught.value) == "a bare table knows no conditions; take the randomization of a calibration (load_calibration)"


def test_save_writes_table_and_ranges_marked_by_the_verdict(tmp_path: Path) -> None:
    Randomization(("a",), ("s",), np.zeros((5, 1)), status="fail", reasons=("sbc: p = 0",)).save(tmp_path / "run")
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["randomization.json", "randomization.npz"]
    data = json.loads((tmp_path / "run" / "randomization.json").read_text())
    assert data["warning"] == "FAILED VERDICT: do not use for training; sbc: p = 0"
