"""Registry of log formats, by the ending of the file name.

Another package adds one through the entry-point group ``sbical.readers``: each entry loads a ``Reader`` object.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path

from sbical.errors import RecordingError
from sbical.recordings.readers.base import LogTable, Reader
from sbical.recordings.readers.csv import CsvReader
from sbical.recordings.readers.npz import NpzReader

__all__ = ["LogTable", "Reader", "reader_for", "readers", "stem"]


@lru_cache(maxsize=1)
def readers() -> tuple[Reader, ...]:
    """All readers; the package's own come first."""
    return (CsvReader(), NpzReader(), *(entry.load() for entry in entry_points(group="sbical.readers")))


def reader_for(path: Path) -> Reader:
    """The reader of a file. Raises RecordingError naming the endings that can be read."""
    for reader in readers():
        if _ending(path, reader):
            return reader
    endings = ", ".join(suffix for reader in readers() for suffix in reader.suffixes)
    raise RecordingError(
        f"no reader for '{path}'; recordings end in {endings}: export the log to one of these, "
        "or install a package that adds a reader (entry point group 'sbical.readers')"
    )


def stem(path: Path) -> str:
    """File name without the ending its reader knows: ``run.csv.gz`` is ``run``."""
    ending = _ending(path, reader_for(path))
    return path.name[: len(path.name) - len(ending)]


def _ending(path: Path, reader: Reader) -> str:
    """The longest suffix of the reader that the file name ends in, or an empty text."""
    return max((s for s in reader.suffixes if path.name.lower().endswith(s)), key=len, default="")
