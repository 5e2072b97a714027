"""The contract of every export: a whole file or none, and a failed verdict said inside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sbical.errors import OutputError, RefusedError
from sbical.results.exports import find, registered
from sbical.results.exports.base import FAILED, write_whole
from sbical.results.randomization import Randomization

KINDS = sorted(registered())


def text_of(path: Path) -> str:
    """What a file says, whatever its format."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            return str(archive["sbical_meta"])
    return path.read_text(encoding="utf-8")


def test_the_three_formats_exist() -> None:
    assert {"mjcf", "json", "npz"} <= set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_export_writes_one_file_that_others_may_read(kind: str, tmp_path: Path, randomization: Randomization) -> None:
    path = tmp_path / "new" / f"ranges{find(kind).SUFFIX}"
    assert randomization.export(kind, path) == path
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert path.stat().st_mode & 0o777 == 0o644
    assert FAILED not in text_of(path)


@pytest.mark.parametrize("kind", KINDS)
def test_failed_calibration_is_refused_and_marked_when_forced(kind: str, tmp_path: Path, failed: Randomization) -> None:
    path = tmp_path / f"ranges{find(kind).SUFFIX}"
    with pytest.raises(RefusedError) as caught:
        failed.export(kind, path)
    assert str(caught.value) == (
        "the verdict of this calibration is fail (support: outside -- far): its ranges must not be trained on; follow the remedies in "
        "its report, or export all the same with --force (force=True), which marks the file as failed"
    )
    assert not path.exists()
    failed.export(kind, path, force=True)
    assert FAILED in text_of(path)


@pytest.mark.parametrize("kind", KINDS)
def test_export_leaves_nothing_where_a_file_is_in_the_way(kind: str, tmp_path: Path, randomization: Randomization) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"cannot write '.*/file/ranges': (Not a directory|File exists); choose a path"):
        randomization.export(kind, tmp_path / "file" / "ranges")


def test_unknown_export_names_the_options(tmp_path: Path, randomization: Randomization) -> None:
    with pytest.raises(OutputError) as caught:
        randomization.export("mjfc", tmp_path / "x")
    assert str(caught.value) == "no export 'mjfc'; did you mean 'mjcf'? (valid: json, mjcf, npz)"


def test_a_writer_that_fails_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "ranges.json"
    path.write_text("old")

    def full_disk(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OutputError) as caught:
        write_whole(path, full_disk)
    assert str(caught.value) == f"cannot write '{path}': No space left on device; choose a path in a writable folder with free space"
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["ranges.json"]
