"""Posterior of the six-parameter servo, through the whole product on two workers, against a long run of an independent method.

For each truth drawn from the prior: one simulated recording of 2 s at 500 Hz, calibrated by the local route; the draws are compared to
those of benchmarks/reference.py (same model, exact simulation of initial errors) by sbibm's classifier. References take minutes each and
are kept, with what they depend on, in benchmarks/references; one that no longer fits is made again. --quick makes one
that is far too short to have converged where none fits, and does not keep it: its C2ST then means nothing.
"""

from __future__ import annotations

import hashlib
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import xarray as xr
from classify import c2st
from common import Timer, finish, options
from reference import sample

import sbical
from sbical.inference.routes.local import DIFFUSE
from sbical.priors.prior import Prior
from sbical.recordings.experiment import Experiment, build
from sbical.recordings.initial_state import InitialState
from sbical.recordings.recording import Recording
from sbical.simulation.cluster import cluster
from sbical.simulation.process import simulating
from sbical.simulation.simulator import Simulator

ROBOT = Path(__file__).parent / "robots" / "servo6"
RATE, SECONDS = 500, 2.0
TIME = np.arange(int(RATE * SECONDS)) / RATE
COMMAND = 0.8 * np.sin(2 * np.pi * (0.5 * TIME + 0.5 * TIME**2)) + 0.4 * np.sign(np.sin(2 * np.pi * 1.3 * TIME))
#: Where a robot starts: at rest, but for this much [rad], [rad/s].
START = (0.01, 0.05)
BUDGET = 14_000
LOST = 0.75
#: A posterior of fewer distinct draws is lost without asking a classifier.
FEWEST = 100


def recording(name: str, position: np.ndarray, part: slice = slice(None)) -> Recording:
    """A log of the command and the encoder."""
    nodes = {"/": xr.Dataset()}
    for stream, value in (("goal", COMMAND), ("position", position)):
        nodes[stream] = xr.Dataset({"value": ("time", value[part])}, coords={"time": TIME[part]})
    return Recording(name, xr.DataTree.from_dict(nodes, name=name), (), f"{name}.csv")


