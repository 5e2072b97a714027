"""The same set of simulations for any chunks and workers, on workers that never load torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from distributed import Client

from sbical.errors import SimulatorError
from sbical.inference.summary import fit_summary
from sbical.recordings.experiment import Experiment
from sbical.recordings.held_signal import HeldSignal
from sbical.simulation.cluster import cluster
from sbical.simulation.fanout import Job, SimulationInputs, SimulationSet, chunk_size, simulate
from sbical.simulation.simulator import Simulator

MakeExperiment = Callable[..., Experiment]
Draws = Callable[[int], np.ndarray]
KNOWN = {"kp": 200.0, "supply": 5.0}


@pytest.fixture(scope="module")
def job(servo: Simulator, make_experiment: MakeExperiment, servo_theta: Draws) -> Job:
    experiment = make_experiment(servo, seconds=(0.4, 0.3), constants=KNOWN, spread=(0.01, 0.1))
    pilot = servo.simulate(servo_theta(60), experiment, np.arange(60))
    return Job(servo, experiment, fit_summary(pilot, experiment))


@pytest.fixture(scope="module")
def one_worker() -> Iterator[Client]:
    with cluster(None, workers=1) as client:
        yield client


@pytest.fixture(scope="module")
def whole(job: Job, servo_theta: Draws) -> np.ndarray:
    """Summaries simulated here, in one go."""
    return job.run(servo_theta(100), seeds())[0]


def seeds() -> np.ndarray:
    return np.random.SeedSequence(7).generate_state(100, np.uint64)


@pytest.mark.parametrize("chunk", [7, 50, None])
def test_two_workers_give_the_same_set(client: Client, job: Job, servo_theta: Draws, whole: np.ndarray, chunk: int | None) -> None:
    simulated = simulate(job, SimulationInputs(servo_theta(100), seeds()), client, chunk=chunk)
    assert simulated.x is not None
    np.testing.assert_array_equal(simulated.x, whole)
    np.testing.assert_array_equal(simulated.status, np.zeros((100, 2)))
    np.testing.assert_array_equal(simulated.theta, servo_theta(100))
    assert simulated.seconds_per_simulation > 0


@pytest.mark.parametrize("chunk", [7, 50])
def test_one_worker_gives_the_same_set(one_worker: Client, job: Job, servo_theta: Draws, whole: np.ndarray, chunk: int) -> None:
    simulated = simulate(job, SimulationInputs(servo_theta(100), seeds()), one_worker, chunk=chunk)
    assert simulated.x is not None
    np.testing.assert_array_equal(simulated.x, whole)


@pytest.mark.slow
def test_five_workers_give_the_same_set_with_the_clock_on_or_off(job: Job, servo_theta: Draws, whole: np.ndarray) -> None:
    with cluster(None, workers=5) as five:
        for clock in (False, True):
            simulated = simulate(
                replace(job, profiler_clock=clock, token=f"clock-{clock}"), SimulationInputs(servo_theta(100), seeds()), five, chunk=9
            )
            assert simulated.x is not None
            np.testing.assert_array_equal(simulated.x, whole)


def test_each_motion_is_measured_several_times(client: Client, job: Job, servo_theta: Draws, whole: np.ndarray) -> None:
    simulated = simulate(replace(job, copies=3, token=f"copies-{job.token}"), SimulationInputs(servo_theta(100), seeds()), client, chunk=9)
    assert simulated.copies is not None
    assert simulated.copies.shape == (100, 3, whole.shape[1])
    np.testing.assert_array_equal(simulated.x, whole)
    np.testing.assert_array_equal(simulated.copies[:, 0], whole)
    motion = np.argmax(whole.std(0))
    apart = (simulated.copies[:, 1:] - whole[:, None]).std(0)
    assert (apart > 0).all()
    assert (apart[:, motion] < 0.1 * whole[:, motion].std()).all()


def test_trajectories_come_back_in_single_precision(client: Client, job: Job, servo: Simulator, servo_theta: Draws) -> None:
    simulated = simulate(replace(job, summary=None, noise=False), SimulationInputs(servo_theta(20), seeds()[:20]), client, chunk=6)
    expected = servo.simulate(servo_theta(20), job.experiment, seeds()[:20], noise=False)
    assert simulated.x is None
    assert simulated.trajectories is not None
    for got, values in zip(simulated.trajectories.values, expected.values, strict=True):
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, values.astype(np.float32))


def test_workers_never_load_torch_and_keep_nothing(client: Client, job: Job, servo_theta: Draws) -> None:
    simulate(job, SimulationInputs(servo_theta(8), seeds()[:8]), client, chunk=2)
    loaded, jobs = cast(Any, client.run(_loaded)), cast(Any, client.run(_jobs))
    assert len(loaded) == 2
    for modules in loaded.values():
        assert "mujoco" in modules
        assert not {"torch", "pyro", "sbi", "arviz_base", "matplotlib"} & modules
    assert list(jobs.values()) == [{}, {}]


def _loaded() -> set[str]:
    return {name.partition(".")[0] for name in sys.modules}


def _jobs(dask_worker: object) -> dict[str, object]:
    return getattr(dask_worker, "sbical_jobs", {})


def test_failed_simulations_keep_their_place_and_reason(
    client: Client, servo: Simulator, make_experiment: MakeExperiment, servo_theta: Draws
) -> None:
    experiment = make_experiment(servo, seconds=(0.4, 0.3), constants={"kp": 1e9, "supply": 5.0})
    theta = servo_theta(10)
    theta[[2, 5], servo.parameters.index("resistance")] = 1e-9
    simulated = simulate(Job(servo, experiment, noise=False), SimulationInputs(theta, np.arange(10)), client, chunk=3)
    assert np.flatnonzero(~simulated.ok).tolist() == [2, 5]
    assert simulated.failures() == {"diverged: MuJoCo warned of a bad state": 2}
    assert simulated.trajectories is not None
    assert np.isnan(simulated.trajectories.values[0][[2, 5]]).all()
    assert np.isfinite(simulated.trajectories.values[0][[0, 1, 3, 4, 6, 7, 8, 9]]).all()


def test_progress_counts_every_simulation(client: Client, job: Job, servo_theta: Draws) -> None:
    for chunk in (7, None):
        counter = Counter()
        simulate(job, SimulationInputs(servo_theta(30), seeds()[:30]), client, progress=counter, stage="pilot", chunk=chunk)
        assert counter.stages == [("pilot", 30)]
        assert counter.done == 30


class Counter:
    """Adds up what it is told."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, int | None]] = []
        self.done = 0

    @contextmanager
    def stage(self, name: str, total: int | None) -> Iterator[Counter]:
        self.stages.append((name, total))
        yield self

    def advance(self, n: int = 1, note: str = "") -> None:
        self.done += n

    def note(self, text: str) -> None:
        raise AssertionError(text)


