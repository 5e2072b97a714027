"""The column map: what each column of a log means to the simulator, and in which unit it is written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from sbical.common.units import conversion
from sbical.errors import RecordingError, SimulatorError, unknown

#: Names of commands, measurements, conditions and effects: they become keys of files and parts of --set and --map.
NAME = r"[\w-]+"

Kind = Literal["command", "measurement", "condition"]


@dataclass(frozen=True)
class Column:
    """One command, measurement or condition, and the log column that holds it.

    ``column`` None: a condition known per recording instead of per sample. ``unit`` is what the log holds, ``si`` what it
    becomes. ``hold`` says what a command does between its samples; ``enable`` names the column that is 0 while the motor
    is off. ``resolution`` is a sensor's step in SI units. ``pattern`` is a regular expression with one group, searched in
    the file name to find a condition: ``"kp(\\d+)_"``.

    Raises SimulatorError for a combination that means nothing.
    """

    name: str
    kind: Kind
    column: str | None
    unit: str
    si: str
    hold: Literal["zoh", "linear"] = "linear"
    enable: str | None = None
    resolution: float | None = None
    pattern: str | None = None

    def __post_init__(self) -> None:
        where = f"{self.kind} '{self.name}'"
        if self.kind not in ("command", "measurement", "condition"):
            raise SimulatorError(unknown("kind of column", self.kind, ("command", "measurement", "condition"), where=f"'{self.name}'"))
        if self.hold not in ("zoh", "linear"):
            raise SimulatorError(unknown("hold", self.hold, ("zoh", "linear"), where=where))
        if self.column is None and self.kind != "condition":
            raise SimulatorError(f'{where} has no column; only a condition may be known per recording: add column = "…"')
        if self.enable is not None and self.kind != "command":
            raise SimulatorError(f"{where} has an enable column; only a command can be switched off: move it to the command")
        if self.pattern is not None:
            self._check_pattern(where, self.pattern)

    def _check_pattern(self, where: str, pattern: str) -> None:
        if self.kind != "condition":
            raise SimulatorError(f"{where} has a pattern; only a condition is read from the file name: remove it")
        try:
            groups = re.compile(pattern).groups
        except re.error as problem:
            raise SimulatorError(
                f"{where}: pattern '{pattern}' is not a regular expression ({problem}); write one like 'kp(\\d+)_'"
            ) from None
        if groups != 1:
            raise SimulatorError(
                f"{where}: pattern '{pattern}' has {groups} groups; put parentheses around the number alone, like 'kp(\\d+)_'"
            )

    def to_si(self, where: str) -> tuple[float, float]:
        """``(scale, offset)`` from the log's unit to SI. Raises RecordingError for units that do not fit."""
        return conversion(self.unit, self.si, where=where)


@dataclass(frozen=True)
class Columns:
    """All columns that a simulator needs, in order, and the time column they share."""

    items: tuple[Column, ...]
    time: str = "time"
    time_unit: str = "s"

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for name in [c.name for c in self.items] + [f"{c.name}_enable" for c in self.items if c.enable is not None]:
            if name in seen or name == "time" or not re.fullmatch(NAME, name):
                why = "used twice" if name in seen else "reserved" if name == "time" else "not a name (letters, digits, _ and - only)"
                raise SimulatorError(f"the name '{name}' of a command, measurement or condition is {why}; rename it")
            seen.add(name)

    @property
    def commands(self) -> tuple[Column, ...]:
        """What the robot was told, in order."""
        return tuple(c for c in self.items if c.kind == "command")

    @property
    def measurements(self) -> tuple[Column, ...]:
        """What the robot's sensors said, in order."""
        return tuple(c for c in self.items if c.kind == "measurement")

    @property
    def conditions(self) -> tuple[Column, ...]:
        """What is known besides, in order."""
        return tuple(c for c in self.items if c.kind == "condition")

    def get(self, name: str) -> Column:
        """The column of that name. Raises RecordingError naming those that exist."""
        for item in self.items:
            if item.name == name:
                return item
        raise RecordingError(unknown("command, measurement or condition", name, [c.name for c in self.items]))

    def remap(self, mapping: Mapping[str, str]) -> Columns:
        """The same columns under the names of another log: ``{"position": "joint_pos:deg", "time": "stamp:ms"}``.

        What follows the last colon is the unit of that log; without it the declared unit stays. ``"goal_enable"`` maps the
        enable column of command ``goal``. Raises RecordingError for names that are not columns of this map.
        """
        result = self
        for name, target in mapping.items():
            column, _, unit = target.rpartition(":") if ":" in target else (target, "", "")
            if not column or (":" in target and not unit):
                raise RecordingError(f"cannot map {name}={target}; write {name}=COLUMN or {name}=COLUMN:UNIT, like {name}=joint_pos:deg")
            result = result._renamed(name, column, unit)
        return result

    def _renamed(self, name: str, column: str, unit: str) -> Columns:
        if name == "time":
            conversion(unit or self.time_unit, "s", where=f"mapping time={column}")
            return replace(self, time=column, time_unit=unit or self.time_unit)
        items = list(self.items)
        for i, item in enumerate(items):
            if item.name == name:
                items[i] = replace(item, column=column, unit=unit or item.unit)
                items[i].to_si(f"mapping {name}={column}")
                return replace(self, items=tuple(items))
            if item.kind == "command" and f"{item.name}_enable" == name:
                items[i] = replace(item, enable=column)
                return replace(self, items=tuple(items))
        valid = ["time", *(c.name for c in items), *(f"{c.name}_enable" for c in self.commands)]
        raise RecordingError(unknown("column", name, valid, where="this simulator") + "; write NAME=COLUMN with the simulator's name first")
