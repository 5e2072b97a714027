"""Ctrl-C while calibrating: exit code 130, no result, no process left behind, and what was simulated is kept."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


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
    command = [sys.executable, "-m", "sbical", "calibrate", "servo_pendulum", "--simulations", "100000", "--output", "out"]
    # a session of its own, so that all of its processes get the signal, as from a terminal
    with subprocess.Popen(  # noqa: S603
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        try:
            wait_for(moment, run)
            out, err = interrupted(run)
        finally:
            run.kill()
    assert (run.returncode, out) == (130, "")
    said = [line for line in err.splitlines() if not line.startswith("simulate the prior")]
    kept = [line for line in said if "what was simulated is kept in out.unfinished; " in line]
    assert said == [*kept, "interrupted; no result was written"]
    assert [path.name for path in tmp_path.iterdir()] == ["out.unfinished"] * len(kept)
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
