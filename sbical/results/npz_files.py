"""NPZ files of a run, never pickled: experiment, summary, simulations, replays."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from sbical.errors import OutputError
from sbical.inference.summary import Summary
from sbical.laplace.linear_summary import LinearSummary
from sbical.recordings.experiment import Experiment, JointLayout, Window
from sbical.recordings.held_signal import HeldSignal
from sbical.recordings.initial_state import InitialState, JointSensor
from sbical.simulation.fanout import SimulationSet
from sbical.simulation.replay import Replay, WindowReplay

T = TypeVar("T")


def write(path: Path, arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> None:
    """One compressed NPZ; ``header`` is plain data and travels as JSON text."""
    np.savez_compressed(path, **arrays, header=np.array(json.dumps(header)))  # pyright: ignore[reportArgumentType]


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Whatever a damaged or foreign file makes numpy or us raise, as one OutputError."""
    try:
        yield
    except FileNotFoundError:
        raise OutputError(f"{path} is missing; the calibration is incomplete: calibrate again") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile, zlib.error) as problem:
        raise OutputError(f"{path} is not what sbical left there ({problem}); calibrate again") from None


def _loader(function: Callable[[Path], T]) -> Callable[[Path], T]:
    @wraps(function)
    def load(path: Path) -> T:
        with _reading(path):
            return function(path)

    return load


def read(path: Path) -> tuple[dict[str, np.ndarray], Any]:
    """Arrays and header of a file that ``write`` made. Raises OutputError for anything else."""
    # numpy leaves a file that it cannot read open
    with _reading(path), path.open("rb") as raw:
        if not zipfile.is_zipfile(raw):
            # numpy would take it for a pickle, and say how to load that unsafely
            raise ValueError("no NPZ file, or cut short")
        raw.seek(0)
        with np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        return arrays, json.loads(str(arrays.pop("header")))


def save_experiment(path: Path, experiment: Experiment) -> None:
    """Everything a simulation of the experiment depends on, and what was observed."""
    arrays: dict[str, np.ndarray] = {"qpos0": experiment.layout.qpos0}
    windows = []
    for i, w in enumerate(experiment.windows):
        arrays |= {f"{i}/time": w.time, f"{i}/observed": w.observed, f"{i}/mean": w.initial.mean, f"{i}/factor": w.initial.factor}
        for kind, signals in (("commands", w.commands), ("signals", w.signals)):
            for name, s in signals.items():
                arrays |= {f"{i}/{kind}/{name}/time": s.time, f"{i}/{kind}/{name}/value": s.value}
        windows.append(
            {
                "recording": w.recording, "start": w.start, "opens": w.opens, "constants": dict(w.constants),
                "commands": {n: s.hold for n, s in w.commands.items()}, "signals": {n: s.hold for n, s in w.signals.items()},
            }
        )  # fmt: skip
    layout = {n: [s.kind, s.qpos, s.dof, s.resolution] for n, s in experiment.layout.sensors.items()}
    header = {
        "channels": experiment.channels, "units": experiment.units, "notes": experiment.notes, "windows": windows,
        "layout": layout, "nv": experiment.layout.nv,
    }  # fmt: skip
    write(path, arrays, header)


@_loader
def load_experiment(path: Path) -> Experiment:
    """What ``save_experiment`` wrote. Raises OutputError for anything else."""
    arrays, header = read(path)

    def signals(i: int, kind: str, holds: Mapping[str, Any]) -> dict[str, HeldSignal]:
        return {n: HeldSignal(arrays[f"{i}/{kind}/{n}/time"], arrays[f"{i}/{kind}/{n}/value"], hold) for n, hold in holds.items()}

    windows = tuple(
        Window(
            recording=w["recording"], start=w["start"], time=arrays[f"{i}/time"], observed=arrays[f"{i}/observed"],
            commands=signals(i, "commands", w["commands"]), signals=signals(i, "signals", w["signals"]), constants=w["constants"],
            initial=InitialState(arrays[f"{i}/mean"], arrays[f"{i}/factor"]), opens=w["opens"],
        )
        for i, w in enumerate(header["windows"])
    )  # fmt: skip
    layout = JointLayout({n: JointSensor(*s) for n, s in header["layout"].items()}, arrays["qpos0"], header["nv"])
    return Experiment(windows, tuple(header["channels"]), tuple(header["units"]), layout, tuple(header["notes"]))


def save_summary(path: Path, summary: Summary | LinearSummary) -> None:
    """The summary's frozen arrays."""
    arrays = {f.name: getattr(summary, f.name) for f in fields(summary) if f.name != "labels"}
    write(path, arrays, {"labels": summary.labels, "kind": type(summary).__name__})


@_loader
def load_summary(path: Path) -> Summary | LinearSummary:
    """What ``save_summary`` wrote. Raises OutputError for anything else."""
    arrays, header = read(path)
    kind = {"Summary": Summary, "LinearSummary": LinearSummary}[header["kind"]]
    return kind(**arrays, labels=tuple(header["labels"]))


def save_simulations(path: Path, simulations: SimulationSet, header: Mapping[str, Any]) -> None:
    """Parameters, seeds, status and summaries of every simulation, and what they belong to."""
    if simulations.x is None:
        raise OutputError("only summarised simulations are stored; simulate with a summary")
    arrays = {"theta": simulations.theta, "seeds": simulations.seeds, "status": simulations.status, "x": simulations.x}
    write(path, arrays, {**header, "seconds_per_simulation": simulations.seconds_per_simulation})


@_loader
def load_simulations(path: Path) -> SimulationSet:
    """What ``save_simulations`` wrote. Raises OutputError for anything else."""
    a, header = read(path)
    return SimulationSet(a["theta"], a["seeds"], a["status"], x=a["x"], seconds_per_simulation=header["seconds_per_simulation"])


def save_replays(path: Path, replays: Mapping[str, Replay]) -> None:
    """Several replays; draws in single precision, as they are pictures."""
    arrays, header = {}, {}
    for name, r in replays.items():
        header[name] = {"channels": r.channels, "units": r.units, "windows": [[w.recording, w.start] for w in r.windows]}
        for i, w in enumerate(r.windows):
            arrays |= {f"{name}/{i}/time": w.time, f"{name}/{i}/observed": w.observed, f"{name}/{i}/draws": w.draws.astype(np.float32)}
    write(path, arrays, header)


@_loader
def load_replays(path: Path) -> dict[str, Replay]:
    """What ``save_replays`` wrote. Raises OutputError for anything else."""
    arrays, header = read(path)
    out = {}
    for name, h in header.items():
        windows = tuple(
            WindowReplay(recording, start, *(arrays[f"{name}/{i}/{key}"] for key in ("time", "observed", "draws")))
            for i, (recording, start) in enumerate(h["windows"])
        )
        out[name] = Replay(tuple(h["channels"]), tuple(h["units"]), windows)
    return out
