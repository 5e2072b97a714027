"""Results that outlive an interrupted run: one JSON line per finished robot, in a file named after everything they depend on."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sbical

CACHE = Path.home() / ".cache" / "sbical"
#: Parts of the package that decide no posterior.
APART = ("cli", "recordings/readers", "results/exports", "results/report")


def method() -> str:
    """SHA-256 over the package's code, comments and layout left out: results of different methods must not be mixed."""
    root = Path(sbical.__file__).parent
    seen = hashlib.sha256(sbical.__version__.encode())
    for path in sorted(root.rglob("*.py")):
        if not path.relative_to(root).as_posix().startswith(APART):
            seen.update(ast.dump(ast.parse(path.read_text(encoding="utf-8"))).encode())
    return seen.hexdigest()


def fingerprint(*parts: str) -> str:
    """A short name for all that a result depends on, the method included."""
    return hashlib.sha256("\0".join((method(), *parts)).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Kept:
    """A file of rows, each a JSON object with the seed of its robot."""

    path: Path

    def rows(self) -> dict[int, dict[str, Any]]:
        """Finished robots by seed."""
        return {row["seed"]: row for row in self._read()}

    def add(self, row: Mapping[str, Any]) -> None:
        """Append one robot; a line that an interruption cut short is left behind."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        torn = self.path.exists() and not self.path.read_bytes().endswith(b"\n")
        with self.path.open("a", encoding="utf-8") as file:
            file.write(("\n" if torn else "") + json.dumps(row) + "\n")

    def _read(self) -> Iterator[dict[str, Any]]:
        if not self.path.exists():
            return
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue
