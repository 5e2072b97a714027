"""Parses --set and --map, and finds the recordings that names, paths and globs stand for."""

from __future__ import annotations

import glob
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from tyro.conf import UseAppendAction, arg
from tyro.constructors import PrimitiveConstructorSpec

from sbical.errors import RecordingError, SbicalError, unknown

if TYPE_CHECKING:
    from sbical.recordings.column_map import Columns
    from sbical.recordings.recording import Recording

#: Options as they show in --help: their defaults are said in words.
Text = Annotated[str, arg(help_behavior_hint="")]
Settings = Annotated[tuple[str, ...], UseAppendAction, arg(metavar="NAME=VALUE", help_behavior_hint="(repeatable)")]

T = TypeVar("T", int, float)


def number(option: str, kind: Callable[[str], T], example: T) -> PrimitiveConstructorSpec[T]:
    """How an option's text becomes a number; SbicalError, which tyro lets through, says so of text that is none."""

    def read(given: list[str]) -> T:
        try:
            return kind(given[0])
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise SbicalError(f"{option} {given[0]} is not {what}; give one like {option} {example}") from None

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT" if kind is int else "FLOAT",
        instance_from_str=read,
        is_instance=lambda value: value is None or isinstance(value, int | float),
        str_from_instance=lambda value: [str(value)],
    )


Conditions = dict[str, float | Mapping[str, float]]


def conditions(items: Sequence[str]) -> Conditions:
    """``kp=200`` for all recordings, ``run1.kp=200`` for one. Raises RecordingError for anything else."""
    everywhere: dict[str, float] = {}
    single: dict[str, dict[str, float]] = {}
    for item in items:
        key, separator, text = item.partition("=")
        value = _number(text)
        recording, _, name = key.rpartition(".")  # a recording's name may hold dots, a condition's may not
        if not separator or not name or value is None:
            raise RecordingError(f"cannot read --set {item}; write --set NAME=NUMBER or --set RECORDING.NAME=NUMBER, like --set kp=200")
        target = single.setdefault(recording, {}) if recording else everywhere
        if name in target:
            raise RecordingError(f"--set gives {key} twice; keep one of them")
        target[name] = value
    return {**everywhere, **single}


def mapping(items: Sequence[str]) -> dict[str, str]:
    """``position=joint_pos``, ``position=joint_pos:deg``. Raises RecordingError for anything else."""
    out: dict[str, str] = {}
    for item in items:
        name, separator, column = item.partition("=")
        if not separator or not name or not column:
            raise RecordingError(
                f"cannot read --map {item}; write --map NAME=COLUMN or --map NAME=COLUMN:UNIT, like --map position=joint_pos:deg"
            )
        if name in out:
            raise RecordingError(f"--map gives {name} twice; keep one of them")
        out[name] = column
    return out


def si_conditions(items: Sequence[str], columns: Columns) -> dict[str, float]:
    """``--set`` for a saved calibration: values for all, in the units the simulator declares, converted to SI.

    Raises RecordingError for a condition that the simulator does not have, or a value for one recording.
    """
    known = {c.name: c for c in columns.conditions}
    out: dict[str, float] = {}
    for name, value in conditions(items).items():
        if isinstance(value, Mapping):
            raise RecordingError(
                f"--set {name}.{next(iter(value))}=… names a recording; here a condition has one value: --set {next(iter(value))}=…"
            )
        if name not in known:
            raise RecordingError(unknown("condition", name, known, where="this simulator"))
        scale, offset = known[name].to_si(f"--set {name}")
        out[name] = scale * value + offset
    return out


def files(items: Sequence[str]) -> dict[str, list[Path]]:
    """The files that each item, a path or a glob, stands for; an item that is neither stands for none."""
    # Path.glob refuses absolute patterns
    return {item: sorted(Path(p).resolve() for p in glob.glob(item)) for item in items}  # noqa: PTH207


def split(recordings: Sequence[Recording], holdout: Sequence[str]) -> tuple[list[Recording], list[Recording]]:
    """Recordings to calibrate on, and those held out of them by name, path or glob.

    Raises RecordingError for a holdout that is none of the recordings, or where nothing is left.
    """
    held: list[Recording] = []
    for item, paths in files(holdout).items():
        same = [r for r in recordings if item == r.name or Path(r.path).resolve() in paths]
        if not same:
            raise RecordingError(unknown("recording", item, [r.name for r in recordings], where="--holdout") + ", or give a file")
        held.extend(r for r in same if r not in held)
    kept = [r for r in recordings if r not in held]
    if not kept:
        raise RecordingError("--holdout takes every recording; leave at least one to calibrate on")
    return kept, held


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
