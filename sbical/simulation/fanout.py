"""Fanning simulations out over the workers of a Dask client, which ``sbical.simulation.cluster`` opens.

Workers receive the simulator, the experiment and the summary once, through a plugin that also serves workers that join
later. Each simulation has its own seed, so the set is bitwise the same for any number of workers and any chunks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

import numpy as np
from distributed import Client, WorkerPlugin, as_completed, get_worker
from distributed.scheduler import KilledWorker

import sbical
from sbical.common.progress import NullProgress, Progress
from sbical.errors import ClusterError
from sbical.recordings.experiment import Experiment
from sbical.simulation.cluster import check_workers
from sbical.simulation.process import simulating
from sbical.simulation.rollout import STATUS, Trajectories
from sbical.simulation.simulator import Simulator

#: What ``check_workers`` asks for: an answer means that everything a worker needs can be imported there.
VERSION = sbical.__version__
#: A task should run this long [s]: scheduling costs a few milliseconds each, and progress should move.
TASK_SECONDS = 1.0
#: Chunks per worker, so that the last ones finish together.
CHUNKS_PER_WORKER = 8
#: Tasks in flight per worker: enough to never starve, few enough to keep the scheduler light.
IN_FLIGHT = 4
#: Less work than this [s] is done in the client: handing it out and collecting it would take as long.
HERE_SECONDS = 0.5


@dataclass(frozen=True, eq=False)
class Job:
    """What every worker needs; ``summary`` None returns trajectories, in single precision unless ``exact``.

    Summaries are those of ``copies`` measurements of each motion, noise included.
    """

    simulator: Simulator
    experiment: Experiment
    summary: Summarise | None = None
    noise: bool = True
    profiler_clock: bool = False
    exact: bool = False
    copies: int = 1
    token: str = field(default_factory=lambda: f"sbical-{time.time_ns():x}-{np.random.SeedSequence().entropy:x}")

    def run(self, theta: np.ndarray, seeds: np.ndarray, errors: np.ndarray | None = None) -> tuple[Any, np.ndarray]:
        """Summaries (n, k), with several copies (n, copies, k), or the values of trajectories, and the status (n, windows)."""
        with simulating(profiler_clock=self.profiler_clock):
            if self.copies > 1 and self.summary is not None:
                measured = self.simulator.measured(theta, self.experiment, seeds, self.copies)
                return np.stack([self.summary(m) for m in measured], 1), measured[0].status
            trajectories = self.simulator.simulate(theta, self.experiment, seeds, noise=self.noise, errors=errors)
            if self.summary is None:
                # half the bytes on the wire; a sensor's step is far above single precision
                kind = np.float64 if self.exact else np.float32
                return tuple(v.astype(kind) for v in trajectories.values), trajectories.status
            return self.summary(trajectories), trajectories.status


class ChunkStore(Protocol):
    """Where chunks of one batch are kept as they arrive; see ``sbical.simulation.journal.Batch``."""

    @property
    def chunk(self) -> int:
        """Rows of every chunk, of the last one fewer."""
        ...

    def kept(self) -> dict[int, Any]:
        """Chunks that are there already, by their first row."""
        ...

    def add(self, part: Any) -> None:
        """Keep one chunk."""
        ...


#: Opens, for a chunk size, what keeps a batch; None where nothing is to be kept.
OpenChunkStore = Callable[[int], ChunkStore | None]


class Summarise(Protocol):
    """Trajectories to summaries (n, k), NaN rows for failed simulations; picklable, without torch."""

    def __call__(self, trajectories: Trajectories) -> np.ndarray:
        """(n, k)."""
        ...


@dataclass(frozen=True, eq=False)
class SimulationInputs:
    """What is simulated: theta (n, d), seeds (n,), and perhaps initial errors (n, windows, nq + nv), see ``Engine.simulate``."""

    theta: np.ndarray
    seeds: np.ndarray
    errors: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.theta)

    def __getitem__(self, part: slice) -> SimulationInputs:
        return SimulationInputs(self.theta[part], self.seeds[part], None if self.errors is None else self.errors[part])


class _JobPlugin(WorkerPlugin):
    """Keeps the job on every worker, also on those that join or come back later."""

    idempotent = True

    def __init__(self, job: Job) -> None:
        self.job = job
        self.name = job.token

    def setup(self, worker: Any) -> None:
        """Called by Dask on each worker."""
        worker.__dict__.setdefault("sbical_jobs", {})[self.job.token] = self.job

    def teardown(self, worker: Any) -> None:
        """Called by Dask when the job is over."""
        worker.__dict__.get("sbical_jobs", {}).pop(self.job.token, None)


def _chunk(token: str, first: int, rows: SimulationInputs) -> tuple[int, Any, np.ndarray, float]:
    """One task: simulate some rows and tell how long it took."""
    began = time.perf_counter()
    job: Job = get_worker().sbical_jobs[token]  # pyright: ignore[reportAttributeAccessIssue]
    out, status = job.run(rows.theta, rows.seeds, rows.errors)
    return first, out, status, time.perf_counter() - began


@dataclass(frozen=True, eq=False)
class SimulationSet:
    """Simulations with what made them: theta (n, d), seeds (n,), summaries x (n, k) or trajectories, status (n, windows).

    ``copies`` (n, c, k): summaries of further measurements of the same motions, the first one included; not stored.
    """

    theta: np.ndarray
    seeds: np.ndarray
    status: np.ndarray
    x: np.ndarray | None = None
    trajectories: Trajectories | None = None
    seconds_per_simulation: float = 0.0
    copies: np.ndarray | None = None

    @property
    def ok(self) -> np.ndarray:
        """(n,): simulations of which no window failed."""
        return (self.status == 0).all(1)

    def failures(self) -> dict[str, int]:
        """Number of failed simulations by reason."""
        worst = self.status.max(1)
        return {STATUS[int(s)]: int((worst == s).sum()) for s in np.unique(worst) if s != 0}


def simulate(
    job: Job, rows: SimulationInputs, client: Client, *, cost: float | None = None, progress: Progress | None = None,
    stage: str = "simulate", chunk: int | None = None, keep: OpenChunkStore | None = None,
) -> SimulationSet:  # fmt: skip
    """Simulate every row with its seed on the client's workers.

    ``cost`` [s] of one simulation, where it is known, sizes the tasks, and keeps work of less than ``HERE_SECONDS`` in this
    process; else a few simulations are timed first. ``chunk`` fixes the simulations per task. ``keep`` opens, for a
    chunk size, what keeps the chunks that workers return; those in it are not simulated again.

    Raises ClusterError if workers cannot simulate or keep dying.
    """
    with (progress or NullProgress()).stage(stage, len(rows)) as bar:
        if cost is not None and chunk is None and len(rows) * cost < HERE_SECONDS:
            parts = {0: _here(job, rows, bar)}
        else:
            count = check_workers(client)
            client.register_plugin(_JobPlugin(job))
            try:
                parts = _stream(job.token, rows, client, count, chunk, cost, keep, bar)
            finally:
                client.unregister_worker_plugin(job.token)
    return _assemble(job, rows, parts)


def _here(job: Job, rows: SimulationInputs, bar: Any) -> Any:
    """The same work in this process."""
    began = time.perf_counter()
    out, status = job.run(rows.theta, rows.seeds, rows.errors)
    bar.advance(len(rows))
    return 0, out, status, time.perf_counter() - began


def _stream(
    token: str, rows: SimulationInputs, client: Client, workers: int, chunk: int | None, cost: float | None, keep: OpenChunkStore | None,
    bar: Any,
) -> dict[int, Any]:  # fmt: skip
    """All chunks by their first row."""

    def submit(low: int, high: int) -> Any:
        return client.submit(_chunk, token, low, rows[low:high], key=f"{token}-{low}", pure=False, retries=3)

    parts: dict[int, Any] = {}
    first = 0
    if chunk is None:
        if cost is None:
            # the first simulations of a worker pay for building the model, so the second task is the one to time
            for low, high in ((0, min(4, len(rows))), (min(4, len(rows)), min(12, len(rows)))):
                if high > low:
                    parts[low] = _result(submit(low, high))
                    cost, first = parts[low][3] / (high - low), high
            bar.advance(first)
        chunk = chunk_size(cost or 0.0, len(rows) - first, workers)
    store = keep(chunk) if keep is not None and not parts else None
    if store is not None:
        chunk, parts = store.chunk, store.kept()
        bar.advance(sum(len(p[2]) for p in parts.values()))
    todo = iter([low for low in range(first, len(rows), chunk) if low not in parts])
    running, failed = as_completed([]), sum(_failed(p) for p in parts.values())
    while True:
        for low in islice(todo, IN_FLIGHT * workers - running.count()):
            running.add(submit(low, min(low + chunk, len(rows))))
        if running.is_empty():
            return parts
        part = _result(next(running))
        if store is not None:
            store.add(part)
        failed += _failed(part)
        parts[part[0]] = part
        bar.advance(len(part[2]), f"{failed} failed" if failed else "")


def _failed(part: Any) -> int:
    return int((part[2] != 0).any(1).sum())


def chunk_size(seconds: float, n: int, workers: int) -> int:
    """Simulations per task from the time of one [s]: about ``TASK_SECONDS``, but several chunks for every worker."""
    return max(1, min(round(TASK_SECONDS / max(seconds, 1e-6)), -(-n // (CHUNKS_PER_WORKER * workers))))


def _result(future: Any) -> Any:
    try:
        part = future.result()
    except KilledWorker as problem:
        raise ClusterError(f"workers died while simulating ({problem}); give them more memory or fewer simulations per task") from None
    future.release()
    return part


def _assemble(job: Job, rows: SimulationInputs, parts: dict[int, Any]) -> SimulationSet:
    ordered = [parts[first] for first in sorted(parts)]
    status = np.concatenate([p[2] for p in ordered])
    seconds = sum(p[3] for p in ordered) / len(rows)
    if job.summary is not None:
        x = np.concatenate([p[1] for p in ordered])
        copies, x = (x, np.ascontiguousarray(x[:, 0])) if job.copies > 1 else (None, x)
        return SimulationSet(rows.theta, rows.seeds, status, x=x, seconds_per_simulation=seconds, copies=copies)
    values = tuple(np.concatenate([p[1][w] for p in ordered]) for w in range(len(job.experiment.windows)))
    return SimulationSet(rows.theta, rows.seeds, status, trajectories=Trajectories(values, status), seconds_per_simulation=seconds)
