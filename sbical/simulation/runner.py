"""Runs the simulations of one calibration: hands out seeds, keeps time, counts simulations and failures."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from distributed import Client

from sbical.common.progress import Progress
from sbical.errors import SimulationError
from sbical.recordings.experiment import Experiment
from sbical.simulation.fanout import Job, SimulationInputs, SimulationSet, Summarise, simulate
from sbical.simulation.journal import Batch, Journal
from sbical.simulation.rollout import Trajectories
from sbical.simulation.simulator import Simulator


class Runner:
    """Simulations of one run. ``spent`` [s] by stage, ``count`` of all simulations, ``failures`` by reason."""

    def __init__(
        self, simulator: Simulator, client: Client, progress: Progress, seed: np.random.SeedSequence, *, cost: float,
        profiler_clock: bool = False, limit: float | None = None, journal: Journal | None = None,
    ) -> None:  # fmt: skip
        self.simulator, self.client, self.progress, self.clock, self.journal = simulator, client, progress, profiler_clock, journal
        self.seed, self.cost = seed, cost
        self.until = np.inf if limit is None else time.perf_counter() + limit
        self.spent: dict[str, float] = {}
        self.count = 0
        self.failed = 0
        self.failures: dict[str, int] = {}

    @property
    def late(self) -> bool:
        """Whether the time that the user gave is over: what is not needed is left out."""
        return time.perf_counter() > self.until

    def simulate(
        self, stage: str, theta: np.ndarray, experiment: Experiment, *, summary: Summarise | None = None, noise: bool = True,
        errors: np.ndarray | None = None, exact: bool = False, copies: int = 1,
    ) -> SimulationSet:  # fmt: skip
        """Simulate theta (n, d), each row with a seed of its own; see ``Job`` and ``Engine.simulate`` for the rest."""
        seeds = self.seed.spawn(1)[0].generate_state(len(theta), np.uint64)
        job = Job(self.simulator, experiment, summary, noise, self.clock, exact, copies)

        def keep(chunk: int) -> Batch | None:
            if self.journal is None:
                return None
            # a batch has seeds of its own, which tell its summary too
            given = [theta, seeds, *([] if errors is None else [errors]), np.array([noise, exact, summary is None, copies])]
            depends_on = [experiment.digest().encode(), *(np.ascontiguousarray(a).tobytes() for a in given)]
            return self.journal.batch(stage, b"".join(depends_on), len(theta), chunk)

        with self.timed(stage):
            rows = SimulationInputs(theta, seeds, errors)
            result = simulate(job, rows, self.client, cost=self.cost, progress=self.progress, stage=stage, keep=keep)
        self.count += len(theta)
        self.failed += int((~result.ok).sum())
        for reason, number in result.failures().items():
            self.failures[reason] = self.failures.get(reason, 0) + number
        return result

    def trajectories(self, stage: str, theta: np.ndarray, experiment: Experiment, **options: bool | np.ndarray | None) -> Trajectories:
        """Trajectories instead of summaries."""
        result = self.simulate(stage, theta, experiment, **options)  # pyright: ignore[reportArgumentType]
        if result.trajectories is None:
            raise SimulationError(f"the simulations of stage '{stage}' returned no trajectories")
        return result.trajectories

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the time inside to a stage."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.spent[stage] = self.spent.get(stage, 0.0) + time.perf_counter() - began


def check_failures(simulated: SimulationSet) -> SimulationSet:
    """The same set. Raises SimulationError if most failed: learning from the survivors would be learning about survivors."""
    share = float(simulated.ok.mean())
    if share < 0.5:
        reasons = "; ".join(f"{n} x {reason}" for reason, n in simulated.failures().items())
        raise SimulationError(
            f"{1 - share:.0%} of the simulations failed ({reasons}); narrow the prior, shorten the timestep or the windows"
        )
    return simulated
