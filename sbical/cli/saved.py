"""Commands that read runs: status, report, compare and export."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import Positional, arg

from sbical.cli import values
from sbical.cli.values import Settings, Text
from sbical.errors import OutputError


@dataclass(frozen=True)
class Status:
    """Say what a run has done, and what is left: also while it runs.

    Example: sbical status runs/servo_pendulum
    """

    run_folder: Annotated[Positional[str], arg(metavar="RUN")]
    """Output folder of a calibration, finished or not."""

    def run(self, console: Console) -> None:
        """Read and print."""
        from sbical.results import run_folder
        from sbical.simulation import journal

        folder = Path(self.run_folder)
        store = folder if journal.is_store(folder) else run_folder.unfinished(folder)
        if journal.is_store(store):
            told, stages = journal.describe(store), journal.stages(store)
            lines = [f"{store}: unfinished, begun {told['began']}: {told['simulator']}, {told['method']}, seed {told['seed']}"]
            lines += [f"  {stage}: {kept} of {asked} simulations, {spent:.0f} s of work" for stage, (kept, asked, spent) in stages.items()]
            lines.append(_left(told["measured"], sum(kept for stage, (kept, _, _) in stages.items() if not stage.startswith("replay"))))
        else:
            told = run_folder.finished(folder)
            lines = [f"{folder}: finished {told['created']}: {told['simulator']}, {told['method']}, {told['simulations']} simulations"]
        console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def _left(measured: Mapping[str, float], kept: int) -> str:
    left = max(int(measured["simulations"]) - kept, 0)
    work = left * measured["seconds_per_simulation"]
    return f"  at most {left} simulations of the budget are left, about {work:.0f} s of work to share between the workers, then the checks"


@dataclass(frozen=True)
class Report:
    """Write the report of a finished run again, for example with another sbical or elsewhere.

    Example: sbical report runs/servo_pendulum --output servo.html
    """

    run_folder: Annotated[Positional[str], arg(metavar="RUN")]
    """Folder of a calibration."""
    output: Annotated[Text, arg(metavar="FILE.html")] = ""
    """Where to write it. Default: report.html in the run's folder, replacing the old one."""

    def run(self, console: Console) -> None:
        """Load and write."""
        from sbical.results.calibration import load_calibration

        path = Path(self.output) if self.output else Path(self.run_folder) / "report.html"
        load_calibration(Path(self.run_folder)).report(path)
        console.print(f"report: {path}", markup=False, soft_wrap=True)


@dataclass(frozen=True)
class Compare:
    """Say which of two simulators explains the same recordings better, by their evidence.

    Both runs must be local calibrations of the same recordings, with simulators whose noise has an explicit likelihood.

    Example: sbical compare runs/plain runs/with_backlash
    """

    first: Annotated[Positional[str], arg(metavar="A")]
    """Folder of a calibration."""
    second: Annotated[Positional[str], arg(metavar="B")]
    """Folder of another one."""

    def run(self, console: Console) -> None:
        """Load both and compare."""
        from sbical.results.calibration import load_calibration
        from sbical.results.compare import compare

        both = [load_calibration(Path(folder)) for folder in (self.first, self.second)]
        console.print(str(compare(*both, names=(self.first, self.second))), markup=False, soft_wrap=True)


@dataclass(frozen=True)
class Export:
    """Write a run's posterior for use elsewhere; refused after a failed verdict unless forced.

    mjcf: the posterior median as an MJCF that loads and compiles. json: the range of each parameter and the MuJoCo fields
    it stands for. npz: the correlated table of draws, one column per parameter.

    Example: sbical export runs/servo_pendulum mjcf calibrated.xml --set kp=200
    """

    run_folder: Annotated[Positional[str], arg(metavar="RUN")]
    """Folder of a calibration."""
    kind: Annotated[Positional[str], arg(metavar="KIND")]
    """mjcf, json, npz, or a format that an installed package adds."""
    path: Annotated[Positional[str], arg(metavar="[FILE]", help_behavior_hint="")] = ""
    """File to write. Default: calibrated.xml, ranges.json or table.npz in the working directory."""
    mass: Annotated[float, values.number("--mass", float, 0.9)] = 0.9
    """Probability that each range holds."""
    set: Settings = ()
    """Condition that the export is for, like kp=200. Default: that of the recordings, the first one's where they differ."""
    force: bool = False
    """Export although the verdict failed; the file then says so."""
    overwrite: bool = False
    """Replace an existing file."""

    def run(self, console: Console) -> None:
        """Load, refuse or write."""
        from sbical.results import exports

        export = exports.find(self.kind)
        default = {"mjcf": "calibrated", "json": "ranges", "npz": "table"}.get(self.kind, self.kind) + export.SUFFIX
        path = Path(self.path or default)
        if path.exists() and not self.overwrite:
            raise OutputError(f"{path} exists; pass --overwrite to replace it, or another file name")
        from sbical.results.calibration import load_calibration

        calibration = load_calibration(Path(self.run_folder))
        known = values.si_conditions(self.set, calibration.simulator.columns)
        randomization = calibration.randomization(mass=self.mass, conditions=known)
        written = randomization.export(self.kind, path, force=self.force)
        mark = " [bold red](FAILED VERDICT: do not use for training)[/]" if randomization.status == "fail" else ""
        console.print(f"{self.kind}: {written}{mark}", soft_wrap=True)
        if randomization.conditions:
            under = ", ".join(f"{name} = {value:g}" for name, value in randomization.conditions.items())
            several = sorted(name for name in calibration.several_conditions if name not in known)
            chosen = f" (the recordings differ in {', '.join(several)}; choose with --set)" if several else ""
            console.print(f"written for {under}{chosen}", markup=False, soft_wrap=True)
