from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from sbical.errors import RecordingError
from sbical.recordings.readers.npz import NpzReader


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.npz"


def test_arrays_are_columns_and_single_numbers_are_scalars(path: Path) -> None:
    np.savez(path, time=np.arange(3.0), q=np.arange(6.0).reshape(3, 2), kp=100, supply=np.array([7.4]), robot=np.array("b2"))
    table = NpzReader().read(path)
    assert list(table.columns) == ["time", "q[0]", "q[1]"]
    assert table.columns["q[1]"].tolist() == [1.0, 3.0, 5.0]
    assert dict(table.scalars) == {"kp": 100.0, "supply": 7.4}


class _Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("a pickle was loaded",))


def test_pickles_are_never_loaded(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(path, time=np.arange(3.0), q=np.array([_Bomb()], dtype=object), allow_pickle=True)
    with pytest.raises(RecordingError, match=r"entry 'q' holds Python objects.*pickles are never loaded: save plain numeric arrays"):
        NpzReader().read(path)
    path.write_bytes(pickle.dumps(_Bomb()))
    with pytest.raises(RecordingError, match="is not an NPZ file"):
        NpzReader().read(path)
    assert capsys.readouterr().out == ""


def test_arrays_of_different_length(path: Path) -> None:
    np.savez(path, time=np.arange(3.0), q=np.arange(4.0))
    with pytest.raises(RecordingError) as caught:
        NpzReader().read(path)
    assert str(caught.value) == f"recording '{path}' has columns of different length (time 3, q 4); save one sample of each per time"


def test_arrays_of_three_dimensions_and_none_at_all(path: Path) -> None:
    np.savez(path, q=np.zeros((2, 2, 2)))
    with pytest.raises(RecordingError, match=r"entry 'q' has shape \(2, 2, 2\); save arrays \(n,\) or \(n, columns\)"):
        NpzReader().read(path)
    np.savez(path, kp=100.0)
    with pytest.raises(RecordingError, match="holds no arrays"):
        NpzReader().read(path)


def test_a_bare_array_renamed_to_npz(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.arange(3.0))
    with pytest.raises(RecordingError, match="is not an NPZ file"):
        NpzReader().read(path)


def test_a_damaged_entry(path: Path) -> None:
    np.savez_compressed(path, time=np.arange(3000.0))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))
    with pytest.raises(RecordingError, match=r"cut short|damaged"):
        NpzReader().read(path)
