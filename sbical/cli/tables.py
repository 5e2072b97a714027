"""Prints a calibration on the terminal: parameter table, replay errors, verdict, notes, output files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from sbical.checks.base import Verdict
    from sbical.results.calibration import Calibration
    from sbical.results.posterior import Posterior
    from sbical.simulation.replay import Replay

COLOURS = {"pass": "green", "warn": "yellow", "fail": "red"}


def calibration(console: Console, result: Calibration, folder: Path) -> None:
    """Everything a run ends with: parameters, held-out error, verdict, notes, files."""
    parameters(console, result.posterior)
    replay(console, result.holdout_before, result.holdout_after)
    verdict(console, result.verdict)
    notes(console, result.notes)
    files(console, folder)


def parameters(console: Console, posterior: Posterior) -> None:
    """One row per parameter: prior and posterior 90 % ranges, median, contraction."""
    table = Table(box=SIMPLE_HEAD)
    table.add_column("parameter")
    table.add_column("unit")
    for heading in ("prior 90 %", "median", "posterior 90 %", "contraction"):
        table.add_column(heading, justify="right")
    for row in posterior.summary():
        table.add_row(
            escape(row.name),
            escape(row.unit),
            _range(row.prior_low, row.prior_high),
            f"{row.median:.4g}",
            _range(row.low, row.high),
            f"{row.contraction:.2f}",
        )
    console.print(table)


def replay(console: Console, before: Replay | None, after: Replay | None) -> None:
    """Replay error on what was held out, before and after calibration, per channel."""
    if before is None or after is None:
        return
    table = Table("held-out replay", "unit", "RMSE of the prior median", "RMSE of the posterior median", "change", box=SIMPLE_HEAD)
    for channel, unit, old, new in zip(after.channels, after.units, before.rmse().tolist(), after.rmse().tolist(), strict=True):
        change = f"{100 * (new / old - 1):+.0f} %" if old > 0 else ""
        table.add_row(escape(channel), escape(unit), f"{old:.4g}", f"{new:.4g}", f"[{'green' if new < old else 'red'}]{change}[/]")
    console.print(table)


def verdict(console: Console, found: Verdict) -> None:
    """The verdict line by line; a line that names a status has its colour."""
    for line in str(found).splitlines():
        status = next((s for s in COLOURS if f" {s} " in f"{line} "), None)
        console.print(line, style=COLOURS.get(status or "", ""), markup=False, highlight=False, soft_wrap=True)


def notes(console: Console, lines: Sequence[str]) -> None:
    """What was dropped, chosen or suspicious."""
    for line in lines:
        console.print(f"note: {line}", markup=False, highlight=False, soft_wrap=True)


def files(console: Console, folder: Path) -> None:
    """Where the outputs lie."""
    found = sorted(p.name for p in folder.iterdir() if p.is_file())
    first = [n for n in ("report.html",) if n in found]
    console.print(
        f"\nresults in {folder}: {', '.join(first + [n for n in found if n not in first])}", markup=False, highlight=False, soft_wrap=True
    )


def _range(low: float, high: float) -> str:
    return f"{low:.3g} to {high:.3g}"
