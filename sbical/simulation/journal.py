"""On-disk store (Zarr) of an unfinished run's simulations, so that a resumed run does not simulate them again.

A Zarr group: its attributes say which run it belongs to, and each batch of simulations is a group of its own, named after
everything that its results depend on. A resumed run does the same again from its beginning and asks for the same batches; what is
kept is read, what is missing is simulated. Only the client writes, one chunk of rows after the other and each atomically; a chunk
counts once its status is there, which is written last.
"""

from __future__ import annotations

import datetime
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from sbical.errors import OutputError

#: Layout of the store; another one is refused.
FORMAT = 1
#: Status of a simulation that has not arrived.
MISSING = -1

#: What every store says about its run: what identifies it to a reader, and what the run measured.
TOLD = ("began", "simulator", "method", "seed", "measured")

#: What a user calls those entries that are kept as hashes.
WORDS = {
    "simulator_sha256": "the model or simulator.toml", "experiment_sha256": "the recordings or the window",
    "holdout_sha256": "what is held out", "prior_sha256": "the prior", "start_sha256": "the start",
}  # fmt: skip

#: What a chunk of rows brought: its first row, results (one array, or one per window), status (rows, windows), seconds that it took.
Part = tuple[int, Any, np.ndarray, float]


class OtherRunError(OutputError):
    """A store that belongs to another run."""


@dataclass(frozen=True, eq=False)
class Journal:
    """The store of one run, in ``folder``; see ``begin`` and ``resume``."""

    folder: Path
    run: Mapping[str, Any]

    @classmethod
    def begin(cls, folder: str | Path, run: Mapping[str, Any]) -> Journal:
        """A new store for the run that ``run`` (plain data) describes; nothing is written before the first simulation.

        Raises OutputError if the folder holds anything, or if there can be none.
        """
        path = Path(folder)
        place = next(p for p in (path.absolute(), *path.absolute().parents) if p.exists())
        if not path.exists() and not (place.is_dir() and os.access(place, os.W_OK)):
            raise OutputError(
                f"no store can be made at {path}: {place} is {'read-only' if place.is_dir() else 'a file'}; choose another place"
            )
        if path.is_file() or (path.is_dir() and any(path.iterdir())):
            kept = (
                "an unfinished run: go on with it (--resume, resume=True), or remove it"
                if is_store(path)
                else "something else: choose another place"
            )
            raise OutputError(f"{path} holds {kept}")
        return cls(path, {"format": FORMAT, "began": _now(), **run})

    @classmethod
    def resume(cls, folder: str | Path, run: Mapping[str, Any]) -> Journal:
        """The store of an earlier attempt at the same run.

        Raises OutputError if there is none, and OtherRunError if it belongs to another run.
        """
        kept = describe(folder)
        told = {"format": FORMAT, **run}
        other = [
            f"{WORDS[key]} differ" if key in WORDS else f"{key} was {kept.get(key)!r:.60}, is {value!r:.60}"
            for key, value in told.items()
            if kept.get(key) != value
        ]
        if other:
            raise OtherRunError(
                f"{folder} belongs to another run ({'; '.join(other)}); give all that that run was given, or start anew (--overwrite)"
            )
        return cls(Path(folder), kept)

    def batch(self, stage: str, depends_on: bytes, rows: int, chunk: int) -> Batch:
        """The batch whose results depend on ``depends_on``: kept rows, and room for the others in chunks of ``chunk`` rows."""
        name = hashlib.sha256(depends_on).hexdigest()[:32]
        path = self.folder / name
        if _created(path):
            with _reading(path):
                attributes = zarr.open_group(path, mode="r").attrs
                return Batch(path, rows, int(attributes["chunk"]), stage)  # pyright: ignore[reportArgumentType]
        if not (self.folder / "zarr.json").is_file():
            zarr.create_group(self.folder, attributes=dict(self.run))
        return Batch(path, rows, chunk, stage)


