"""What is known about a run besides its motion: gain, supply, payload; per recording or per sample, never inferred."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sbical.errors import RecordingError, unknown
from sbical.recordings.column_map import Column, Columns
from sbical.recordings.readers.base import LogTable


@dataclass(frozen=True)
class Signal:
    """A column to read as the stream ``name``: ``scale * column + offset`` is in [si]."""

    name: str
    column: str
    si: str
    scale: float
    offset: float


@dataclass(frozen=True)
class GivenConditions:
    """Conditions that the user gave, in SI units: for all recordings, and for single ones."""

    everywhere: Mapping[str, float]
    single: Mapping[str, Mapping[str, float]]

    @classmethod
    def parse(cls, conditions: Mapping[str, float | Mapping[str, float]], columns: Columns, recordings: Sequence[str]) -> GivenConditions:
        """Values come in the unit that ``columns`` declare. Raises RecordingError for an unknown condition or recording."""
        everywhere: dict[str, float] = {}
        single: dict[str, dict[str, float]] = {}
        for key, value in conditions.items():
            if not isinstance(value, Mapping):
                everywhere[key] = _to_si(key, value, columns)
            elif key in recordings:
                single[key] = {name: _to_si(name, v, columns) for name, v in value.items()}
            else:
                raise RecordingError(unknown("recording", key, recordings, where="the conditions given"))
        return cls(everywhere, single)

    def of(self, recording: str) -> dict[str, float]:
        """Conditions of one recording: its own, then those for all."""
        return {**self.everywhere, **self.single.get(recording, {})}


def signals_and_conditions(
    table: LogTable, columns: Columns, given: Mapping[str, float], where: str, file_stem: str
) -> tuple[list[Signal], dict[str, float], list[str]]:
    """Columns to read, conditions that hold for the whole run in SI units, and notes.

    Raises RecordingError for a condition found nowhere, naming the ways to give it.
    """
    signals: list[Signal] = []
    fixed: dict[str, float] = {}
    notes: list[str] = []
    for item in columns.items:
        value = _fixed(item, table, given, where, file_stem) if item.kind == "condition" else None
        if item.name in given:
            notes += _overridden(item, table, given[item.name], where, file_stem)
        if value is not None:
            fixed[item.name] = value
        elif item.column is not None:
            signals.append(Signal(item.name, item.column, item.si, *item.to_si(f"{item.kind} '{item.name}' of {where}")))
        if item.enable is not None and item.enable in table.columns:
            signals.append(Signal(f"{item.name}_enable", item.enable, "1", 1.0, 0.0))
        elif item.enable is not None:
            notes.append(f"{item.name}: no column '{item.enable}', taken as always on (another name: --map {item.name}_enable=COLUMN)")
    return signals, fixed, notes


def _fixed(item: Column, table: LogTable, given: Mapping[str, float], where: str, file_stem: str) -> float | None:
    """The value for the whole run in SI units; None if the log holds it per sample."""
    if item.name in given:
        return given[item.name]
    if item.column in table.columns:
        return None
    value = next((table.scalars[key] for key in (item.name, item.column or item.name) if key in table.scalars), None)
    if value is None and item.pattern is not None:
        value = _from_name(item, item.pattern, file_stem, where)
    if value is None:
        raise RecordingError(f"{where}: condition '{item.name}' [{item.unit}] is not known{_ways(item, table)}")
    if not math.isfinite(value):
        raise RecordingError(f"{where}: condition '{item.name}' is {value}; give a finite number [{item.unit}]")
    scale, offset = item.to_si(f"condition '{item.name}' of {where}")
    return scale * value + offset


def _overridden(item: Column, table: LogTable, given: float, where: str, file_stem: str) -> list[str]:
    """A note where the log itself says something else than the user."""
    unit = "" if item.si == "1" else f" {item.si}"
    if item.column in table.columns:
        return [f"{item.name} = {given:g}{unit} was given: its column '{item.column}' is not used"]
    if not any(key in table.scalars for key in (item.name, item.column)) and not re.search(item.pattern or r"(?!)", file_stem):
        return []
    logged = _fixed(item, table, {}, where, file_stem)
    if logged is None or math.isclose(logged, given):
        return []
    return [f"{item.name} = {given:g}{unit} was given, which replaces {logged:g} from the log or its name"]


def _from_name(item: Column, pattern: str, file_stem: str, where: str) -> float | None:
    match = re.search(pattern, file_stem)
    if match is None:
        return None
    try:
        return float(match[1])
    except (TypeError, ValueError):
        raise RecordingError(
            f"{where}: pattern '{pattern}' of condition '{item.name}' finds '{match[1]}', not a number; put its group around the number"
        ) from None


def _ways(item: Column, table: LogTable) -> str:
    column = f" (no column '{item.column}'; valid: {', '.join(sorted(table.columns))})" if item.column is not None else ""
    name = (
        f"name the file so that '{item.pattern}' matches"
        if item.pattern is not None
        else "give the condition a pattern for the file name in simulator.toml"
    )
    return (
        f"{column}; give it with --set {item.name}=VALUE (conditions={{'{item.name}': VALUE}}), as a scalar '{item.name}' in the NPZ, "
        f"as a line '# {item.name}: VALUE' above the CSV's header, or {name}"
    )


def _to_si(name: str, value: object, columns: Columns) -> float:
    names = [c.name for c in columns.conditions]
    if name not in names:
        raise RecordingError(unknown("condition", name, names, where="this simulator"))
    if isinstance(value, str) or not isinstance(value, int | float) or not math.isfinite(value):
        raise RecordingError(f"condition '{name}' is given as {value!r}; give a finite number [{columns.get(name).unit}]")
    scale, offset = columns.get(name).to_si(f"condition '{name}'")
    return scale * float(value) + offset
