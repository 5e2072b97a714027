"""NumPy logs: one array per column, scalars for the whole run."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from sbical.errors import RecordingError
from sbical.recordings.readers.base import LogTable


class NpzReader:
    """Reads ``.npz``: arrays (n,) are columns, scalars hold for the whole run.

    An array (n, c) becomes the columns ``name[0]`` … ``name[c-1]``. Pickled objects are refused.
    """

    suffixes: tuple[str, ...] = (".npz",)

    def read(self, path: Path) -> LogTable:
        """Columns and scalars by entry name. Raises RecordingError for a file that is not such a log."""
        entries = _entries(path)
        scalars = {name: float(a.reshape(())) for name, a in entries.items() if a.size == 1 and a.dtype.kind in "biuf"}
        arrays = {name: a for name, a in entries.items() if a.ndim > 0 and a.size != 1}
        columns: dict[str, np.ndarray] = {}
        for name, array in arrays.items():
            if array.ndim > 2:
                raise RecordingError(f"recording '{path}': entry '{name}' has shape {array.shape}; save arrays (n,) or (n, columns)")
            columns |= {name: array} if array.ndim == 1 else {f"{name}[{i}]": array[:, i] for i in range(array.shape[1])}
        if not columns:
            raise RecordingError(f"recording '{path}' holds no arrays; save one array (n,) per column, np.savez(path, time=…, position=…)")
        if len({len(a) for a in columns.values()}) > 1:
            lengths = ", ".join(f"{name} {len(a)}" for name, a in arrays.items())
            raise RecordingError(f"recording '{path}' has columns of different length ({lengths}); save one sample of each per time")
        return LogTable(columns, scalars)


def _entries(path: Path) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged is not None:
            raise RecordingError(f"recording '{path}' is cut short or damaged (entry {damaged}); copy it again")
        with np.load(path, allow_pickle=False) as archive:
            names = list(archive.files)
            return {name: _entry(path, archive, name) for name in names}
    except (zipfile.BadZipFile, EOFError, zlib.error, NotImplementedError) as problem:
        raise RecordingError(f"recording '{path}' is not an NPZ file, or is cut short ({problem}); save it again with np.savez") from None
    except OSError as problem:
        raise RecordingError(f"cannot read recording '{path}': {problem.strerror or problem}") from None


def _entry(path: Path, archive: np.lib.npyio.NpzFile, name: str) -> np.ndarray:
    try:
        entry = archive[name]
    except ValueError as problem:
        raise RecordingError(
            f"recording '{path}': entry '{name}' holds Python objects or is no array ({problem}); "
            "pickles are never loaded: save plain numeric arrays, np.asarray(x, float)"
        ) from None
    if not isinstance(entry, np.ndarray):
        raise RecordingError(f"recording '{path}': entry '{name}' is not an array; save it with np.savez")
    return entry
