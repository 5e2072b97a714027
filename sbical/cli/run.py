"""Commands that run simulations or the estimator: calibrate, plan, infer."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rich.console import Console
from tyro.conf import Positional, UseAppendAction, arg

from sbical.cli import values
from sbical.cli.values import Settings, Text
from sbical.common import catalog
from sbical.errors import OutputError, PriorError, RecordingError

if TYPE_CHECKING:
    from sbical.priors.prior import Prior
    from sbical.recordings.recording import Recording
    from sbical.simulation.simulator import Simulator

Mappings = Annotated[tuple[str, ...], UseAppendAction, arg(metavar="NAME=COLUMN", help_behavior_hint="(repeatable)")]


@dataclass(frozen=True)
class Inputs:
    """What calibrate and plan have in common."""

    simulator: Annotated[Positional[str], arg(metavar="SIMULATOR")]
    """Simulator: a name from "sbical list", or a folder that holds simulator.toml and its MJCF."""
    recordings: Annotated[Positional[tuple[str, ...]], arg(metavar="[RECORDING ...]", help_behavior_hint="")] = ()
    """Logs to calibrate on: CSV (plain or .gz) or NPZ files, globs allowed. Without any: the simulator's example."""
    prior: Annotated[Text, arg(metavar="PRIOR")] = ""
    """Prior over the simulator's parameters: a name from "sbical list", or a TOML file. Default: the one simulator.toml names."""
    holdout: Annotated[tuple[str, ...], arg(metavar="RECORDING [RECORDING ...]", help_behavior_hint="")] = ()
    """Files, or names among the recordings, kept out as a test. Default: the last of three or more, else the last quarter in time."""
    set: Settings = ()
    """Known condition: kp=200 for all recordings, run1.kp=200 for run1 alone. It replaces what the log or its name says."""
    map: Mappings = ()
    """Column of this log, where it is not that of simulator.toml: position=joint_pos, position=joint_pos:deg, time=stamp:ms."""
    method: Literal["local", "amortized"] = "local"
    """local: the sharpest posterior of these recordings. amortized: an estimator that "sbical infer" can use for other robots too."""
    simulations: Annotated[int | None, values.number("--simulations", int, 8000), arg(metavar="INT", help_behavior_hint="")] = None
    """Simulations to spend; more give a sharper posterior and take proportionally longer. Default: what the method usually needs."""
    seconds: Annotated[float | None, values.number("--seconds", float, 60), arg(metavar="SECONDS", help_behavior_hint="")] = None
    """Time that the run may take [s], roughly: fewer simulations where it does not suffice. Default: no limit."""
    window: Annotated[float | None, values.number("--window", float, 0.5), arg(metavar="SECONDS", help_behavior_hint="")] = None
    """Cut recordings into windows of this length [s], each restarted from the measured state. Default: simulator.toml's, else whole."""
    workers: Annotated[int, values.number("--workers", int, 2)] = 2
    """Worker processes of the local Dask cluster, one core each."""
    seed: Annotated[int, values.number("--seed", int, 0)] = 0
    """Seed of everything random: the same seed gives the same result for any number of workers."""

    def load(self) -> tuple[Simulator, Prior, list[Recording], list[Recording] | None]:
        """Everything a run needs; the last is what is held out, or None to choose."""
        for option in ("simulations", "workers"):
            value = getattr(self, option)
            if value is not None and value < 1:
                raise RecordingError(f"--{option} {getattr(self, option)} leaves nothing to run; give at least 1")
        from sbical.simulation.simulator_toml import load_simulator

        simulator = load_simulator(self.simulator)
        recordings, holdout = self._recordings(simulator)
        prior = self.prior or simulator.prior
        if not prior:
            raise PriorError(_no_prior(simulator))
        from sbical.priors.prior import load_prior  # torch: only after the cheap mistakes

        return simulator, load_prior(prior), recordings, holdout

    def _recordings(self, simulator: Simulator) -> tuple[list[Recording], list[Recording] | None]:
        from sbical.recordings.recording import read_recordings

        sources = [str(r) for r in self.recordings]
        if not sources and self.holdout:
            raise RecordingError(
                "--holdout without recordings to calibrate on; put those first: sbical calibrate SIMULATOR RECORDING... --holdout ..."
            )
        if not sources:
            sources = [str(p) for p in catalog.examples(self.simulator)]
        if not sources:
            raise RecordingError(f"simulator '{self.simulator}' has no example recordings; give the logs of your robot after its name")
        # read together, so that --set can name any of them
        sources += [item for item, paths in values.files(self.holdout).items() if paths]
        known, renamed = values.conditions(self.set), values.mapping(self.map)
        recordings = read_recordings(sources, simulator.columns, conditions=known, mapping=renamed)
        kept, held = values.split(recordings, self.holdout)
        return kept, held or None


@dataclass(frozen=True)
class Calibrate(Inputs):
    """Calibrate a simulator against recordings of a robot.

    Simulates draws of the prior on a Dask cluster, trains a posterior estimator, conditions it on the recordings, checks
    the result and writes one folder: report.html, posterior.nc (ArviZ), randomization.npz and .json, verdict.json.

    Example: sbical calibrate servo_pendulum run1.csv run2.csv --prior hobby_servo --holdout run3.csv --set kp=200
    """

    scheduler: Annotated[Text, arg(metavar="ADDRESS")] = ""
    """Dask scheduler to use instead of a local cluster, like tcp://host:8786. Its workers need sbical installed."""
    profiler_clock: bool = False
    """Leave MuJoCo's profiler clock on in the workers: the same results, slower. It is off by default."""
    start: Annotated[Text, arg(metavar="RUN")] = ""
    """Folder of an amortized calibration of the same motions, whose answer for these recordings is where the local method begins."""
    output: Annotated[Text, arg(metavar="FOLDER")] = ""
    """Folder for the results. Default: runs/SIMULATOR."""
    overwrite: bool = False
    """Replace an earlier run in the output folder, finished or not."""
    resume: bool = False
    """Go on with a run that was killed or interrupted: simulations that it kept in FOLDER.unfinished are not done again."""

    def run(self, console: Console) -> None:
        """Check the output folder, run, save, and say what came out."""
        from sbical.results import run_folder

        folder = Path(self.output or f"runs/{_stem(self.simulator)}")
        if self.resume and (folder / "provenance.json").is_file() and not run_folder.unfinished(folder).exists():
            raise OutputError(f"{folder} is finished, there is nothing to resume; leave --resume out to calibrate again (--overwrite)")
        run_folder.check(folder, overwrite=self.overwrite)
        store, replaced = self._store(folder)
        simulator, prior, recordings, holdout = self.load()
        from sbical.cli import tables
        from sbical.common.progress import RichProgress
        from sbical.pipeline import calibrate

        with keeping(store, replaced=replaced):
            calibration = calibrate(
                simulator,
                prior,
                recordings,
                holdout=holdout,
                client=self.scheduler or None,
                workers=self.workers,
                method=self.method,
                simulations=self.simulations,
                seconds=self.seconds,
                window=self.window,
                seed=self.seed,
                progress=RichProgress(),
                profiler_clock=self.profiler_clock,
                store=store,
                resume=self.resume,
                start=self.start or None,
            )
            calibration.save(folder, overwrite=self.overwrite)
        tables.calibration(console, calibration, folder)

    def _store(self, folder: Path) -> tuple[Path, bool]:
        """The folder that keeps the simulations until the run is finished, and whether another run's are there to be replaced."""
        from sbical.results import run_folder
        from sbical.simulation import journal

        store = run_folder.unfinished(folder)
        if self.resume:
            journal.describe(store)
            return store, False
        found = journal.is_store(store)
        if found and not self.overwrite:
            began = journal.describe(store)["began"]
            raise OutputError(
                f"{store} holds an unfinished run, begun {began}; go on with it (--resume), start anew (--overwrite), or pass another "
                "--output folder"
            )
        return store, found


