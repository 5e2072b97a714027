"""An output folder is checked before the run, and appears whole or not at all."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from sbical.errors import OutputError
from sbical.results import run_folder


def fill(folder: Path, what: str, *, overwrite: bool = False) -> None:
    with run_folder.filling(folder, overwrite=overwrite) as partial:
        (partial / "provenance.json").write_text(json.dumps({"simulator": what, "created": "today"}))


def leftovers(folder: Path) -> list[str]:
    return [p.name for p in folder.iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize("before", ["nothing", "an empty folder", "no parent"])
def test_folder_appears_whole(tmp_path: Path, before: str) -> None:
    target = tmp_path / "runs" / "arm" if before == "no parent" else tmp_path / "arm"
    if before == "an empty folder":
        target.mkdir()
    with run_folder.filling(target) as partial:
        (partial / "a.txt").write_text("a")
        assert not (target / "a.txt").exists()
        assert partial.parent == target.parent
    assert [p.name for p in target.iterdir()] == ["a.txt"]
    assert target.stat().st_mode & 0o777 == 0o755
    assert leftovers(target.parent) == []


def test_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fill(Path("arm"), "servo")
    assert (tmp_path / "arm" / "provenance.json").is_file()


def test_another_run_is_replaced_only_when_asked(tmp_path: Path) -> None:
    target = tmp_path / "arm"
    fill(target, "servo")
    (target / "old.txt").touch()
    for attempt in (lambda: run_folder.check(target), lambda: fill(target, "pendulum")):
        with pytest.raises(OutputError) as caught:
            attempt()
        assert str(caught.value) == f"{target} holds another run (servo, today); pass --overwrite to replace it, or another --output folder"
    run_folder.check(target, overwrite=True)
    fill(target, "pendulum", overwrite=True)
    assert [p.name for p in target.iterdir()] == ["provenance.json"]
    assert "pendulum" in (target / "provenance.json").read_text()
    assert leftovers(tmp_path) == []


def test_run_with_unreadable_provenance_is_still_a_run(tmp_path: Path) -> None:
    (tmp_path / "provenance.json").write_text("{")
    with pytest.raises(OutputError, match=r"holds another run \(unreadable provenance\.json\); pass --overwrite"):
        run_folder.check(tmp_path)


@pytest.mark.parametrize("overwrite", [False, True])
def test_foreign_files_are_never_replaced(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(OutputError) as caught:
        run_folder.check(tmp_path, overwrite=overwrite)
    assert str(caught.value) == f"{tmp_path} holds files that are not a run of sbical; pass an empty or new --output folder"


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_file_in_the_way(tmp_path: Path, below: str) -> None:
    blocker = tmp_path / "arm"
    blocker.touch()
    with pytest.raises(OutputError, match=rf"^{blocker} is a file; pass another --output folder$"):
        run_folder.check(blocker / below)


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise PermissionError(13, "Permission denied")


def test_read_only_place_is_found_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "mkdtemp", _refuse)
    with pytest.raises(OutputError) as caught:
        run_folder.check(tmp_path / "runs" / "arm")
    assert str(caught.value) == f"cannot write into {tmp_path} (Permission denied); pass an --output folder that is writable"
    assert list(tmp_path.iterdir()) == []


def test_full_disk_is_found_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=3e6))
    with pytest.raises(OutputError) as caught:
        run_folder.check(tmp_path / "arm")
    assert str(caught.value) == f"{tmp_path} has 3 MB left and a run needs 100; free some space or pass another --output"


def _full(folder: Path) -> None:
    with run_folder.filling(folder, overwrite=True) as partial:
        (partial / "half.txt").touch()
        raise OSError(28, "No space left on device")


def _interrupted(folder: Path) -> None:
    with run_folder.filling(folder, overwrite=True) as partial:
        (partial / "half.txt").touch()
        raise KeyboardInterrupt


@pytest.mark.parametrize(("failing", "error"), [(_full, OutputError), (_interrupted, KeyboardInterrupt)])
def test_failure_leaves_what_was_there(tmp_path: Path, failing: Callable[[Path], None], error: type[BaseException]) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    fill(old, "servo")
    for target in (old, new):
        with pytest.raises(error) as caught:
            failing(target)
        if error is OutputError:
            assert str(caught.value) == (
                f"cannot write {target} (No space left on device); free some space or pass another --output folder"
            )
    assert [p.name for p in old.iterdir()] == ["provenance.json"]
    assert not new.exists()
    assert leftovers(tmp_path) == []
