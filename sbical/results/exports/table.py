"""The correlated table of draws as NPZ: one float64 column per parameter, opened with numpy alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from sbical.results.exports.base import RandomizationTable, warning, write_whole

NAME: str = "npz"
SUFFIX: str = ".npz"
FORMAT = 1
#: The entry that is no parameter: JSON text about the others.
META = "sbical_meta"


def write(table: RandomizationTable, path: Path) -> None:
    """One array (n,) per parameter in SI units, row i of all of them being one draw, and ``sbical_meta``."""
    meta = {
        "format": FORMAT,
        "names": list(table.names),
        "units": dict(zip(table.names, table.units, strict=True)),
        "verdict": table.status,
        "warning": warning(table),
        "conditions": dict(table.conditions),
        "provenance": dict(table.provenance),
    }
    columns = {name: np.ascontiguousarray(table.draws[:, i], dtype=np.float64) for i, name in enumerate(table.names)}
    columns[META] = np.array(json.dumps(meta))

    def fill(temporary: Path) -> None:
        with temporary.open("wb") as stream:  # a handle, so that numpy appends no suffix of its own
            np.savez(stream, allow_pickle=False, **columns)

    write_whole(path, fill)