@contextmanager
def keeping(store: Path, *, replaced: bool) -> Iterator[None]:
    """Delete the store once the run inside is finished; say how to go on where it is not.

    A store that is to be ``replaced`` is put back where the run ends before it has anything of its own: a mistake costs no simulation.
    """
    from sbical.simulation import journal

    aside = store.with_name(f"{store.name}.replaced")
    if replaced:
        shutil.rmtree(aside, ignore_errors=True)
        store.rename(aside)
    try:
        yield
    except (Exception, KeyboardInterrupt) as problem:
        if replaced and not store.exists():
            aside.rename(store)
        elif journal.is_store(store) and not isinstance(problem, journal.OtherRunError):
            Console(stderr=True).print(
                f"what was simulated is kept in {store}; the same command with --resume goes on from there",
                markup=False, highlight=False, soft_wrap=True,
            )  # fmt: skip
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    shutil.rmtree(store, ignore_errors=True)


@dataclass(frozen=True)
class Plan(Inputs):
    """Say what "sbical calibrate" would replay, simulate and cost, without running it.

    Example: sbical plan servo_pendulum run1.csv --prior hobby_servo
    """

    def run(self, console: Console) -> None:
        """Print the plan."""
        simulator, prior, recordings, holdout = self.load()
        from sbical.pipeline import plan

        planned = plan(
            simulator,
            prior,
            recordings,
            holdout=holdout,
            method=self.method,
            simulations=self.simulations,
            seconds=self.seconds,
            window=self.window,
            seed=self.seed,
            workers=self.workers,
        )
        console.print(str(planned), markup=False, highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class Infer:
    """Infer the parameters of another robot that ran the same protocol, in seconds and without training.

    Example: sbical infer runs/servo_pendulum unit2_*.csv --output unit2.nc
    """

    run_folder: Annotated[Positional[str], arg(metavar="RUN")]
    """Folder of a calibration."""
    recordings: Annotated[Positional[tuple[str, ...]], arg(metavar="RECORDING [RECORDING ...]", help_behavior_hint="")]
    """Logs of the other robot: one for each recording of the calibration, with its commands and conditions."""
    set: Settings = ()
    """Known condition: kp=200, or run1.kp=200 for run1 alone. It replaces what the log or its name says."""
    map: Mappings = ()
    """Column of this log, where it has another name or unit than in simulator.toml."""
    output: Annotated[Text, arg(metavar="FILE.nc")] = ""
    """Write the posterior there (netCDF, opens in ArviZ)."""

    def run(self, console: Console) -> None:
        """Condition, judge and print."""
        target = Path(self.output) if self.output else None
        if target is not None and target.exists():
            raise OutputError(f"{target} exists; give --output another file name, or remove it")
        known, renamed = values.conditions(self.set), values.mapping(self.map)
        from sbical.cli import tables
        from sbical.recordings.recording import read_recordings
        from sbical.results.calibration import load_calibration
        from sbical.results.exports.base import write_whole

        calibration = load_calibration(Path(self.run_folder))
        recordings = read_recordings(self.recordings, calibration.simulator.columns, conditions=known, mapping=renamed)
        inference = calibration.infer(recordings)
        if target is not None:
            write_whole(target, inference.posterior.to_netcdf)
        tables.parameters(console, inference.posterior)
        tables.verdict(console, inference.verdict)
        tables.notes(console, inference.notes)
        if target is not None:
            console.print(f"posterior: {target}", markup=False)


def _stem(simulator: str) -> str:
    """The name of a simulator given by name, folder or file."""
    path = Path(simulator).resolve()
    return path.parent.name if path.name == "simulator.toml" else path.name


def _no_prior(simulator: Simulator) -> str:
    """Which priors of the catalog have every parameter."""
    fitting = []
    for name in catalog.names("prior"):
        with catalog.find("prior", name).open("rb") as stream:
            if set(simulator.parameters.names) <= set(tomllib.load(stream)):
                fitting.append(name)
    options = f"with all its parameters: {', '.join(fitting)}" if fitting else "none of the catalog has all its parameters: write one"
    return f"no prior for simulator '{simulator.name}'; give --prior NAME or --prior FILE.toml ({options})"
