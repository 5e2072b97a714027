"""One run of a real robot: streams with their own time, in SI units, as logged and never resampled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from glob import glob
from pathlib import Path

import numpy as np
import xarray as xr

from sbical.common.units import conversion
from sbical.errors import RecordingError, unknown
from sbical.recordings.column_map import Column, Columns
from sbical.recordings.conditions import GivenConditions, signals_and_conditions
from sbical.recordings.readers import LogTable, reader_for, readers, stem
from sbical.recordings.row_cleaning import LeftOut, numeric, usable

__all__ = ["Column", "Columns", "Recording", "Segments", "Stream", "read_recordings"]


@dataclass(frozen=True, eq=False)  # arrays have no single truth value: compared by identity
class Stream:
    """One signal: ``time`` (n,) strictly ascending [s], ``value`` (n,) in SI units, all finite."""

    time: np.ndarray
    value: np.ndarray


@dataclass(frozen=True)
class Segments:
    """Usable spans (start, end) of a recording [s], ascending, and what was left out and why."""

    spans: tuple[tuple[float, float], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)  # arrays have no single truth value: compared by identity
class Recording:
    """One run of the robot.

    ``tree`` has a node per stream: a dataset with coordinate ``time`` [s] and variable ``value``, both with ``units``; ``value``
    also names the ``column`` it was read from. The enable column of command ``goal`` is the node ``goal_enable``. Conditions
    known for the whole run are attributes of the root, in SI units. ``notes`` tell what was dropped or looks suspicious, by
    row (data rows count from 1).
    """

    name: str
    tree: xr.DataTree
    notes: tuple[str, ...]
    path: str

    def has(self, name: str) -> bool:
        """Whether there is a stream of that name."""
        return name in self.tree.children

    def stream(self, name: str) -> Stream:
        """One signal in SI units. Raises RecordingError naming the streams that exist."""
        if not self.has(name):
            raise RecordingError(unknown("stream", name, self.tree.children, where=f"recording '{self.name}'"))
        node = self.tree[name]
        return Stream(node["time"].to_numpy(), node["value"].to_numpy())

    @property
    def conditions(self) -> dict[str, float]:
        """Conditions that hold for the whole run, in SI units."""
        return {str(k): float(v) for k, v in self.tree.attrs.items()}


def read_recordings(
    paths: Iterable[str | Path] | str | Path,
    columns: Columns,
    *,
    conditions: Mapping[str, float | Mapping[str, float]] | None = None,
    mapping: Mapping[str, str] | None = None,
) -> list[Recording]:
    """Read logs through the column map of a simulator, in the order given (a glob pattern: sorted).

    ``paths`` are files or glob patterns. ``mapping`` names another log's columns, as in ``Columns.remap``. ``conditions``
    gives values in the unit the simulator declares, for all recordings (``{"kp": 200}``) or for one, by its name
    (``{"run1": {"kp": 200}}``). A condition is looked for there, then in its column, an NPZ scalar or a ``# kp: 200`` line
    above a CSV's header, and the file name. Names are file names without ending; equal ones get their folder in front.

    Raises RecordingError naming the file, what is wrong with it, and the fix.
    """
    files = _files([paths] if isinstance(paths, str | Path) else list(paths))
    known = columns.remap(mapping or {})
    given = GivenConditions.parse(conditions or {}, columns, list(files))
    return [_read(path, name, known, given.of(name)) for name, path in files.items()]


def _files(patterns: list[str | Path]) -> dict[str, Path]:
    """Recording name to file, each file once."""
    if not patterns:
        raise RecordingError("no recordings given; name at least one file or pattern, like logs/*.csv")
    found: dict[Path, Path] = {}
    for pattern in patterns:
        for path in _matches(str(pattern)):
            found.setdefault(path.resolve(), path)
    stems = [stem(path) for path in found.values()]
    names = [s if stems.count(s) == 1 else f"{p.parent.name}_{s}" for s, p in zip(stems, found, strict=True)]
    for name in names:
        if names.count(name) > 1:
            same = ", ".join(str(p) for n, p in zip(names, found.values(), strict=True) if n == name)
            raise RecordingError(f"several recordings are named '{name}' ({same}); rename the files so that names differ")
    return dict(zip(names, found.values(), strict=True))


def _matches(pattern: str) -> list[Path]:
    try:
        path = Path(pattern).expanduser()
        kind = "folder" if path.is_dir() else "file" if path.exists() else "pattern"
    except (OSError, RuntimeError) as problem:  # a name too long, a home that does not exist
        raise RecordingError(
            f"cannot read recording '{pattern[:80]}': {getattr(problem, 'strerror', None) or problem}; check its path"
        ) from None
    if kind == "folder":
        raise RecordingError(f"'{pattern}' is a folder; name the recordings in it, like '{path / '*.csv'}'")
    if kind == "file":
        return [path]
    # Path.glob takes no absolute patterns
    matches = sorted(Path(p) for p in glob(str(path), recursive=True) if Path(p).is_file())  # noqa: PTH207
    if matches:
        return matches
    if any(c in pattern for c in "*?["):
        raise RecordingError(f"no recording matches '{pattern}'; the folder to look in is '{path.parent}': check the pattern")
    endings = tuple(suffix for reader in readers() for suffix in reader.suffixes)
    siblings = sorted(p.name for p in path.parent.glob("*") if p.name.lower().endswith(endings))[:12]
    raise RecordingError(unknown("recording", path.name, siblings, where=f"'{path.parent}'") + "; name a file, or a pattern like '*.csv'")


def _read(path: Path, name: str, columns: Columns, given: Mapping[str, float]) -> Recording:
    where = f"recording '{name}'"
    table = reader_for(path).read(path)
    time = _column(table, columns.time, where, "time")
    scale, offset = conversion(columns.time_unit, "s", where=f"time of {where}")
    time = scale * time + offset
    signals, fixed, notes = signals_and_conditions(table, columns, given, where, stem(path))
    nodes: dict[str, xr.Dataset] = {"/": xr.Dataset(attrs=fixed)}
    left_out = LeftOut()
    for signal in signals:
        value = signal.scale * _column(table, signal.column, where, signal.name) + signal.offset
        rows = usable(time, value, f"{where}, {signal.name} (column '{signal.column}')")
        left_out.add(signal.name, rows)
        nodes[signal.name] = _dataset(time[rows.used], value[rows.used], signal.si, signal.column)
    return Recording(name, xr.DataTree.from_dict(nodes, name=name), (*table.notes, *notes, *left_out.notes()), str(path))


def _column(table: LogTable, column: str, where: str, name: str) -> np.ndarray:
    if column not in table.columns:
        raise RecordingError(
            unknown("column", column, table.columns, where=where)
            + f"; it should hold '{name}': name the right one with --map {name}=COLUMN"
        )
    return numeric(table.columns[column], f"column '{column}' of {where}")


def _dataset(time: np.ndarray, value: np.ndarray, unit: str, column: str) -> xr.Dataset:
    coordinate = xr.Variable("time", time, attrs={"units": "s"})
    return xr.Dataset({"value": ("time", value, {"units": unit, "column": column})}, coords={"time": coordinate})
