"""The experiment: windows of recordings to replay, with commands, conditions, initial states and sample times."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sbical.errors import ExperimentError
from sbical.recordings.held_signal import HeldSignal
from sbical.recordings.initial_state import InitialState, JointSensor, estimate, widened
from sbical.recordings.segments import segments

if TYPE_CHECKING:
    from sbical.recordings.column_map import Columns
    from sbical.recordings.recording import Recording

#: Faster logs are thinned to about this rate [Hz]: a joint's motion holds no more, and summaries cost in proportion.
HIGHEST_RATE = 250.0
#: Where the likelihood of every sample counts, more of them average more noise out.
LIKELIHOOD_RATE = 1000.0
#: A window with fewer samples shows no motion: a second difference takes three, a state's spread some more.
FEWEST = 5
#: Spread of the initial state of windows that open a recording [rad or m], [rad/s or m/s], so that an amortized posterior
#: serves robots that started the same protocol from almost the same state.
START_SPREAD = (0.01, 0.05)


@dataclass(frozen=True)
class Window:
    """One stretch of one recording, replayed from its measured initial state.

    ``start`` [s] on the recording's clock; ``time`` (T,) sample times [s] since the start; ``observed`` (T, m) in SI units;
    ``commands`` and per-sample ``signals`` on the window's clock; ``constants``: conditions known once per recording.
    """

    recording: str
    start: float
    time: np.ndarray
    observed: np.ndarray
    commands: Mapping[str, HeldSignal]
    signals: Mapping[str, HeldSignal]
    constants: Mapping[str, float]
    initial: InitialState
    opens: bool

    @property
    def duration(self) -> float:
        """Time from the start to the last sample [s]."""
        return float(self.time[-1])


@dataclass(frozen=True)
class JointLayout:
    """What the experiment must know of the robot's model."""

    sensors: Mapping[str, JointSensor]
    qpos0: np.ndarray
    nv: int


@dataclass(frozen=True)
class Experiment:
    """Windows to replay and the measured channels to compare, in order, with their SI units."""

    windows: tuple[Window, ...]
    channels: tuple[str, ...]
    units: tuple[str, ...]
    layout: JointLayout
    notes: tuple[str, ...] = ()

    @property
    def observed(self) -> tuple[np.ndarray, ...]:
        """Measurements per window, each (T, m)."""
        return tuple(w.observed for w in self.windows)

    @property
    def names(self) -> tuple[str, ...]:
        """Recordings that windows are cut from, in order."""
        return tuple(dict.fromkeys(w.recording for w in self.windows))

    @property
    def seconds(self) -> float:
        """Robot time replayed by one simulation [s]."""
        return sum(w.duration for w in self.windows)

    def spread(self) -> Experiment:
        """The same experiment with ``START_SPREAD`` added where a window opens its recording."""
        nq = len(self.layout.qpos0)
        windows = tuple(
            replace(w, initial=widened(w.initial, self.layout.sensors, nq, *START_SPREAD)) if w.opens else w for w in self.windows
        )
        return replace(self, windows=windows)

    def diffuse(self, factor: float) -> Experiment:
        """The same experiment with initial states known ``factor`` times less well."""
        known = [replace(w.initial, factor=factor * w.initial.factor) for w in self.windows]
        return replace(self, windows=tuple(replace(w, initial=i) for w, i in zip(self.windows, known, strict=True)))

    def digest(self) -> str:
        """SHA-256 over everything a simulation depends on."""
        seen = hashlib.sha256(json.dumps([self.channels, self.units]).encode())
        for w in self.windows:
            seen.update(json.dumps([w.start, sorted(w.constants.items())]).encode())
            for array in (w.time, w.observed, w.initial.mean, w.initial.factor):
                seen.update(np.ascontiguousarray(array).tobytes())
            for name, signal in (*sorted(w.commands.items()), *sorted(w.signals.items())):
                seen.update(f"{name} {signal.hold}".encode() + signal.time.tobytes() + signal.value.tobytes())
        return seen.hexdigest()


