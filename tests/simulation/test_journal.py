"""A run that was cut short goes on where it was: nothing kept is simulated again, and nothing of another run is taken for its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from distributed import Client

from sbical import cli
from sbical.errors import OutputError
from sbical.recordings.experiment import Experiment
from sbical.simulation.fanout import Job, SimulationInputs, SimulationSet, simulate
from sbical.simulation.journal import FORMAT, Batch, Journal, describe, is_store, stages
from sbical.simulation.simulator import Simulator

RUN = {"simulator": "servo", "method": "local", "seed": 3, "measured": {"simulations": 100, "seconds_per_simulation": 0.5}}


def part(first: int, rows: int) -> tuple[int, Any, np.ndarray, float]:
    values = np.arange(first, first + rows, dtype=np.float32)
    return first, (values[:, None] * np.ones((1, 4), np.float32), values), np.zeros((rows, 2), np.int8), 0.5


def begun(folder: Path) -> Batch:
    return Journal.begin(folder, RUN).batch("train", b"these", 10, 4)


def test_what_was_added_is_read_back(tmp_path: Path) -> None:
    batch = begun(tmp_path / "store")
    assert batch.kept() == {}
    for first, rows in ((8, 2), (0, 4)):
        batch.add(part(first, rows))
    again = Journal.resume(tmp_path / "store", RUN).batch("train", b"these", 10, 3)
    assert again.chunk == 4  # a chunk is read as it was written
    kept = again.kept()
    assert sorted(kept) == [0, 8]
    for first, rows in ((0, 4), (8, 2)):
        for a, b in zip(kept[first][1], part(first, rows)[1], strict=True):
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype
        assert kept[first][3] == 0.5
    assert stages(tmp_path / "store") == {"train": (6, 10, 1.0)}


def test_one_array_comes_back_as_one(tmp_path: Path) -> None:
    batch = begun(tmp_path / "store")
    batch.add((0, np.ones((4, 2)), np.zeros((4, 1), np.int8), 0.1))
    np.testing.assert_array_equal(batch.kept()[0][1], np.ones((4, 2)))


def test_nothing_is_written_before_the_first_simulation(tmp_path: Path) -> None:
    Journal.begin(tmp_path / "store", RUN)
    assert not (tmp_path / "store").exists()


def test_a_batch_that_depends_on_something_else_is_another(tmp_path: Path) -> None:
    begun(tmp_path / "store").add(part(0, 4))
    assert Journal.resume(tmp_path / "store", RUN).batch("train", b"those", 10, 4).kept() == {}


def test_a_chunk_without_its_status_does_not_count(tmp_path: Path) -> None:
    batch = begun(tmp_path / "store")
    batch.add(part(0, 4))
    batch.add(part(4, 4))
    (batch.path / "status" / "c" / "1" / "0").unlink()
    assert sorted(batch.kept()) == [0]


@pytest.mark.parametrize("lost", ["0/c/0", "1/zarr.json", "seconds", "status/c/0", "zarr.json"])
def test_a_damaged_batch_is_named_and_never_read_as_if_whole(tmp_path: Path, lost: str) -> None:
    batch = begun(tmp_path / "store")
    batch.add(part(0, 4))
    path = batch.path / lost
    for file in [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]:
        if lost == "0/c/0":
            file.unlink()  # Zarr would fill in for it
        else:
            file.write_bytes(b"xx")
    with pytest.raises(OutputError, match=r"is damaged .*remove that folder"):
        Journal.resume(tmp_path / "store", RUN).batch("train", b"these", 10, 4).kept()


def test_a_batch_that_was_cut_short_while_made_is_made_again(tmp_path: Path) -> None:
    batch = begun(tmp_path / "store")
    batch.add(part(0, 4))
    (batch.path / "status" / "zarr.json").unlink()
    assert stages(tmp_path / "store") == {}
    batch = Journal.resume(tmp_path / "store", RUN).batch("train", b"these", 10, 5)
    batch.add(part(5, 5))
    assert sorted(batch.kept()) == [5]


def test_the_store_of_another_run_is_refused(tmp_path: Path) -> None:
    begun(tmp_path / "store").add(part(0, 4))
    with pytest.raises(OutputError, match=r"belongs to another run.*seed was 3, is 4"):
        Journal.resume(tmp_path / "store", {**RUN, "seed": 4})
    with pytest.raises(OutputError, match="--resume"):
        Journal.begin(tmp_path / "store", RUN)


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="no unfinished run"):
        Journal.resume(tmp_path / "missing", RUN)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine", encoding="utf-8")
    (tmp_path / "empty").mkdir()
    begun(tmp_path / "empty").add(part(0, 4))  # a folder that somebody made beforehand
    assert is_store(tmp_path / "empty")
    with pytest.raises(OutputError, match=r"thesis\.txt is a file"):
        Journal.begin(tmp_path / "other" / "thesis.txt" / "store", RUN)
    with pytest.raises(OutputError, match="the prior differ; what is held out differ"):
        Journal.resume(tmp_path / "empty", {**RUN, "prior_sha256": "a", "holdout_sha256": "b"})
    with pytest.raises(OutputError, match="something else"):
        Journal.begin(tmp_path / "other", RUN)
    zarr.create_group(tmp_path / "damaged", attributes={"format": FORMAT, "began": "yesterday"})
    with pytest.raises(OutputError, match="has lost simulator, method, seed, measured"):
        describe(tmp_path / "damaged")
    zarr.create_group(tmp_path / "foreign")
    with pytest.raises(OutputError, match="no store of this version"):
        describe(tmp_path / "foreign")
    assert not is_store(tmp_path / "other")


def test_kept_simulations_are_not_done_again(
    client: Client, servo: Simulator, make_experiment: Callable[..., Experiment], servo_theta: Callable[[int], np.ndarray], tmp_path: Path
) -> None:
    experiment = make_experiment(servo, seconds=(0.4, 0.3), constants={"kp": 200.0, "supply": 5.0})
    job, seeds = Job(servo, experiment), np.arange(30)
    journal, done = Journal.begin(tmp_path / "store", RUN), []

    class Watched(Batch):
        def add(self, part: Any) -> None:
            done.append(part[0])
            super().add(part)

    def keep(chunk: int) -> Batch:
        b = journal.batch("train", b"", 30, chunk)
        return Watched(b.path, b.rows, b.chunk, b.stage)

    def run() -> SimulationSet:
        return simulate(
            replace(job, token=f"journal-{time.time_ns()}"), SimulationInputs(servo_theta(30), seeds), client, chunk=7, keep=keep
        )

    whole = run()
    assert sorted(done) == [0, 7, 14, 21, 28]
    batch = next(p for p in (tmp_path / "store").iterdir() if p.is_dir())
    for lost in ("0", "3"):
        (batch / "status" / "c" / lost / "0").unlink()
    done.clear()
    again = run()
    assert sorted(done) == [0, 21]
    assert whole.trajectories is not None
    assert again.trajectories is not None
    for a, b in zip(whole.trajectories.values, again.trajectories.values, strict=True):
        np.testing.assert_array_equal(a, b)
    done.clear()
    run()
    assert done == []


def command(folder: Path, *options: str) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "sbical", "calibrate", "servo_pendulum", "--output", "run", *options]
    return subprocess.Popen(line, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # noqa: S603


@pytest.mark.slow
def test_a_killed_run_leaves_what_it_simulated_to_its_own_kind_only(tmp_path: Path) -> None:
    store = tmp_path / "run.unfinished"
    with command(tmp_path) as process:
        try:
            deadline = time.monotonic() + 60
            while not any(store.glob("*/status/c/*/*")):
                assert time.monotonic() < deadline
                time.sleep(0.05)
        finally:
            process.kill()
    before = stages(store)
    assert sum(kept for kept, _, _ in before.values()) > 0
    for options, said in ((), "holds an unfinished run, begun 20"), (("--resume", "--seed", "1"), "seed was 0, is 1"):
        with command(tmp_path, *options) as process:
            assert said in process.communicate()[1]
            assert process.returncode == 2
        assert stages(store) == before


def test_status_tells_what_is_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Journal.begin(tmp_path / "run.unfinished", RUN).batch("train", b"", 10, 4).add(part(0, 4))
    assert cli.main(["status", str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out
    assert "train: 4 of 10 simulations" in out
    assert "at most 96 simulations" in out
    assert "48 s of work" in out
    assert cli.main(["status", str(tmp_path / "run.unfinished")]) == 0
    assert "train: 4 of 10 simulations" in capsys.readouterr().out
    for other in (".", "/", str(tmp_path / "other")):
        assert cli.main(["status", other]) == 2
    assert "neither a run" in capsys.readouterr().err
