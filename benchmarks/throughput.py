"""Simulation speed: simulate + summarise through the product, over MuJoCo's own loop in C.

``servo_ratio``: steps per CPU second of the complete path (parameters, delayed commands, rollout, sensors, summary) over
``mj_step(model, data, nstep)`` of the same model with the profiler clock off, alternating in one process, median of
pairs. ``rss_mb_1k`` and ``rss_mb_10k``: peak memory of a worker process that simulates so many, in chunks.

    python benchmarks/throughput.py --json
"""

from __future__ import annotations

import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import mujoco
import numpy as np
from common import Timer, finish, options

import sbical
from sbical.common import catalog
from sbical.inference.summary import fit_summary
from sbical.recordings.experiment import build
from sbical.simulation.fanout import Job, chunk_size
from sbical.simulation.process import simulating


def job() -> Job:
    """The shipped servo example, its recordings and a summary."""
    simulator = sbical.load_simulator("servo_pendulum")
    recordings = sbical.read_recordings(catalog.examples("servo_pendulum")[:2], simulator.columns)
    experiment = build(recordings, simulator.columns, simulator.layout, window=simulator.window)
    theta, seeds = draws(simulator, 100)
    with simulating():
        pilot = simulator.simulate(theta, experiment, seeds)
    return Job(simulator, experiment.spread(), fit_summary(pilot, experiment))


def draws(simulator: sbical.Simulator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Parameters from the prior, with seeds."""
    prior = sbical.load_prior("hobby_servo").restricted(simulator.parameters)
    return prior.sample(n, 0), np.arange(n)


def product(work: Job, n: int) -> float:
    """Steps per CPU second of the product on one core."""
    theta, seeds = draws(work.simulator, n)
    steps = n * work.experiment.seconds / work.simulator.timestep
    began = time.process_time()
    work.run(theta, seeds)
    return steps / (time.process_time() - began)


def bare(work: Job, n: int) -> float:
    """Steps per CPU second of ``mj_step`` in C: the same parameters and initial states, the command held at its start."""
    simulator, experiment = work.simulator, work.experiment
    theta, _ = draws(simulator, n)
    models = [simulator.calibrated_model(row, conditions(work)) for row in theta]
    data = mujoco.MjData(models[0])
    spent, steps = 0.0, 0
    with simulating():
        for model in models:
            for window in experiment.windows:
                mujoco.mj_resetData(model, data)
                data.qpos[:], data.qvel[:] = window.initial.mean[: model.nq], window.initial.mean[model.nq :]
                count = int(window.duration / model.opt.timestep)
                # a fiftieth of the window per call, each with its command, so that the arm moves as in the product
                began = time.process_time()
                for part in np.array_split(np.arange(count), 50):
                    at = part[0] * model.opt.timestep
                    for name, actuator in simulator.commands.items():
                        data.ctrl[actuator] = np.interp(at, window.commands[name].time, window.commands[name].value)
                    mujoco.mj_step(model, data, nstep=len(part))
                spent += time.process_time() - began
                steps += count
    return steps / spent


def conditions(work: Job) -> dict[str, float]:
    """A value of every condition."""
    first = work.experiment.windows[0]
    return {**first.constants, **{n: float(s.value.mean()) for n, s in first.signals.items()}}


def peak(work: Job, n: int) -> float:
    """Peak resident memory of a fresh process that simulates n draws in chunks as a worker does [MB]."""
    theta, seeds = draws(work.simulator, n)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(simulate_in_chunks, work, theta, seeds).result()


def simulate_in_chunks(work: Job, theta: np.ndarray, seeds: np.ndarray) -> float:
    """What a worker does with its share, in tasks of about a second."""
    size = chunk_size(0.01, len(theta), 2)
    for low in range(0, len(theta), size):
        work.run(theta[low : low + size], seeds[low : low + size])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    arguments = options(__doc__).parse_args()
    timer, work = Timer(), job()
    n, pairs = (64, 3) if arguments.quick else (256, 7)
    product(work, 16)
    bare(work, 4)
    ratios = [product(work, n) / bare(work, n // 4) for _ in range(pairs)]
    small, large = (100, 400) if arguments.quick else (1000, 10_000)
    figures = {
        "servo_ratio": round(float(np.median(ratios)), 3),
        "servo_ratio_range": [round(min(ratios), 3), round(max(ratios), 3)],
        "rss_mb_1k": round(peak(work, small), 1),
        "rss_mb_10k": round(peak(work, large), 1),
    }
    finish("throughput", figures, [0], timer, as_json=arguments.json)


if __name__ == "__main__":
    main()