def build(
    recordings: Sequence[Recording], columns: Columns, layout: JointLayout, *, window: float | None = None, after: float | None = None,
    before: float | None = None, rate: float = HIGHEST_RATE,
) -> Experiment:  # fmt: skip
    """Experiment that replays every usable stretch of the recordings.

    ``window`` [s]: cut stretches into windows of this length, each restarted from the measured state; None replays each
    stretch whole. ``before`` and ``after``: shares of every recording's usable time to leave out at the end or the start.
    ``rate`` [Hz]: faster logs are thinned to it.
    Raises ExperimentError if no stretch is long enough.
    """
    windows: list[Window] = []
    notes: list[str] = []
    for recording in recordings:
        found = segments(recording, columns)
        notes.extend(f"{recording.name}: {n}" for n in found.notes)
        spans = _share(found.spans, after or 0.0, 1.0 if before is None else before)
        first = found.spans[0][0]
        _check_length(recording, columns, window)
        for begin, end in spans:
            for start, stop in _cut(begin, end, window):
                sampled = _samples(recording, columns, start, stop)
                if len(sampled) < FEWEST:
                    notes.append(f"{recording.name}: window from {start:.3f} to {stop:.3f} s dropped: only {len(sampled)} samples")
                    continue
                windows.append(
                    measure_window(recording, columns, layout, start, stop, segment=(begin, end), opens=start == first, rate=rate)
                )
    if not windows:
        wanted = f"{window:g} s" if window else "0.25 s"
        raise ExperimentError(
            f"no usable window of at least {wanted} in {', '.join(r.name for r in recordings)}; "
            f"log longer motions, with at least {FEWEST} samples in every window, or pass another --window"
        )
    names = tuple(c.name for c in columns.measurements)
    return Experiment(tuple(windows), names, tuple(c.si for c in columns.measurements), layout, tuple(notes))


def _check_length(recording: Recording, columns: Columns, window: float | None) -> None:
    """Refuse windows shorter than a sample's step, before cutting millions of them."""
    step = float(np.median(np.diff(recording.stream(columns.measurements[0].name).time)))
    if window is not None and window < step:
        raise ExperimentError(
            f"windows of {window:g} s are too short for recording '{recording.name}', which has a sample every {step:.3g} s: each needs "
            f"{FEWEST}; give a longer --window, or leave it out"
        )


def _share(spans: Sequence[tuple[float, float]], low: float, high: float) -> list[tuple[float, float]]:
    """The part of the spans between two shares of their total length; pieces under 0.25 s are dropped."""
    total, passed, kept = sum(b - a for a, b in spans), 0.0, []
    for a, b in spans:
        first, last = max(a, a + low * total - passed), min(b, a + high * total - passed)
        if last - first >= 0.25:
            kept.append((first, last))
        passed += b - a
    return kept


def _cut(begin: float, end: float, window: float | None) -> list[tuple[float, float]]:
    if window is None:
        return [(begin, end)]
    count = int((end - begin + 1e-9) // window)
    return [(begin + k * window, begin + (k + 1) * window) for k in range(count)]


def measure_window(
    recording: Recording, columns: Columns, layout: JointLayout, start: float, stop: float, *, segment: tuple[float, float], opens: bool,
    rate: float = HIGHEST_RATE,
) -> Window:  # fmt: skip
    """The window from ``start`` to ``stop`` [s]; its initial state is read from samples of ``segment`` only."""
    inside = _samples(recording, columns, start, stop)
    thin = max(1, round(1 / (np.median(np.diff(inside)) * rate)))
    time = inside[::thin]
    measured = {c.name: recording.stream(c.name) for c in columns.measurements}
    observed = np.stack([np.interp(time, s.time, s.value) for s in measured.values()], 1)
    begin, end = segment
    usable = {n: (s.time[(s.time >= begin) & (s.time <= end)], s.value[(s.time >= begin) & (s.time <= end)]) for n, s in measured.items()}
    return Window(
        recording=recording.name,
        start=start,
        time=time - start,
        observed=observed,
        commands={c.name: _held(recording, c.name, c.hold, start, stop) for c in columns.commands},
        signals={c.name: _held(recording, c.name, "linear", start, stop) for c in columns.conditions if recording.has(c.name)},
        constants={n: v for n, v in recording.conditions.items() if not recording.has(n)},
        initial=estimate(start, usable, layout.sensors, layout.qpos0, layout.nv),
        opens=opens,
    )


def _samples(recording: Recording, columns: Columns, start: float, stop: float) -> np.ndarray:
    """Times of the first measured channel from ``start`` to ``stop`` [s]."""
    time = recording.stream(columns.measurements[0].name).time
    return time[(time >= start) & (time <= stop)]


def _held(recording: Recording, name: str, hold: str, start: float, stop: float, margin: float = 0.5) -> HeldSignal:
    """A stream on the window's clock, with the history that a delay may reach into."""
    stream = recording.stream(name)
    low = max(int(np.searchsorted(stream.time, start - margin)) - 1, 0)
    high = int(np.searchsorted(stream.time, stop + 0.1)) + 1
    return HeldSignal(stream.time[low:high] - start, stream.value[low:high], "zoh" if hold == "zoh" else "linear")
