"""Whether a column map is plausible: degrees taken for radians, dead sensors, joints in another sign or order than the model's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from sbical.recordings.column_map import Column, Columns
from sbical.recordings.recording import Recording

#: A joint that travels farther than two turns, or an angle beyond this, is more often a log in degrees [rad].
FARTHEST = 4 * np.pi
LARGE = 20.0
#: Robots are logged between 5 Hz and 50 kHz; other steps [s] are more often another unit of time.
SLOWEST, FASTEST = 0.2, 2e-5
#: Signals are compared on this grid [s], slower than encoder noise and faster than a robot's swing.
GRID = 0.02
#: No more than this much of a recording is compared [s].
LONGEST = 600.0
#: A position may lag its command by this much [s].
LONGEST_LAG = 0.3
#: A torque's effect is believed from this t statistic on: samples of a swing are correlated, and on real double pendulums
#: a joint held by friction reached -5 against its sign.
CERTAIN = 8.0
#: Share of the work that must flow backwards; real double pendulums have shares above -0.05.
TAKEN = 0.3


def implausible_columns(recordings: Sequence[Recording], columns: Columns, pairs: Mapping[str, str] | None = None) -> list[str]:
    """Notes on what looks wrong, each naming recordings and the fix; empty if nothing does.

    ``pairs`` tells which command drives each measurement (``{"q1": "tau1"}``); by default they pair in the order of the
    columns wherever the numbers of commands and measurements of one unit agree. Heuristics: they never stop a run.
    """
    pairs = _in_order(columns) if pairs is None else pairs
    doubts: dict[str, list[str]] = {}
    for recording in recordings:
        read = _as_read(recording, columns)
        for doubt in [*_values(recording, read), *_following(recording, read, pairs), *_pushing(recording, read, pairs)]:
            doubts.setdefault(doubt, []).append(recording.name)
    return [f"{', '.join(names)}: {doubt}" for doubt, names in doubts.items()]


def _as_read(recording: Recording, columns: Columns) -> Columns:
    """The columns under the names that --map gave them for this recording."""
    read = {c.name: recording.tree[c.name]["value"].attrs.get("column", c.column) for c in columns.items if recording.has(c.name)}
    return replace(columns, items=tuple(replace(c, column=read.get(c.name, c.column)) for c in columns.items))


def _in_order(columns: Columns) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for unit in {c.si for c in columns.measurements if re.fullmatch(r"(rad|m)(/s)?", c.si)}:
        measured = [c.name for c in columns.measurements if c.si == unit]
        if len(measured) == len(columns.commands):
            pairs |= dict(zip(measured, [c.name for c in columns.commands], strict=True))
    return pairs


def _values(recording: Recording, columns: Columns) -> list[str]:
    """Units and dead sensors."""
    doubts = []
    reach = [np.abs(recording.stream(c.name).value).max() for c in columns.commands if c.si == "rad" and recording.has(c.name)]
    for item in (c for c in columns.measurements if recording.has(c.name)):
        stream = recording.stream(item.name)
        who, span = f"{item.name} (column '{item.column}')", float(np.ptp(stream.value))
        degrees = f"if it is in degrees: --map {item.name}={item.column}:deg"
        if span == 0.0:
            doubts.append(f"{who} never changes; is the sensor alive, and is it the right column?")
        if item.si == "rad" and span > FARTHEST:
            doubts.append(f"{who} moves over more than two turns; {degrees}")
        elif item.si == "rad" and reach and max(reach) < np.pi and np.abs(stream.value).max() > LARGE:
            doubts.append(f"{who} is far from its command; {degrees}")
    return doubts + _clock(recording, columns)


def _clock(recording: Recording, columns: Columns) -> list[str]:
    steps = [float(np.median(np.diff(recording.stream(c.name).time))) for c in columns.measurements if recording.has(c.name)]
    if steps and not FASTEST < min(steps) < SLOWEST:
        return [f"samples are {min(steps):.3g} s apart; if time is not in {columns.time_unit}: --map time=COLUMN:UNIT, like ms or us"]
    return []


def _following(recording: Recording, columns: Columns, pairs: Mapping[str, str]) -> list[str]:
    """Position commands: a joint follows its own command, with its sign."""
    doubts = []
    driven = [(m, c) for m, c in _present(recording, columns, pairs) if m.si == c.si]
    for measured, command in driven:
        own, opposite = _agreement(recording, measured.name, command.name)
        if opposite > 0.7 and own < 0.2:
            doubts.append(_sign(measured, command))
        others = {c.name: _agreement(recording, measured.name, c.name)[0] for _, c in driven if c.name != command.name}
        best = max(others, key=others.__getitem__, default=None)
        if best is not None and others[best] > 0.7 and others[best] > own + 0.3:
            doubts.append(
                f"{measured.name} (column '{measured.column}') follows {best}, not {command.name}: "
                "joints in another order? swap columns with --map"
            )
    return doubts


def _pushing(recording: Recording, columns: Columns, pairs: Mapping[str, str]) -> list[str]:
    """Torque or force commands: a push accelerates its own joint along itself, and pushes lose energy over a closed motion.

    The inverse of the mass matrix has a positive diagonal, so the effect of a torque on its own joint's acceleration, with
    the other torques held, is positive. And the work of all torques between two rests at one place is what friction took.
    """
    driven = [(m, c) for m, c in _present(recording, columns, pairs) if c.si in ("N m", "N") and m.si in ("rad", "m")]
    grid = _grid(recording, [c.name for pair in driven for c in pair])
    if not driven or len(grid) < 50:
        return []
    position = np.stack([_on(recording, m.name, grid) for m, _ in driven], 1)
    push = np.stack([_on(recording, c.name, grid) for _, c in driven], 1)
    t = _effects(position, push)
    wrong = {i for i in range(len(driven)) if t[i, i] < -CERTAIN} | _taking_energy(position, push)
    doubts = []
    for i in sorted(wrong):
        better = [m.name for j, (m, _) in enumerate(driven) if j != i and t[i, j] > CERTAIN]
        order = f", and {better[0]} moves with it: joints in another order? swap columns with --map" if better else ""
        doubts.append(_sign(*driven[i]) + order)
    return doubts


def _effects(position: np.ndarray, push: np.ndarray) -> np.ndarray:
    """t statistics (m, m) of push i on the acceleration of joint j, both (n, m) on the grid, by least squares.

    Held: gravity of a chain of links, viscous and Coulomb friction, centrifugal terms. Samples of a swing are correlated.
    """
    acceleration = (position[2:] - 2 * position[1:-1] + position[:-2]) / GRID**2
    velocity, here = (position[2:] - position[:-2]) / (2 * GRID), position[1:-1]
    absolute = np.cumsum(here, axis=1)
    regressors = [velocity, np.tanh(velocity / 0.05), np.sin(here), np.sin(absolute), np.cos(absolute), velocity**2]
    products = velocity[:, :-1] * velocity[:, 1:]
    design = np.column_stack([push[1:-1], *regressors, products, np.ones(len(here))])
    inverse = np.linalg.pinv(design.T @ design)
    solution = inverse @ design.T @ acceleration
    residual = acceleration - design @ solution
    k = push.shape[1]
    variance = np.outer(np.diag(inverse)[:k], (residual**2).sum(0) / max(len(design) - design.shape[1], 1))
    return solution[:k] / np.sqrt(np.maximum(variance, 1e-300))


def _taking_energy(position: np.ndarray, push: np.ndarray) -> set[int]:
    """The joint to blame if the pushes (n, m) took energy out of a motion (n, m) that ends where it began."""
    if np.abs(position[-1] - position[0]).max() > 0.3:
        return set()
    work = (push[1:] + push[:-1]) / 2 * np.diff(position, axis=0)
    share = work.sum() / max(np.abs(work).sum(), 1e-300)
    return {int(np.argmin(work.sum(0)))} if share < -TAKEN else set()


def _sign(measured: Column, command: Column) -> str:
    return (
        f"{measured.name} (column '{measured.column}') moves against {command.name} (column '{command.column}'): "
        "another sign than the model? turn the joint's axis in the MJCF, or negate one column"
    )


def _present(recording: Recording, columns: Columns, pairs: Mapping[str, str]) -> list[tuple[Column, Column]]:
    return [(columns.get(m), columns.get(c)) for m, c in pairs.items() if recording.has(m) and recording.has(c)]


def _agreement(recording: Recording, measured: str, command: str) -> tuple[float, float]:
    """Largest correlation and largest anticorrelation of a measurement with a command up to 0.3 s before it, in [0, 1]."""
    grid = _grid(recording, [measured, command])
    lags = range(min(int(LONGEST_LAG / GRID), len(grid) // 4) + 1)
    x, u = _on(recording, measured, grid), _on(recording, command, grid)
    if len(grid) < 50 or np.ptp(x) == 0 or np.ptp(u) == 0:
        return 0.0, 0.0
    r = [_correlation(x[k:], u[: len(u) - k]) for k in lags]
    return max(0.0, *r), max(0.0, *(-v for v in r))


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size > 0 else 0.0


def _grid(recording: Recording, names: Sequence[str]) -> np.ndarray:
    if not names:
        return np.zeros(0)
    times = [recording.stream(name).time for name in names]
    start, end = max(t[0] for t in times), min(t[-1] for t in times)
    # a clock in nanoseconds or a single glitch would ask for more memory than there is
    return np.arange(start, min(end, start + LONGEST), GRID)


def _on(recording: Recording, name: str, grid: np.ndarray) -> np.ndarray:
    stream = recording.stream(name)
    return np.interp(grid, stream.time, stream.value)
