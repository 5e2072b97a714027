from __future__ import annotations

import pytest

from sbical.errors import RecordingError, SimulatorError
from sbical.recordings.column_map import Column, Columns

GOAL = Column("goal", "command", "goal_position", "rad", "rad", "zoh", enable="torque_enable")
POSITION = Column("position", "measurement", "position", "rad", "rad", resolution=0.001534)
SUPPLY = Column("supply", "condition", "input_volts", "V", "V")
KP = Column("kp", "condition", None, "1", "1", pattern=r"kp(\d+)_")
COLUMNS = Columns((GOAL, POSITION, SUPPLY, KP))


def test_columns_by_kind_and_name() -> None:
    assert COLUMNS.commands == (GOAL,)
    assert COLUMNS.measurements == (POSITION,)
    assert COLUMNS.conditions == (SUPPLY, KP)
    assert COLUMNS.get("kp") is KP
    with pytest.raises(RecordingError) as caught:
        COLUMNS.get("positon")
    assert str(caught.value) == (
        "no command, measurement or condition 'positon'; did you mean 'position'? (valid: goal, kp, position, supply)"
    )


def test_remap_names_units_time_and_enable() -> None:
    mapped = COLUMNS.remap({"position": "joint_pos:deg", "time": "stamp:ms", "goal_enable": "on", "goal": "cmd"})
    assert (mapped.get("position").column, mapped.get("position").unit, mapped.get("position").si) == ("joint_pos", "deg", "rad")
    assert (mapped.time, mapped.time_unit) == ("stamp", "ms")
    assert (mapped.get("goal").column, mapped.get("goal").enable, mapped.get("goal").unit) == ("cmd", "on", "rad")
    assert COLUMNS.time == "time"
    assert COLUMNS.remap({}) == COLUMNS


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        (
            {"speed": "v"},
            (
                "no column 'speed' in this simulator (valid: goal, goal_enable, kp, position, supply, time); "
                "write NAME=COLUMN with the simulator's name first"
            ),
        ),
        ({"position": "p:"}, "cannot map position=p:; write position=COLUMN or position=COLUMN:UNIT, like position=joint_pos:deg"),
        ({"position": ""}, "cannot map position=; write position=COLUMN or position=COLUMN:UNIT, like position=joint_pos:deg"),
        ({"position": "p:V"}, "mapping position=p: [V] cannot become [rad]: another quantity; declare the unit that the values have"),
    ],
)
def test_remap_refusals(mapping: dict[str, str], message: str) -> None:
    with pytest.raises(RecordingError) as caught:
        COLUMNS.remap(mapping)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "sensor"}, "no kind of column 'sensor' in 'x' (valid: command, condition, measurement)"),
        ({"hold": "cubic"}, "no hold 'cubic' in measurement 'x' (valid: linear, zoh)"),
        ({"column": None}, "measurement 'x' has no column; only a condition may be known per recording: add column = \"…\""),
        ({"enable": "on"}, "measurement 'x' has an enable column; only a command can be switched off: move it to the command"),
        ({"pattern": "a(b)"}, "measurement 'x' has a pattern; only a condition is read from the file name: remove it"),
        (
            {"kind": "condition", "pattern": "kp"},
            "condition 'x': pattern 'kp' has 0 groups; put parentheses around the number alone, like 'kp(\\d+)_'",
        ),
        ({"kind": "condition", "pattern": "kp("}, "condition 'x': pattern 'kp(' is not a regular expression"),
    ],
)
def test_a_column_that_means_nothing_is_refused(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(SimulatorError) as caught:
        Column(**{"name": "x", "kind": "measurement", "column": "x", "unit": "rad", "si": "rad", **arguments})  # pyright: ignore[reportArgumentType]
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("name", ["goal", "time", "goal_enable", "a/b"])
def test_names_are_unique_and_free(name: str) -> None:
    with pytest.raises(
        SimulatorError, match=f"the name '{name}' of a command, measurement or condition is (used twice|reserved|not a name)"
    ):
        Columns((GOAL, Column(name, "measurement", "position", "rad", "rad")))