def test_mistake_on_a_worker_arrives_as_it_was_raised(client: Client, servo: Simulator, job: Job, servo_theta: Draws) -> None:
    changing = {"kp": HeldSignal(np.zeros(1), np.ones(1))}
    windows = tuple(replace(w, constants={"supply": 5.0}, signals=changing) for w in job.experiment.windows)
    # a delay cannot follow a condition that is logged per sample
    effects = tuple(replace(e, roles={"delay": servo.effects[0].roles["gain"]}) if e.name == "latency" else e for e in servo.effects)
    broken = Job(replace(servo, effects=effects), replace(job.experiment, windows=windows))
    with pytest.raises(SimulatorError, match=r"^effects\.latency: delay follows the condition 'kp', which changes along a recording"):
        simulate(broken, SimulationInputs(servo_theta(4), np.arange(4)), client, chunk=2)


def test_failures_by_reason() -> None:
    status = np.array([[0, 0], [1, 0], [0, 2], [2, 2]], np.int8)
    simulated = SimulationSet(np.zeros((4, 1)), np.arange(4), status)
    assert simulated.ok.tolist() == [True, False, False, False]
    assert simulated.failures() == {"diverged: MuJoCo warned of a bad state": 1, "implausible: a state beyond 100000": 2}


@pytest.mark.parametrize(
    ("seconds", "n", "workers", "expected"),
    [(0.01, 10_000, 2, 100), (0.01, 400, 2, 25), (5.0, 400, 2, 1), (0.0, 1_000_000, 2, 62_500), (0.001, 3, 2, 1)],
)
def test_chunks_last_a_second_but_leave_work_for_everyone(seconds: float, n: int, workers: int, expected: int) -> None:
    assert chunk_size(seconds, n, workers) == expected
