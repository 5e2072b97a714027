"""Which rows of a log are usable, and the notes on those left out; rows count from 1, without the header."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

import numpy as np

from sbical.errors import RecordingError

#: More rows out of order than this share is not jitter: the column is no clock, or the file holds several runs.
MOST_DISORDER = 0.2
#: Fewer samples than this say nothing about motion.
FEWEST_SAMPLES = 10
#: Loggers write the largest float (3.4e38, 1.8e308) for "no value"; no unit makes a robot's reading this large.
LARGEST = 1e30


@dataclass(frozen=True)
class UsableRows:
    """``used`` (k,): indices of usable rows, ascending in time. The others by reason, as indices."""

    used: np.ndarray
    not_finite: np.ndarray
    unsorted: np.ndarray
    repeated: np.ndarray


@dataclass(frozen=True)
class LeftOut:
    """Collects what was left out of each stream, and says once what concerns several."""

    _streams: dict[tuple[str, tuple[int, ...]], list[str]] = field(default_factory=dict)

    def add(self, name: str, rows: UsableRows) -> None:
        """Remember what stream ``name`` lost."""
        for reason, indices in (
            ("without a finite value dropped", rows.not_finite),
            ("out of order, sorted by time", rows.unsorted),
            ("at a time already logged, first kept", rows.repeated),
        ):
            if len(indices):
                self._streams.setdefault((reason, tuple(indices.tolist())), []).append(name)

    def notes(self) -> tuple[str, ...]:
        """``"goal, position: 2 rows out of order, sorted by time (rows 4, 9)"``."""
        return tuple(
            f"{', '.join(names)}: {len(rows)} row{'s' if len(rows) > 1 else ''} {reason} ({named(np.array(rows))})"
            for (reason, rows), names in self._streams.items()
        )


def named(indices: np.ndarray) -> str:
    """``"row 3"``, ``"rows 3, 5, 9, 12, 20 and 7 more"``: the first five, counted from 1."""
    text = ", ".join(str(i + 1) for i in indices[:5])
    more = f" and {len(indices) - 5} more" if len(indices) > 5 else ""
    return f"row{'s' if len(indices) > 1 else ''} {text}{more}"


def numeric(values: np.ndarray, where: str) -> np.ndarray:
    """A column as float64 (n,). Raises RecordingError naming the first row that is not a number."""
    if values.dtype.kind == "c":
        raise RecordingError(f"{where} holds complex numbers; log real ones, or map another column")
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    for i, value in enumerate(values):
        try:
            float(value)
        except (TypeError, ValueError):
            raise RecordingError(f"{where} is not numeric: row {i + 1} holds '{value}'; log numbers, or map another column") from None
    return values.astype(np.float64)


def usable(time: np.ndarray, value: np.ndarray, where: str) -> UsableRows:
    """Rows of one stream with a finite time and value, sorted by time, the first of each time.

    ``time`` and ``value`` (n,). Raises RecordingError if the time is not a clock, or if fewer than ten samples are left.
    """
    finite = (np.abs(time) < LARGEST) & (np.abs(value) < LARGEST)  # False for nan
    kept = np.flatnonzero(finite)
    if len(kept) < FEWEST_SAMPLES:
        raise RecordingError(
            f"{where}: only {len(kept)} usable samples, at least {FEWEST_SAMPLES} are needed; log longer, or leave the recording out"
        )
    unsorted = _out_of_order(time[kept], repeats=True)
    order = kept[np.argsort(time[kept], kind="stable")]
    fresh = np.concatenate([[True], np.diff(time[order]) > 0])
    rows = UsableRows(order[fresh], np.flatnonzero(~finite), kept[unsorted], np.sort(order[~fresh]))
    _check_clock(rows, kept, time, where)
    return rows


def _check_clock(rows: UsableRows, kept: np.ndarray, time: np.ndarray, where: str) -> None:
    time = time[kept]
    steps = kept[1:][np.diff(time) <= 0]
    if time.min() == time.max():
        raise RecordingError(f"{where}: time does not advance, every row is at {time[0]:g} s; map the column that holds the time")
    disorder = len(_out_of_order(time, repeats=False)) if len(rows.unsorted) + len(rows.repeated) else 0
    if disorder > MOST_DISORDER * len(time):
        raise RecordingError(
            f"{where}: time is out of order or repeated in {disorder} of {len(time)} rows, "
            f"and steps back or stands still at {named(steps)}; "
            "split the file if it holds several runs, log time with a finer step, or map the right time column"
        )
    if len(rows.used) < FEWEST_SAMPLES:
        raise RecordingError(
            f"{where}: only {len(rows.used)} different times, at least {FEWEST_SAMPLES} are needed; log longer, or leave it out"
        )


def _out_of_order(time: np.ndarray, *, repeats: bool) -> np.ndarray:
    """Fewest positions whose removal leaves ``time`` ascending, with repeats allowed or not.

    The complement of a longest ascending subsequence (patience sorting), so that one glitch names one row.
    """
    if repeats and np.all(np.diff(time) >= 0):
        return np.zeros(0, dtype=int)
    place = bisect_right if repeats else bisect_left
    tails: list[float] = []
    ends: list[int] = []
    before = np.full(len(time), -1)
    for i, t in enumerate(time.tolist()):
        pile = place(tails, t)
        before[i] = ends[pile - 1] if pile else -1
        if pile == len(tails):
            tails.append(t)
            ends.append(i)
        else:
            tails[pile], ends[pile] = t, i
    ordered = np.zeros(len(time), dtype=bool)
    i = ends[-1]
    while i >= 0:
        ordered[i] = True
        i = int(before[i])
    return np.flatnonzero(~ordered)
