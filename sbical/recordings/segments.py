"""Where a recording can be replayed: between gaps, while the motor is on."""

from __future__ import annotations

import numpy as np

from sbical.errors import RecordingError
from sbical.recordings.column_map import Columns
from sbical.recordings.recording import Recording, Segments, Stream

#: A pause between samples is a gap when it exceeds this many median steps and this time [s]. Jitter of real loggers stays
#: below two steps; a command held over a longer pause is a guess.
GAP_STEPS = 10.0
GAP_SECONDS = 0.1
#: Shorter spans hold too little motion to replay [s].
SHORTEST = 0.25

Interval = tuple[float, float]


def segments(recording: Recording, columns: Columns) -> Segments:
    """Usable spans: every signal present, no gap in any, every motor on.

    Raises RecordingError, with the reasons, if no span of 0.25 s is left.
    """
    names = [c.name for c in columns.items if recording.has(c.name)]
    streams = {name: recording.stream(name) for name in names}
    if not streams:
        raise RecordingError(
            f"recording '{recording.name}' has none of the signals of this simulator; read it with the simulator's columns"
        )
    start, end = max(float(s.time[0]) for s in streams.values()), min(float(s.time[-1]) for s in streams.values())
    gaps, offs = _gaps(streams), _offs(recording, columns)
    notes = [f"no sample of {', '.join(who)} from {a:.3f} to {b:.3f} s (gap of {b - a:.3f} s)" for (a, b), who in gaps.items()]
    notes = _first(notes, "gaps")
    for (a, b), who in offs.items():
        notes.append(f"motor off ({', '.join(f'{name}_enable = 0' for name in who)}) from {max(a, start):.3f} to {min(b, end):.3f} s")
    spans = _without((start, end), [*gaps, *offs])
    short = [f"span from {a:.3f} to {b:.3f} s dropped: shorter than {SHORTEST} s" for a, b in spans if b - a < SHORTEST]
    notes += _first(short, "short spans")
    usable = tuple((a, b) for a, b in spans if b - a >= SHORTEST)
    if not usable:
        why = "; ".join(notes) if notes else f"its signals overlap for {max(end - start, 0.0):.3f} s only"
        raise RecordingError(
            f"recording '{recording.name}' has no usable span ({why}); "
            f"log at least {SHORTEST} s without a gap while the motor is on, or leave the recording out"
        )
    return Segments(usable, tuple(notes))


def _gaps(streams: dict[str, Stream]) -> dict[Interval, list[str]]:
    """Every gap, ascending, with the signals that have it."""
    found: dict[Interval, list[str]] = {}
    for name, stream in streams.items():
        step = np.diff(stream.time)
        limit = max(GAP_STEPS * float(np.median(step)), GAP_SECONDS)
        for i in np.flatnonzero(step > limit):
            found.setdefault((float(stream.time[i]), float(stream.time[i + 1])), []).append(name)
    return dict(sorted(found.items()))


def _offs(recording: Recording, columns: Columns) -> dict[Interval, list[str]]:
    """Times with a motor off, ascending, with the commands: from the last sample that is on to the next one."""
    found: dict[Interval, list[str]] = {}
    for command in columns.commands:
        if not recording.has(f"{command.name}_enable"):
            continue
        enable = recording.stream(f"{command.name}_enable")
        off = np.concatenate([[0], (enable.value < 0.5).astype(int), [0]])
        edges = np.diff(off)
        for first, after in zip(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1), strict=True):
            a = float(enable.time[first - 1]) if first > 0 else -np.inf
            b = float(enable.time[after]) if after < len(enable.time) else np.inf
            found.setdefault((a, b), []).append(command.name)
    return dict(sorted(found.items()))


def _without(whole: Interval, holes: list[Interval]) -> list[Interval]:
    """What is left of an interval outside all holes."""
    left: list[Interval] = []
    cursor, end = whole
    for a, b in sorted(holes):
        if a > cursor:
            left.append((cursor, min(a, end)))
        cursor = max(cursor, b)
    if end > cursor:
        left.append((cursor, end))
    return [(a, b) for a, b in left if b > a]


def _first(notes: list[str], what: str) -> list[str]:
    return notes if len(notes) <= 5 else [*notes[:5], f"and {len(notes) - 5} more {what}"]
