"""A run's output folder: checked before the run, and filled in one move at its end."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sbical.errors import OutputError

#: Free space below which a run is refused at its start [bytes]; a run leaves 5 to 50 MB.
NEEDED = 100_000_000


def check(folder: str | Path, *, overwrite: bool = False) -> None:
    """Whether a run may leave its results here, before it spends minutes on them.

    Raises OutputError if the folder belongs to another run (unless ``overwrite``) or to something else, or if its place
    is read-only or full.
    """
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise OutputError(f"{path} is a file; pass another --output folder")
    if path.is_dir() and any(path.iterdir()):
        if not (path / "provenance.json").is_file():
            raise OutputError(f"{path} holds files that are not a run of sbical; pass an empty or new --output folder")
        if not overwrite:
            raise OutputError(f"{path} holds another run ({_describe(path)}); pass --overwrite to replace it, or another --output folder")
    parent = _existing(path)
    try:
        with tempfile.TemporaryDirectory(dir=parent, prefix=".sbical-"):
            pass
    except OSError as problem:
        raise OutputError(f"cannot write into {parent} ({problem.strerror}); pass an --output folder that is writable") from None
    free = shutil.disk_usage(parent).free
    if free < NEEDED:
        left = f"{parent} has {free / 1e6:.0f} MB left and a run needs {NEEDED / 1e6:.0f}"
        raise OutputError(f"{left}; free some space or pass another --output")


def unfinished(folder: str | Path) -> Path:
    """Where a run keeps its simulations until it is finished: beside its output folder."""
    path = Path(folder)
    path = path if path.name not in ("", "..") else path.resolve()
    return path.parent / f"{path.name}.unfinished"


def finished(folder: str | Path) -> dict[str, Any]:
    """What a finished run says about itself. Raises OutputError if there is none."""
    try:
        return dict(json.loads((Path(folder) / "provenance.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        raise OutputError(
            f"neither a run of sbical lies in {folder}, nor an unfinished one beside it; give the --output folder of a run"
        ) from None


@contextmanager
def filling(folder: str | Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder beside the target that becomes the target when everything in it was written.

    Raises OutputError, leaving what was there untouched, if anything cannot be written.
    """
    check(folder, overwrite=overwrite)
    path = Path(folder)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-"))
    except OSError as problem:
        raise OutputError(f"cannot write into {path.parent} ({problem.strerror}); pass another --output folder") from None
    try:
        yield partial
        partial.chmod(0o755)
        _swap(partial, path)
    except OutputError as problem:
        # nobody has heard of the temporary folder
        raise OutputError(str(problem).replace(str(partial), str(path))) from problem
    except OSError as problem:
        reason = problem.strerror or problem
        raise OutputError(f"cannot write {path} ({reason}); free some space or pass another --output folder") from problem
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _swap(partial: Path, path: Path) -> None:
    """Put the new folder in place; the old one is deleted only after that."""
    if not path.exists():
        partial.replace(path)
        return
    old = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-old-"))
    path.replace(old / "run")
    partial.replace(path)
    shutil.rmtree(old, ignore_errors=True)


def _existing(path: Path) -> Path:
    """The nearest folder that exists."""
    found = path.resolve()
    while not found.is_dir():
        if found.exists():
            raise OutputError(f"{found} is a file; pass another --output folder")
        found = found.parent
    return found


def _describe(path: Path) -> str:
    try:
        provenance = json.loads((path / "provenance.json").read_text(encoding="utf-8"))
        return f"{provenance['simulator']}, {provenance['created']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "unreadable provenance.json"
