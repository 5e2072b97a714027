"""Progress: throttled plain lines without a terminal, bars with one, silence by default."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from sbical.common.progress import NullProgress, RichProgress


class Clock:
    """A clock that moves when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def plain() -> tuple[io.StringIO, Clock, RichProgress]:
    """A progress that writes to a buffer which is no terminal."""
    stream, clock = io.StringIO(), Clock()
    return stream, clock, RichProgress(Console(file=stream, force_terminal=False, width=200), clock=clock)


def test_plain_lines_come_at_most_once_per_interval() -> None:
    stream, clock, progress = plain()
    with progress.stage("simulate", 6000) as stage:
        for _ in range(60):
            clock.now += 0.25
            stage.advance(100)
    assert stream.getvalue().splitlines() == [
        "simulate: 6000",
        "simulate: 2000/6000 (33 %), 400/s, 10 s left",
        "simulate: 4000/6000 (67 %), 400/s, 5 s left",
        "simulate: 6000/6000 (100 %), 400/s, 0 s left",
        "simulate: 6000 done in 15.0 s",
    ]


def test_plain_stages_keep_their_own_interval_and_last_note() -> None:
    stream, clock, progress = plain()
    with progress.stage("train", None) as outer, progress.stage("member [1]", 3) as inner:
        clock.now = 6.0
        inner.advance(1, "loss 0.2")
        outer.advance()
        inner.advance(1)
    lines = stream.getvalue().splitlines()
    assert lines[2:] == [
        "member [1]: 1/3 (33 %), 0.2/s, 12 s left, loss 0.2",
        "train: 1, 0.2/s",
        "member [1]: 2 done in 6.0 s, loss 0.2",
        "train: 1 done in 6.0 s",
    ]


def test_notes_are_printed_as_they_are() -> None:
    stream, _, progress = plain()
    progress.note("run1: 3 rows dropped [rad]")
    assert stream.getvalue() == "run1: 3 rows dropped [rad]\n"


def test_terminal_shows_bars_and_survives_nesting() -> None:
    stream = io.StringIO()
    progress = RichProgress(Console(file=stream, force_terminal=True, width=160))
    with progress.stage("train", None) as outer, progress.stage("member 1", 2) as inner:
        inner.advance(2, "loss [0.1]")
        progress.note("a note")
        outer.advance()
    with progress.stage("check", 1) as stage:
        stage.advance()
    text = stream.getvalue()
    for shown in ("2/2", "100%", "loss [0.1]", "a note", "check"):
        assert shown in text


def test_an_interrupted_bar_releases_the_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    progress = RichProgress(console)
    with pytest.raises(KeyboardInterrupt), progress.stage("simulate", 10):
        raise KeyboardInterrupt
    with progress.stage("again", 1) as stage:  # a second live display would raise rich.errors.LiveError
        stage.advance()


def test_null_progress_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    progress = NullProgress()
    with progress.stage("simulate", 10) as stage:
        stage.advance(3, note="x")
    progress.note("y")
    assert capsys.readouterr() == ("", "")
