"""What a long run tells its user while it runs: stages, rate, time left.

The line calls ``progress.stage("simulate", total=6000)`` as a context manager and ``advance`` inside it. Nothing here
knows what is being counted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, Task, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

#: Seconds between two plain lines of one stage, where there is no terminal to redraw a bar on.
PLAIN_INTERVAL = 5.0


class Stage(Protocol):
    """One stage that is running."""

    def advance(self, n: int = 1, note: str = "") -> None:
        """``n`` more are done; ``note`` replaces the short text beside the bar (an empty one keeps it)."""
        ...


class Progress(Protocol):
    """Where a run reports to."""

    def stage(self, name: str, total: int | None) -> AbstractContextManager[Stage]:
        """Open a stage of ``total`` units (None: not known beforehand). Stages may nest."""
        ...

    def note(self, text: str) -> None:
        """One line that stays: what was dropped, chosen or suspicious."""
        ...


class _NullStage:
    def advance(self, n: int = 1, note: str = "") -> None:
        """Nothing to show."""


class NullProgress:
    """Says nothing; the default of the Python API."""

    @contextmanager
    def stage(self, name: str, total: int | None) -> Iterator[Stage]:
        """A stage that shows nothing."""
        yield _NullStage()

    def note(self, text: str) -> None:
        """Nothing to show."""


class RichProgress:
    """Bars with rate, percent and time left on a terminal; plain lines elsewhere, at most one per 5 s and stage.

    ``clock`` (seconds, monotonic) and ``interval`` exist for tests.
    """

    def __init__(
        self, console: Console | None = None, *, clock: Callable[[], float] = time.monotonic, interval: float = PLAIN_INTERVAL
    ) -> None:
        self._console = Console(stderr=True) if console is None else console
        self._clock = clock
        self._interval = interval
        self._bars: Bars | None = None
        self._depth = 0

    @contextmanager
    def stage(self, name: str, total: int | None) -> Iterator[Stage]:
        """Show a stage until the context ends; an interrupted stage leaves its bar where it stopped."""
        if not self._console.is_terminal:
            line = _PlainStage(self._console, name, total, self._clock, self._interval)
            line.begin()
            yield line
            line.end()
            return
        bars = self._open()
        try:
            task = bars.add_task(escape(name), total=total, note="")
            yield _BarStage(bars, task)
            if total is None:  # a spinner of unknown length ends as done
                count = _task(bars, task).completed
                bars.update(task, total=max(count, 1), completed=max(count, 1))
        finally:
            self._close(bars)

    def note(self, text: str) -> None:
        """Print one line above the bars."""
        self._console.print(escape(text), highlight=False, soft_wrap=True)

    def _open(self) -> Bars:
        # One live display for nested stages: a console can redraw only one.
        if self._bars is None:
            self._bars = Bars(
                SpinnerColumn(finished_text="[green]✓"),
                TextColumn("{task.description:<18}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.percentage:>3.0f}%"),
                _RateColumn(),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                TextColumn("[dim]{task.fields[note]}"),
                console=self._console,
            )
            self._bars.start()
        self._depth += 1
        return self._bars

    def _close(self, bars: Bars) -> None:
        self._depth -= 1
        if self._depth == 0:
            bars.stop()
            self._bars = None


class _RateColumn(TextColumn):
    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: Task) -> object:  # type: ignore[override]
        """Units per second over the whole stage once finished, recent before."""
        speed = task.finished_speed or task.speed
        return "" if speed is None else f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.1f}/s"


class _BarStage:
    def __init__(self, bars: Bars, task: TaskID) -> None:
        self._bars = bars
        self._task = task

    def advance(self, n: int = 1, note: str = "") -> None:
        """Move the bar."""
        self._bars.update(self._task, advance=n)
        if note:
            self._bars.update(self._task, note=escape(note))


class _PlainStage:
    """Lines such as ``simulate: 1200/6000 (20 %), 410/s, 12 s left``."""

    def __init__(self, console: Console, name: str, total: int | None, clock: Callable[[], float], interval: float) -> None:
        self._console, self._name, self._total = console, name, total
        self._clock, self._interval = clock, interval
        self._started = self._printed = clock()
        self._done = 0
        self._note = ""
        self._lock = threading.Lock()  # results may arrive on a callback thread

    def begin(self) -> None:
        """The stage's first line."""
        self._print(self._name if self._total is None else f"{self._name}: {self._total}")

    def advance(self, n: int = 1, note: str = "") -> None:
        """Count, and print when the last line is old enough."""
        with self._lock:
            self._done += n
            self._note = note or self._note
            now = self._clock()
            if now - self._printed < self._interval:
                return
            self._printed = now
            self._print(self._line(now))

    def end(self) -> None:
        """The stage's last line: how many, how long."""
        note = f", {self._note}" if self._note else ""
        count = f"{self._done} " if self._done else ""
        self._print(f"{self._name}: {count}done in {self._clock() - self._started:.1f} s{note}")

    def _line(self, now: float) -> str:
        elapsed = max(now - self._started, 1e-9)
        rate = self._done / elapsed
        parts = [f"{self._name}: {self._done}"]
        if self._total:
            parts = [f"{self._name}: {self._done}/{self._total} ({100 * self._done / self._total:.0f} %)"]
        parts.append(f"{rate:.1f}/s" if rate < 10 else f"{rate:.0f}/s")
        if self._total and rate > 0:
            parts.append(f"{max(self._total - self._done, 0) / rate:.0f} s left")
        if self._note:
            parts.append(self._note)
        return ", ".join(parts)

    def _print(self, text: str) -> None:
        self._console.print(escape(text), highlight=False, soft_wrap=True)


def _task(bars: Bars, task: TaskID) -> Task:
    return next(t for t in bars.tasks if t.id == task)
