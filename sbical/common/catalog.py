"""The catalog of simulators and priors: plain files, found in the wheel or beside the package in a checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from sbical.errors import CatalogError, unknown

Kind = Literal["simulator", "prior"]

_FOLDERS: dict[str, str] = {"simulator": "simulators", "prior": "priors"}


def folder(kind: Kind) -> Path:
    """Folder that holds the catalog's entries of one kind.

    Raises CatalogError if the package was installed without its catalog.
    """
    package = Path(__file__).resolve().parents[1]
    for root in (package / "_catalog", package.parent):
        candidate = root / _FOLDERS[kind]
        if candidate.is_dir():
            return candidate
    raise CatalogError(f"the {kind} catalog is missing from {package}; reinstall sbical, or pass a path instead of a name")


def names(kind: Kind) -> tuple[str, ...]:
    """Sorted names of the catalog's entries of one kind."""
    if kind == "simulator":
        return tuple(sorted(p.parent.name for p in folder(kind).glob("*/simulator.toml")))
    return tuple(sorted(p.stem for p in folder(kind).glob("*.toml")))


def find(kind: Kind, name_or_path: str | Path) -> Path:
    """The TOML file of a simulator or prior, by catalog name or by path (a simulator's folder or its file).

    Raises CatalogError naming the entries that exist.
    """
    path = Path(name_or_path)
    try:
        if path.is_dir() and kind == "simulator" and (path / "simulator.toml").is_file():
            return path / "simulator.toml"
        if path.is_file():
            return path
    except OSError as problem:  # a name too long, a folder that must not be entered
        raise CatalogError(f"no {kind} at '{str(path)[:80]}' ({problem.strerror}); give a catalog name: {', '.join(names(kind))}") from None
    name = str(name_or_path)
    if name in names(kind):
        return folder(kind) / name / "simulator.toml" if kind == "simulator" else folder(kind) / f"{name}.toml"
    if path.suffix or "/" in name:
        what = "simulator.toml, or a folder that holds one" if kind == "simulator" else "a prior's TOML file"
        raise CatalogError(f"no {kind} at '{name}'; give {what}, or a catalog name: {', '.join(names(kind))}")
    raise CatalogError(unknown(kind, name, names(kind), where="the catalog") + ", or give a path")


def examples(simulator: str | Path) -> tuple[Path, ...]:
    """Example recordings shipped with a simulator, sorted; stand-in robots, never real ones."""
    example = find("simulator", simulator).parent / "example"
    return tuple(sorted(p for p in example.glob("*") if p.is_file() and p.suffix in {".csv", ".gz", ".npz"}))