def truth(simulator: Simulator, prior: Prior, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Parameters (d,) from the prior, and the positions (T,) that such a robot logs."""
    theta = prior.sample(1, 1000 + seed)
    plain = build([recording("blank", np.zeros(len(TIME)))], simulator.columns, simulator.layout, rate=RATE)
    start = InitialState(np.zeros(2), np.diag(START))
    window = replace(plain.windows[0], initial=start)
    with simulating():
        found = simulator.simulate(theta, replace(plain, windows=(window,)), np.array([seed]))
    return theta[0], found.values[0][0, :, 0]


def reference(simulator: Simulator, prior: Prior, experiment: Experiment, seed: int, folder: Path, quick: bool) -> np.ndarray:
    """Draws (n, d) in unconstrained coordinates, from the folder or made."""
    wide = experiment.diffuse(DIFFUSE)
    d, window = len(prior.names), wide.windows[0]
    size = {"particles": 1000, "moves": 2, "final": 20}
    # other processors round otherwise: what a reference depends on is compared, not hashed
    target = {"observed": window.observed, "mean": window.initial.mean, "factor": window.initial.factor}
    model = hashlib.sha256(f"{simulator.digest()} {prior.to_toml()} {size}".encode()).hexdigest()
    path = folder / f"servo_posterior-{seed}.npz"
    if path.exists():
        with np.load(path, allow_pickle=False) as kept:
            if kept["model"] == model and all(np.allclose(kept[k], v, rtol=1e-6, atol=1e-9) for k, v in target.items()):
                return kept["draws"].astype(np.float64)
    column = prior.names.index("encoder_noise")

    def log_likelihood(x: np.ndarray) -> np.ndarray:
        theta, errors = prior.to_constrained(x[:, :d]), x[:, None, d:]
        with simulating():
            values = simulator.simulate(theta, wide, np.zeros(len(x), int), noise=False, errors=errors).values[0]
        std = theta[:, column]
        square = ((values - window.observed) ** 2).sum((1, 2))
        out = -0.5 * square / std**2 - window.observed.size * np.log(std)
        return np.where(np.isfinite(out), out, -1e300)

    if quick:
        size = {"particles": 100, "moves": 1, "final": 5}
    drawn, _ = sample(log_likelihood, d + 2, np.random.default_rng(seed), **size)
    drawn = drawn[:, :d].astype(np.float32)
    if not quick:
        folder.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, draws=drawn, model=model, observed=target["observed"], mean=target["mean"], factor=target["factor"])
    return drawn.astype(np.float64)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--truths", type=int, default=20, help="how many robots (default 20)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first robot")
    parser.add_argument("--references", type=Path, default=Path(__file__).parent / "references", help="folder that keeps the references")
    parser.add_argument("--references-only", action="store_true", help="make those that are missing, and end")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + (1 if arguments.quick else arguments.truths))
    simulator = sbical.load_simulator(ROBOT)
    prior = sbical.load_prior(ROBOT / "prior.toml").restricted(simulator.parameters)
    if arguments.references_only:
        for seed in seeds:
            began = time.perf_counter()
            _, position = truth(simulator, prior, seed)
            reference(
                simulator,
                prior,
                build([recording("run", position)], simulator.columns, simulator.layout, rate=RATE),
                seed,
                arguments.references,
                False,
            )
            print(f"reference {seed}: {time.perf_counter() - began:.0f} s", flush=True)
        sys.exit()
    rows, timer = [], Timer()
    with cluster(workers=2) as client:
        client.run(sbical.load_simulator, ROBOT)  # a running cluster has imported what it needs
        for seed in seeds:
            _, position = truth(simulator, prior, seed)
            began = time.perf_counter()
            calibration = sbical.calibrate(
                simulator, prior, [recording("run", position)], holdout=[recording("again", position, slice(0, 250))], client=client,
                simulations=1500 if arguments.quick else BUDGET, seed=seed,
            )  # fmt: skip
            seconds = time.perf_counter() - began
            exact = reference(simulator, prior, calibration.experiment, seed, arguments.references, arguments.quick)
            drawn = np.unique(prior.to_unconstrained(calibration.posterior.draws), axis=0)
            count = min(len(exact), len(drawn))
            rng = np.random.default_rng(seed)
            drawn, exact = rng.permutation(drawn)[:count], rng.permutation(exact)
            half = max(count, FEWEST) // 2
            figures = calibration.posterior.attrs
            row = {
                "seed": seed, "c2st": c2st(exact[:count], drawn) if count >= FEWEST else 1.0,
                "itself": c2st(exact[:half], exact[half : 2 * half]),
                "efficiency": figures["efficiency"], "kl": figures["network_kl"], "simulations": calibration.provenance["simulations"],
                "seconds": seconds,
            }  # fmt: skip
            rows.append(row)
            print(" ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
    columns = {k: np.array([r[k] for r in rows], float) for k in rows[0]}
    result = {
        "c2st": round(float(np.median(columns["c2st"])), 3), "worst_c2st": round(float(columns["c2st"].max()), 3),
        "itself": round(float(np.median(columns["itself"])), 3), "efficiency": round(float(np.median(columns["efficiency"])), 3),
        "worst_efficiency": round(float(columns["efficiency"].min()), 3), "simulations": int(columns["simulations"].max()),
        "seconds": round(float(np.median(columns["seconds"])), 1), "kl": round(float(np.median(columns["kl"])), 3),
        "lost": int((columns["c2st"] > LOST).sum()),
    }  # fmt: skip
    finish("servo_posterior", result, list(seeds), timer, as_json=arguments.json)


if __name__ == "__main__":
    main()
