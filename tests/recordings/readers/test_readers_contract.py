"""One contract over all readers."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from sbical.errors import RecordingError
from sbical.recordings.readers import Reader, reader_for, readers, stem

TIME = np.linspace(0.0, 1.0, 21)
POSITION = np.sin(TIME) / 3.0


def write(path: Path) -> None:
    """The same log in any format the package reads."""
    if path.suffix == ".npz":
        np.savez(path, time=TIME, position=POSITION, kp=np.float64(100.0))
        return
    rows = "\n".join(f"{t!r},{p!r}" for t, p in zip(TIME.tolist(), POSITION.tolist(), strict=True))
    text = f"# kp: 100\ntime,position\n{rows}\n".encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


ENDINGS = [(reader, suffix) for reader in readers() for suffix in reader.suffixes]


@pytest.mark.parametrize(("reader", "suffix"), ENDINGS)
def test_every_format_gives_the_same_numbers_bitwise(reader: Reader, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"run.1{suffix}"
    write(path)
    assert type(reader_for(path)) is type(reader)
    assert stem(path) == "run.1"
    table = reader.read(path)
    assert np.array_equal(table.columns["time"], TIME)
    assert np.array_equal(table.columns["position"], POSITION)
    assert dict(table.scalars) == {"kp": 100.0}
    assert table.notes == ()


@pytest.mark.parametrize(("reader", "suffix"), ENDINGS)
@pytest.mark.parametrize(
    "content", [b"", b"\x00\x01\x02\x03" * 50, b"\xff\xfe\xfd" * 50, b"\x1f\x8b\x08\x00", b"PK\x03\x04 broken", b"\n\n"]
)
def test_every_format_refuses_what_it_cannot_read(reader: Reader, suffix: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"run{suffix}"
    path.write_bytes(content)
    with pytest.raises(RecordingError, match="run") as caught:
        reader.read(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(("reader", "suffix"), ENDINGS)
def test_every_format_names_a_file_cut_short(reader: Reader, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"run{suffix}"
    write(path)
    path.write_bytes(path.read_bytes()[:-30])
    if suffix == ".csv":
        table = reader.read(path)
        assert len(table.columns["time"]) < len(TIME)
        return
    with pytest.raises(RecordingError, match="cut short"):
        reader.read(path)


@pytest.mark.parametrize(("reader", "suffix"), ENDINGS)
def test_every_format_names_a_missing_file(reader: Reader, suffix: str, tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"cannot read recording '.*nothing.*': No such file or directory"):
        reader.read(tmp_path / f"nothing{suffix}")


def test_unknown_ending_lists_the_known_ones() -> None:
    with pytest.raises(RecordingError) as caught:
        reader_for(Path("run.mat"))
    assert str(caught.value) == (
        "no reader for 'run.mat'; recordings end in .csv, .csv.gz, .npz: export the log to one of these, "
        "or install a package that adds a reader (entry point group 'sbical.readers')"
    )
