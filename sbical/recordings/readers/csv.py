"""CSV logs, plain or gzip: a header row, one row per sample, and ``# name: value`` lines above it for the whole run."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np

from sbical.errors import RecordingError
from sbical.recordings.readers.base import LogTable

_GZIP = b"\x1f\x8b"
_SCALAR = re.compile(r"#\s*([\w./\[\]-]+)\s*[:=]\s*([-+0-9.eE]+)\s*$")
_SEPARATORS = (",", ";", "\t")
_WORDS = {"": "nan", "na": "nan", "n/a": "nan", "null": "nan", "none": "nan", "true": "1", "false": "0"}


class CsvReader:
    """Reads ``.csv`` and ``.csv.gz``; columns separated by comma, semicolon or tab, numbers with a decimal point."""

    suffixes: tuple[str, ...] = (".csv", ".csv.gz")

    def read(self, path: Path) -> LogTable:
        """Columns by header name, scalars from the comment lines. Raises RecordingError for a file that is not such a log."""
        lines = [line for line in _text(path).splitlines() if line.strip()]
        comments = [line.strip() for line in lines if line.lstrip().startswith("#")]
        rows = [line for line in lines if not line.lstrip().startswith("#")]
        if not rows:
            raise RecordingError(f"recording '{path}' is empty; log again, or leave the file out")
        header, rows = _header(path, comments, rows)
        if not rows:
            raise RecordingError(f"recording '{path}' has a header but no samples; log again, or leave the file out")
        separator = max(_SEPARATORS, key=header.count)
        rows, notes = _even(path, rows, header.count(separator), separator)
        scalars = {m[1]: float(m[2]) for m in map(_SCALAR.match, comments) if m and _is_number(m[2])}
        return LogTable(_parse(path, header, rows, separator), scalars, notes)


def _text(path: Path) -> str:
    """The whole file, unpacked and decoded."""
    try:
        content = path.read_bytes()
        if content.startswith(_GZIP):
            content = gzip.decompress(content)
        elif path.suffix.lower() == ".gz" and content:
            raise RecordingError(f"recording '{path}' ends in .gz but is not gzip; rename it to .csv, or compress it")
    except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
        raise RecordingError(f"recording '{path}' is cut short or damaged ({problem}); copy it again") from None
    except OSError as problem:
        raise RecordingError(f"cannot read recording '{path}': {problem.strerror or problem}") from None
    if b"\x00" in content:
        raise RecordingError(f"recording '{path}' is binary, not CSV text; export the log as UTF-8 CSV, or as NPZ")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise RecordingError(
            f"recording '{path}' is not UTF-8 text (byte {problem.start}); export the log as UTF-8 CSV, or as NPZ"
        ) from None


def _header(path: Path, comments: list[str], rows: list[str]) -> tuple[str, list[str]]:
    """The header line and the rows below it; numpy.savetxt writes the header as a comment."""
    separator = max(_SEPARATORS, key=rows[0].count)
    if not all(_is_number(cell) for cell in rows[0].split(separator)):
        return rows[0], rows[1:]
    named = [c.lstrip("# ") for c in comments if c.count(separator) == rows[0].count(separator) and not _SCALAR.match(c)]
    if not named:
        raise RecordingError(
            f"recording '{path}' has no header: its first row is numbers; write the column names above them, like time,position"
        )
    return named[-1], rows


def _even(path: Path, rows: list[str], count: int, separator: str) -> tuple[list[str], tuple[str, ...]]:
    """Rows with as many cells as the header; a last row that is cut short is left out and noted."""
    notes: tuple[str, ...] = ()
    if rows[-1].count(separator) < count:
        notes = (f"row {len(rows)}, the last, is cut short: dropped",)
        rows = rows[:-1]
    # loggers often end every row, but not the header, with a separator
    rows = [row.rstrip()[:-1] if row.count(separator) == count + 1 and row.rstrip().endswith(separator) else row for row in rows]
    for number, row in enumerate(rows, 1):
        if row.count(separator) > count and '"' not in row:
            raise RecordingError(
                f"recording '{path}': row {number} has {row.count(separator) + 1} cells, the header {count + 1}; "
                "export the log with one cell per column"
            )
    return rows, notes


def _parse(path: Path, header: str, rows: list[str], separator: str) -> dict[str, np.ndarray]:
    names = [name.strip().strip('"').strip() for name in header.split(separator)]
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise RecordingError(f"recording '{path}' has two columns named '{twice[0]}'; rename one in the header")
    try:
        table = list(zip_longest(*csv.reader(rows, delimiter=separator, skipinitialspace=True), fillvalue=""))
    except csv.Error as problem:
        raise RecordingError(f"recording '{path}' is not CSV ({problem}); export the log as UTF-8 CSV, or as NPZ") from None
    table += [("",) * len(rows)] * (len(names) - len(table))
    return {name: _column(cells) for name, cells in zip(names, table, strict=False) if name}


def _column(cells: Sequence[str]) -> np.ndarray:
    """Numbers (n,), or the text of a column that holds something else; empty cells are not a number."""
    try:
        return np.array([float(cell) for cell in cells])
    except ValueError:
        filled = [_WORDS.get(cell.strip().lower(), cell) for cell in cells]
    try:
        return np.array([float(cell) for cell in filled])
    except ValueError:
        return np.array(filled)


def _is_number(cell: str) -> bool:
    try:
        return np.isfinite(float(cell)) or True
    except ValueError:
        return False
