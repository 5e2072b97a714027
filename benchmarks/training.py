"""CPU time of training until the posterior is as good as that of sbi's stock neural spline flow.

Both learn from the same simulations in the same coordinates (those of ``sbical.inference.estimator``: unconstrained parameters, scaled
summaries) on one torch thread, and are judged by the same unseen simulations. sbi: ``NPE(density_estimator="nsf")`` with its
own batches, rate and early stopping. sbical: one member, exactly as ``calibrate`` trains it, from beginning to end. So there is
no budget to choose and this script picks nothing on the unseen simulations. ``Training`` itself was chosen before: at seed 0
the servo's simulations are the very ones it was chosen on, so another ``--seed`` is the fair one there. Where the member's
negative log density is not at most sbi's + 0.02 nats the target counts as missed (``reached`` false) whatever the time.
``cpu_ratio`` is the worst, over data sets, of sbical's CPU seconds over sbi's.

    python benchmarks/training.py --json
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from typing import NamedTuple

import numpy as np
import torch
from common import Timer, finish, options
from sbi.inference import NPE
from sbi.neural_nets.estimators import ConditionalDensityEstimator
from sbibm_tasks import TASKS

import sbical
from sbical.common import catalog
from sbical.inference.estimator import Scaling
from sbical.inference.plan import plan
from sbical.inference.routes.base import PILOT
from sbical.inference.summary import fit_summary
from sbical.inference.training import Training, train
from sbical.simulation.fanout import Job
from sbical.simulation.rollout import Trajectories

#: A negative log density this much above sbi's still counts as equal [nats].
MARGIN = 0.02
DATA = ("two_moons", "slcp", "servo_pendulum")


class Data(NamedTuple):
    """Parameters u and summaries x, to train on and unseen."""

    u: np.ndarray
    x: np.ndarray
    unseen_u: np.ndarray
    unseen_x: np.ndarray


class Run(NamedTuple):
    """Negative log density of the unseen simulations [nats, unconstrained coordinates] and CPU time of training [s]."""

    nats: float
    cpu: float


def servo(n: int, unseen: int, seed: int) -> Data:
    """The shipped servo example under its prior, summarised as ``calibrate`` does."""
    simulator = sbical.load_simulator("servo_pendulum")
    recordings = sbical.read_recordings(catalog.examples("servo_pendulum"), simulator.columns)
    intended = plan(simulator, sbical.load_prior("hobby_servo"), recordings, method="amortized", seed=seed)
    experiment, total = intended.experiment.spread(), PILOT + n + unseen
    theta, seeds = intended.prior.sample(total, seed), np.random.SeedSequence(seed).generate_state(total, np.uint64)
    pilot = Trajectories(*Job(simulator, experiment).run(theta[:PILOT], seeds[:PILOT]))
    x, status = Job(simulator, experiment, fit_summary(pilot, experiment)).run(theta[PILOT:], seeds[PILOT:])
    ok = (status == 0).all(1)
    u, x = intended.prior.to_unconstrained(theta[PILOT:][ok]), x[ok]
    return Data(u[:-unseen], x[:-unseen], u[-unseen:], x[-unseen:])


def task(name: str, n: int, unseen: int, seed: int) -> Data:
    """A task of sbibm; the unseen simulations have a seed of their own."""
    return Data(*TASKS[name].draw(n, seed), *TASKS[name].draw(unseen, 1_000_000 + seed))


def stock(data: Data, scaling: Scaling, seed: int, epochs: int) -> Run:
    """sbi as it comes; ``epochs`` only cuts a quick run short."""
    z, x = scaling.standardised(data.u), scaling.features(data.x)
    torch.manual_seed(seed)
    # sbi writes logs into the working directory, and tells on stdout that it converged
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(sys.stderr):
        inference = NPE(density_estimator="nsf", show_progress_bars=False).append_simulations(z, x)
        began = time.process_time()
        flow = inference.train(max_num_epochs=epochs, show_train_summary=False)
        cpu = time.process_time() - began
    return Run(_nats(flow, data, scaling), cpu)


def ours(data: Data, scaling: Scaling, seed: int) -> Run:
    """One member of the default ensemble."""
    z, x = scaling.standardised(data.u), scaling.features(data.x)
    began = time.process_time()
    flow = train(z, x[:, None], seed=seed, training=Training()).flow
    cpu = time.process_time() - began
    return Run(_nats(flow, data, scaling), cpu)


def _nats(flow: ConditionalDensityEstimator, data: Data, scaling: Scaling) -> float:
    with torch.no_grad():
        return float(flow.loss(scaling.standardised(data.unseen_u), scaling.features(data.unseen_x)).mean()) + scaling.log_scale


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--data-sets", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    timer, seed, quick = Timer(), arguments.seed, arguments.quick
    ratios, reached = {}, True
    for name in arguments.data_sets:
        small, full = (300, 100), (5_000, 1_000) if name == "servo_pendulum" else (10_000, 4_000)
        n, unseen = small if quick else full
        data = servo(n, unseen, seed) if name == "servo_pendulum" else task(name, n, unseen, seed)
        scaling = Scaling.of(data.u, data.x)
        mine, theirs = ours(data, scaling, seed), stock(data, scaling, seed, 3 if quick else 2**31 - 1)
        ratios[name], within = round(mine.cpu / theirs.cpu, 4), mine.nats <= theirs.nats + MARGIN
        reached = reached and within
        print(
            f"{name}: sbical {mine.nats:.3f} nats in {mine.cpu:.1f} s, sbi {theirs.nats:.3f} nats in {theirs.cpu:.1f} s; "
            f"ratio {ratios[name]:.3f}, {'reached' if within else 'NOT reached'}",
            flush=True,
        )
    figures = {"cpu_ratio": max(ratios.values()), "reached": reached, **{f"cpu_ratio_{k}": v for k, v in ratios.items()}}
    finish("training", figures, [seed], timer, as_json=arguments.json)


if __name__ == "__main__":
    main()