@dataclass(frozen=True, eq=False)
class Batch:
    """Results of ``rows`` simulations in chunks of ``chunk`` rows, each written whole."""

    path: Path
    rows: int
    chunk: int
    stage: str

    def kept(self) -> dict[int, Part]:
        """Chunks that are complete, by their first row. Raises OutputError if what is kept was damaged."""
        if not _created(self.path):
            return {}
        with _reading(self.path):
            return self._kept()

    def _kept(self) -> dict[int, Part]:
        group = zarr.open_group(self.path, mode="r")
        status, seconds = _array(group, "status")[:], _array(group, "seconds")[:]
        first = [low for low in range(0, self.rows, self.chunk) if status[low, 0] != MISSING]
        several, names = bool(group.attrs["several"]), sorted((n for n in group.array_keys() if n.isdigit()), key=int)

        def results(low: int) -> Any:
            parts = tuple(_array(group, n)[low : low + self.chunk] for n in names)
            return parts if several else parts[0]

        found = {low: (low, results(low), status[low : low + self.chunk], float(seconds[low // self.chunk])) for low in first}
        for low, values, failed, _ in found.values():
            arrays = values if several else (values,)
            if not all(np.isfinite(a[(failed == 0).all(1)]).all() for a in arrays):
                raise ValueError(f"results of the chunk from row {low} are missing")
        return found

    def add(self, part: Part) -> None:
        """Keep one chunk: results first, then the status by which it counts."""
        first, results, status, seconds = part
        arrays = results if isinstance(results, tuple) else (results,)
        if not _created(self.path):
            self._create(arrays, status, several=isinstance(results, tuple))
        group, rows = zarr.open_group(self.path, mode="r+"), slice(first, first + len(status))
        for i, array in enumerate(arrays):
            _array(group, str(i))[rows] = array
        _array(group, "seconds")[first // self.chunk] = seconds
        _array(group, "status")[rows] = status

    def _create(self, arrays: tuple[np.ndarray, ...], status: np.ndarray, *, several: bool) -> None:
        group = zarr.open_group(self.path, mode="w", attributes={"chunk": self.chunk, "several": several, "stage": self.stage})
        chunk = min(self.chunk, self.rows)
        for i, a in enumerate(arrays):
            # compressed, single-precision motion is hardly smaller, and takes longer
            shape, chunks = (self.rows, *a.shape[1:]), (chunk, *a.shape[1:])
            group.create_array(str(i), shape=shape, chunks=chunks, dtype=a.dtype, compressors=None, fill_value=np.nan)
        group.create_array("seconds", shape=(-(-self.rows // self.chunk),), chunks=(1,), dtype=np.float64)
        shape = (self.rows, *status.shape[1:])
        group.create_array("status", shape=shape, chunks=(chunk, *status.shape[1:]), dtype=status.dtype, fill_value=MISSING)


def is_store(folder: str | Path) -> bool:
    """Whether the folder is the store of an unfinished run."""
    try:
        describe(folder)
    except OutputError:
        return False
    return True


def describe(folder: str | Path) -> dict[str, Any]:
    """What a store says about its run. Raises OutputError for anything else."""
    if not (Path(folder) / "zarr.json").exists():
        raise OutputError(f"there is no unfinished run at {folder}; start one without --resume")
    try:
        attributes = dict(zarr.open_group(Path(folder), mode="r").attrs)
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise OutputError(f"{Path(folder) / 'zarr.json'} is damaged ({type(problem).__name__}); remove {folder} and start anew") from None
    if attributes.get("format") != FORMAT:
        raise OutputError(f"{folder} is no store of this version of sbical; remove it and start anew")
    lost = [name for name in TOLD if name not in attributes]
    measured: Any = attributes.get("measured", {})
    lost += sorted({"simulations", "seconds_per_simulation"} - set(measured)) if "measured" not in lost else []
    if lost:
        raise OutputError(f"{folder} is damaged, it has lost {', '.join(lost)}; remove it and start anew")
    return attributes


def stages(folder: str | Path) -> dict[str, tuple[int, int, float]]:
    """Simulations that are kept, those asked for, and the time [s] that they took, by stage in the order of the run.

    Raises OutputError if what is kept was damaged.
    """
    found: dict[str, tuple[int, int, float]] = {}
    for path in sorted(filter(_created, Path(folder).iterdir()), key=lambda p: (p / "status" / "zarr.json").stat().st_mtime_ns):
        with _reading(path):
            group = zarr.open_group(path, mode="r")
            stage, status = str(group.attrs["stage"]), _array(group, "status")[:]
            new = int((status[:, 0] != MISSING).sum()), len(status), float(_array(group, "seconds")[:].sum())
        before = found.get(stage, (0, 0, 0.0))
        found[stage] = (before[0] + new[0], before[1] + new[1], before[2] + new[2])
    return found


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Whatever a damaged batch makes Zarr raise, as one OutputError that says how to go on."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RuntimeError) as problem:
        what = f"{type(problem).__name__}: {problem}"
        raise OutputError(f"{path} is damaged ({what:.200}); remove that folder, and its simulations are done again") from None


def _created(path: Path) -> bool:
    """Whether a batch has all its arrays: the status is the last."""
    return (path / "status" / "zarr.json").is_file()


def _array(group: zarr.Group, name: str) -> Any:
    """An array of a group; Zarr's own types do not say what indexing gives."""
    return group[name]


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
