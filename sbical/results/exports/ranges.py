"""Central ranges per parameter as JSON, with every MuJoCo write that each parameter stands for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from sbical.results.exports.base import FieldRange, RandomizationTable, warning, write_whole

NAME: str = "json"
SUFFIX: str = ".json"
FORMAT = 1
#: Rank correlations below this are not worth a line.
NOTABLE = 0.3


def write(table: RandomizationTable, path: Path) -> None:
    """Write ``describe`` as indented JSON."""
    text = json.dumps(describe(table), indent=2) + "\n"
    write_whole(path, lambda temporary: _fill(temporary, text))


def _fill(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def describe(table: RandomizationTable) -> dict[str, Any]:
    """The ranges as plain data; the box they span drops the correlations, which the table keeps and this names."""
    return {
        "format": FORMAT,
        "verdict": table.status,
        "warning": warning(table),
        "kind": f"central {100 * table.mass:g} % range of each parameter by itself; sample rows of the table to keep correlations",
        "mass": table.mass,
        "draws": len(table.draws),
        "conditions": dict(table.conditions),
        "parameters": {name: _parameter(table, i) for i, name in enumerate(table.names)},
        "rank_correlations": _correlations(table),
        "provenance": dict(table.provenance),
    }


def _parameter(table: RandomizationTable, i: int) -> dict[str, Any]:
    name = table.names[i]
    signals = [
        {"effect": s.effect, "family": s.family, "role": s.role, "targets": list(s.targets)}
        for s in table.signal_path
        if s.parameter == name
    ]
    return {
        "unit": table.units[i],
        "low": float(table.low[i]),
        "median": float(table.median[i]),
        "high": float(table.high[i]),
        "writes": [_write(w) for w in table.writes if name in w.parameters],
        "signal_path": signals,
    }


def _write(entry: FieldRange) -> dict[str, Any]:
    return {
        "field": entry.field,
        "index": list(entry.index),
        "object": entry.object,
        "op": entry.op,
        "low": entry.low,
        "median": entry.median,
        "high": entry.high,
        "effect": entry.effect,
        "depends_on": list(entry.parameters),
    }


def _correlations(table: RandomizationTable) -> list[dict[str, Any]]:
    """Spearman rank correlations of all pairs beyond ``NOTABLE``, strongest first."""
    n, d = table.draws.shape
    if n < 3:
        return []
    ranks = table.draws.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable").astype(np.float64)
    ranks -= ranks.mean(axis=0)
    matrix = ranks.T @ ranks / (ranks**2).sum(axis=0)[0]
    pairs = [(i, j) for i in range(d) for j in range(i) if abs(matrix[i, j]) >= NOTABLE]
    pairs.sort(key=lambda p: -abs(matrix[p]))
    return [{"pair": [table.names[j], table.names[i]], "rho": round(float(matrix[i, j]), 3)} for i, j in pairs]
