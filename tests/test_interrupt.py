"""Ctrl-C and SIGTERM while calibrating: no result, no process left behind, and what was simulated is kept."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "sbical", "calibrate", "servo_pendulum", "--simulations", "100000", "--output", "out"]


@contextmanager
def calibrating(folder: Path, interrupt: signal.Handlers | Callable[..., None]) -> Iterator[subprocess.Popen[str]]:
    """A calibration in a session of its own, so that all of its processes get Ctrl-C, as from a terminal.

    ``interrupt`` is how this process takes Ctrl-C while it starts the other: one that handles it starts others that can be
    interrupted, one that ignores it, as a job in the background of a script does, starts others that ignore it.
    """
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        run = subprocess.Popen(  # noqa: S603
            COMMAND, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with run:
        try:
            yield run
        finally:
            run.kill()


def processes(session: int) -> list[int]:
    """Living processes of a session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, rest = stat.read_text().split(" (", 1)
        except OSError:  # ended meanwhile
            continue
        state, _, _, its_session = rest.rpartition(")")[2].split()[:4]
        if int(its_session) == session and state != "Z":
            found.append(int(pid))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["simulate", "starting workers"])
def test_interrupt_leaves_nothing(moment: str, tmp_path: Path) -> None:
    with calibrating(tmp_path, signal.default_int_handler) as run:
        wait_for(moment, run)
        out, err = interrupted(run)
    check_left(run, tmp_path, out, err, code=130)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["simulate", "starting workers"])
def test_in_the_background_of_a_script_only_sigterm_ends_it(moment: str, tmp_path: Path) -> None:
    with calibrating(tmp_path, signal.SIG_IGN) as run:
        wait_for(moment, run)
        os.killpg(run.pid, signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            run.wait(timeout=1)
        run.terminate()
        out, err = run.communicate(timeout=15)
    check_left(run, tmp_path, out, err, code=143)


def check_left(run: subprocess.Popen[str], folder: Path, out: str, err: str, code: int) -> None:
    """The exit code, one line for the user, at most the kept simulations, no process."""
    assert (run.returncode, out) == (code, "")
    said = [line for line in err.splitlines() if not line.startswith("simulate the prior")]
    kept = [line for line in said if "what was simulated is kept in out.unfinished; " in line]
    assert said == [*kept, "interrupted; no result was written"]
    assert [path.name for path in folder.iterdir()] == ["out.unfinished"] * len(kept)
    deadline = time.monotonic() + 10
    while left := processes(run.pid):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def wait_for(moment: str, run: subprocess.Popen[str]) -> None:
    assert run.stderr is not None
    if moment == "simulate":
        assert next(run.stderr) == "simulate the prior (pilot): 600\n"
        time.sleep(0.5)
        return
    deadline = time.monotonic() + 60
    while len(processes(run.pid)) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def interrupted(run: subprocess.Popen[str]) -> tuple[str, str]:
    """Press Ctrl-C, and again where nothing happens: Python loses an interrupt that meets a garbage collection."""
    for _ in range(3):
        os.killpg(run.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return run.communicate(timeout=15)
    raise AssertionError("does not end")
