"""The experiment of another robot that ran the same protocol, on the windows and sample times of a calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sbical.errors import ExperimentError
from sbical.recordings.experiment import Experiment, Window, measure_window
from sbical.recordings.segments import segments

if TYPE_CHECKING:
    from sbical.recordings.column_map import Columns
    from sbical.recordings.recording import Recording

#: Commands count as the same when they differ by less than this share of their range (root mean square).
TOLERANCE = 0.02
#: Conditions that are logged per sample may differ by this share of their size (root mean square): a supply sags with its load.
CONDITION_TOLERANCE = 0.05


def experiment_on_protocol(experiment: Experiment, recordings: Sequence[Recording], columns: Columns) -> Experiment:
    """The experiment with the measurements and initial states of other recordings of the same protocol.

    Each recording of the experiment is matched with the new one that has its conditions and commands; the new measurements
    are read at the experiment's sample times. Raises ExperimentError that names what differs.
    """
    first_starts: dict[str, float] = {}
    for w in experiment.windows:
        first_starts.setdefault(w.recording, w.start)
    # over all windows: a command that rests in one of them has no range there
    ranges = {c.name: float(np.ptp(np.concatenate([w.commands[c.name].value for w in experiment.windows]))) for c in columns.commands}
    windows: list[Window] = []
    used: list[str] = []
    for name, origin in first_starts.items():
        mine = [w for w in experiment.windows if w.recording == name]
        candidates = [r for r in recordings if r.name not in used]
        matched, reasons = None, []
        for recording in candidates:
            shift = segments(recording, columns).spans[0][0] - origin
            trial = [_reread(w, recording, columns, experiment, shift) for w in mine]
            problem = next((p for w, t in zip(mine, trial, strict=True) if (p := _difference(w, t, columns, ranges))), None)
            if problem is None:
                matched = recording.name
                windows.extend(t for t in trial if t is not None)
                break
            reasons.append(f"{recording.name}: {problem}")
        if matched is None:
            why = "; ".join(reasons) or "none is left for it"
            raise ExperimentError(
                f"no recording ran the protocol of '{name}' ({why}); an amortized calibration serves "
                "robots that repeat its commands and conditions. Record the same motions, or calibrate this robot on its own"
            )
        used.append(matched)
    return replace(experiment, windows=tuple(windows), notes=())


def _reread(window: Window, recording: Recording, columns: Columns, experiment: Experiment, shift: float) -> Window | None:
    """The window's stretch of another recording, measured at the window's sample times; None if that recording is too short."""
    start = window.start + shift
    stop = start + window.duration
    first = recording.stream(columns.measurements[0].name).time
    step = float(np.median(np.diff(first)))
    if first[0] > start + step or first[-1] < stop - 2 * step:
        return None
    new = measure_window(recording, columns, experiment.layout, start, stop, segment=(start - 0.1, stop + 0.1), opens=window.opens)
    streams = [recording.stream(c.name) for c in columns.measurements]
    observed = np.stack([np.interp(start + window.time, s.time, s.value) for s in streams], 1)
    return replace(new, time=window.time, observed=observed)


def _difference(mine: Window, other: Window | None, columns: Columns, ranges: Mapping[str, float]) -> str | None:
    """Why two windows are not the same protocol, or None."""
    if other is None:
        return f"too short for the window at {mine.start:.2f} s that lasts {mine.duration:.2f} s"
    for name, value in mine.constants.items():
        if name not in other.constants:
            return f"its {name} is logged per sample instead of {value:g} throughout"
        if not np.isclose(other.constants[name], value, rtol=0.02):
            return f"{name} = {other.constants[name]:g} instead of {value:g}"
    edges = np.linspace(0.0, mine.duration, 200)
    for command in columns.commands:
        ours, theirs = mine.commands[command.name].averages(edges), other.commands[command.name].averages(edges)
        error, limit = float(np.sqrt(np.mean((ours - theirs) ** 2))), max(TOLERANCE * ranges[command.name], 1e-9)
        if error > limit:
            return f"its {command.name} differs by {error:.3g} {command.si} rms (tolerance {limit:.3g})"
    for name, signal in mine.signals.items():
        if name not in other.signals:
            return f"its {name} is not logged per sample"
        ours, theirs = signal.averages(edges), other.signals[name].averages(edges)
        error, limit = float(np.sqrt(np.mean((ours - theirs) ** 2))), CONDITION_TOLERANCE * float(np.sqrt(np.mean(ours**2)))
        if error > limit:
            return f"its {name} differs by {error:.3g} {columns.get(name).si} rms (tolerance {limit:.3g})"
    return None
