from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from sbical.errors import RecordingError
from sbical.recordings.readers.base import LogTable
from sbical.recordings.readers.csv import CsvReader


def read(path: Path, text: str) -> LogTable:
    path.write_text(text, encoding="utf-8")
    return CsvReader().read(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.csv"


@pytest.mark.parametrize("separator", [",", ";", "\t", ", "])
def test_separators(path: Path, separator: str) -> None:
    table = read(path, "\n".join(separator.join(row) for row in (["time", "q"], ["0", "1.5"], ["1", "-2e-3"])))
    assert table.columns["q"].tolist() == [1.5, -0.002]


def test_comment_lines_hold_scalars_and_are_no_rows(path: Path) -> None:
    table = read(path, "# SIMULATED STAND-IN\n# kp: 100\n#supply = 7.4\n# robot: b2\ntime,q\n0,1\n# paused\n1,2\n")
    assert dict(table.scalars) == {"kp": 100.0, "supply": 7.4}
    assert table.columns["q"].tolist() == [1.0, 2.0]


def test_header_written_as_a_comment_like_numpy_savetxt(path: Path) -> None:
    np.savetxt(path, np.array([[0.0, 1.0], [0.1, 2.0]]), delimiter=",", header="time,q")
    assert CsvReader().read(path).columns["q"].tolist() == [1.0, 2.0]


def test_empty_cells_are_not_a_number_and_flags_are_numbers(path: Path) -> None:
    table = read(path, "time,q,on,mode\n0,,True,a\n1,NA,false,b\n2,3,1,\n")
    assert np.array_equal(table.columns["q"], [np.nan, np.nan, 3.0], equal_nan=True)
    assert table.columns["on"].tolist() == [1.0, 0.0, 1.0]
    assert table.columns["mode"].tolist() == ["a", "b", "nan"]


def test_a_trailing_separator_adds_no_column(path: Path) -> None:
    table = read(path, "time,q\n0,1,\n1,2,\n")
    assert list(table.columns) == ["time", "q"]
    assert table.columns["q"].tolist() == [1.0, 2.0]
    assert list(read(path, "time,q,,\n0,1,,\n1,2,,\n").columns) == ["time", "q"]


def test_a_last_row_cut_short_is_dropped_and_noted(path: Path) -> None:
    table = read(path, "time,q,p\n0,1,2\n1,2,3\n2,3")
    assert table.columns["time"].tolist() == [0.0, 1.0]
    assert table.notes == ("row 3, the last, is cut short: dropped",)


def test_byte_order_mark_and_quotes(path: Path) -> None:
    path.write_bytes('\ufeff"time","q"\r\n0,"1"\r\n1,2\r\n'.encode())
    assert CsvReader().read(path).columns["q"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "recording '{path}' is empty; log again, or leave the file out"),
        ("# only a comment\n", "recording '{path}' is empty; log again, or leave the file out"),
        ("time,q\n", "recording '{path}' has a header but no samples; log again, or leave the file out"),
        ("0,1\n1,2\n", "recording '{path}' has no header: its first row is numbers; write the column names above them, like time,position"),
        ("time,q,q\n0,1,2\n", "recording '{path}' has two columns named 'q'; rename one in the header"),
        ("time,q\n0,1\n1,2,3\n", "recording '{path}': row 2 has 3 cells, the header 2; export the log with one cell per column"),
        ("time,q\n0,1\x00\n", "recording '{path}' is binary, not CSV text; export the log as UTF-8 CSV, or as NPZ"),
    ],
)
def test_refusals(path: Path, text: str, message: str) -> None:
    with pytest.raises(RecordingError) as caught:
        read(path, text)
    assert str(caught.value) == message.format(path=path)


def test_latin_1_text_is_named(path: Path) -> None:
    path.write_bytes("time,q [°]\n0,1\n".encode("latin-1"))
    with pytest.raises(RecordingError, match=r"is not UTF-8 text \(byte 8\)"):
        CsvReader().read(path)


def test_truncated_and_false_gzip(tmp_path: Path) -> None:
    path = tmp_path / "run.csv.gz"
    path.write_bytes(gzip.compress(b"time,q\n" + b"0,1\n" * 1000)[:-20])
    with pytest.raises(RecordingError, match="cut short or damaged"):
        CsvReader().read(path)
    path.write_bytes(b"time,q\n0,1\n")
    with pytest.raises(RecordingError, match=r"ends in \.gz but is not gzip; rename it to \.csv"):
        CsvReader().read(path)
