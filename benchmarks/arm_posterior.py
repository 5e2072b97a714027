"""A six-axis arm with 29 unknowns through the whole product on two workers: time, efficiency of the weights, coverage.

For each truth drawn from the prior: one simulated recording of 8 s at 125 Hz, a sum of sines on every joint, calibrated by the local route.
``seconds`` and ``efficiency`` are medians over the truths, and ``coverage90`` is the share of all parameters of all truths inside their
central 90 % range; the parameters of one robot share its posterior, so ``coverage90_error`` is taken between robots. Finished
robots are kept in --cache and not calibrated again.

    python benchmarks/arm_posterior.py --json
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from common import Timer, finish, options
from distributed import Client
from kept import CACHE, Kept, fingerprint
from simulated import measured, recording, shortened, started

import sbical
from sbical.priors.prior import Prior
from sbical.recordings.experiment import build
from sbical.recordings.recording import Recording
from sbical.simulation.cluster import cluster
from sbical.simulation.simulator import Simulator

ROBOT = Path(__file__).parent / "robots" / "arm6"
RATE, SECONDS = 125, 8.0
TIME = np.arange(int(RATE * SECONDS)) / RATE
#: Posture that the arm moves around [rad].
HOME = np.array([0.0, 0.5, 1.2, -0.5, 0.3, 0.2])
#: Four sines per joint [Hz], amplitudes falling with frequency [rad]: slow ones show gravity and friction, fast ones inertia and delay.
FREQUENCIES, AMPLITUDES = np.array([0.16, 0.47, 1.1, 2.3]), np.array([0.45, 0.22, 0.10, 0.04])
#: Where a robot starts: at rest at home, but for this much [rad], [rad/s].
START = (0.01, 0.05)
BUDGET = 20_000


def goals() -> np.ndarray:
    """Commanded angles (T, joints) [rad], from rest."""
    rng = np.random.default_rng(0)
    joints = len(HOME)
    rate = FREQUENCIES * rng.uniform(0.85, 1.15, (joints, len(FREQUENCIES)))
    phase = rng.uniform(0, 2 * np.pi, rate.shape)
    wave = AMPLITUDES * (np.sin(2 * np.pi * rate * TIME[:, None, None] + phase))
    return HOME + np.minimum(TIME / 0.5, 1.0)[:, None] * wave.sum(2)


def truth(simulator: Simulator, prior: Prior, seed: int) -> tuple[np.ndarray, Recording]:
    """Parameters (d,) from the prior, and what such a robot logs."""
    command = {f"{c}_goal": goal for c, goal in zip((c.name for c in simulator.columns.measurements), goals().T, strict=True)}
    names = tuple(c.name for c in simulator.columns.measurements)
    blank = recording("blank", TIME, command | dict.fromkeys(names, np.zeros(len(TIME))))
    experiment = started(build([blank], simulator.columns, simulator.layout, rate=RATE), HOME, START)
    # another draw for a robot that no simulation can follow
    for theta in prior.sample(10, 3000 + seed):
        values = measured(simulator, theta, experiment, seed)
        if values is not None:
            return theta, recording("run", TIME, command | dict(zip(names, values[0].T, strict=True)))
    raise RuntimeError("ten robots from the prior could not be simulated")


def calibrated(simulator: Simulator, prior: Prior, seed: int, budget: int, client: Client) -> dict[str, Any]:
    """One robot through the product."""
    theta, run = truth(simulator, prior, seed)
    began = time.perf_counter()
    calibration = sbical.calibrate(simulator, prior, [run], holdout=[shortened(run, RATE)], client=client, simulations=budget, seed=seed)
    seconds = time.perf_counter() - began
    low, high = calibration.posterior.interval(0.9)
    u = prior.to_unconstrained(calibration.posterior.draws)
    figures, origin = calibration.posterior.attrs, calibration.provenance
    return {
        "seed": seed, "seconds": seconds, "simulations": origin["simulations"], "spent": origin["seconds"],
        "efficiency": figures["efficiency"], "k_hat": figures["k_hat"], "kl": figures["network_kl"], "verdict": calibration.verdict.status,
        "checks": {f.name: [f.status, f.figure] for f in calibration.verdict.checks if f.status != "pass"},
        "inside": ((low <= theta) & (theta <= high)).astype(int).tolist(),
        "z": ((prior.to_unconstrained(theta[None])[0] - u.mean(0)) / u.std(0)).round(3).tolist(),
        "notes": [n for n in calibration.notes if n.startswith("local route")],
    }  # fmt: skip


def shown(row: dict[str, Any]) -> str:
    """A robot's line."""
    slowest = sorted(row["spent"].items(), key=lambda item: -item[1])[:5]
    spent = ", ".join(f"{stage} {seconds:.0f}" for stage, seconds in slowest)
    return (
        f"seed {row['seed']}: {row['seconds']:.0f} s ({spent}), efficiency {row['efficiency']:.3f}, k-hat {row['k_hat']:.2f}, "
        f"90 % ranges hold {sum(row['inside'])} of {len(row['inside'])}, {row['simulations']} simulations, "
        f"verdict {row['verdict']} ({', '.join(f'{name} {status}' for name, (status, _) in row['checks'].items())})"
    )


def summed(rows: list[dict[str, Any]]) -> dict[str, float | None]:
    """Figures over all robots."""
    covered = np.array([np.mean(r["inside"]) for r in rows])
    efficiency = np.array([r["efficiency"] for r in rows])
    spent = [sum(v for k, v in r["spent"].items() if k not in ("training", "likelihood", "checks")) for r in rows]
    return {
        "seconds": round(float(np.median([r["seconds"] for r in rows])), 1), "slowest": round(max(r["seconds"] for r in rows), 1),
        "efficiency": round(float(np.median(efficiency)), 4), "worst_efficiency": round(float(efficiency.min()), 4),
        "coverage90": round(float(covered.mean()), 3),
        "coverage90_error": round(float(covered.std(ddof=1) / np.sqrt(len(covered))), 3) if len(covered) > 1 else None,
        "parameters": len(rows[0]["inside"]), "simulations": int(np.median([r["simulations"] for r in rows])),
        "simulations_per_second": round(float(np.median([r["simulations"] / s for r, s in zip(rows, spent, strict=True)])), 1),
    }  # fmt: skip


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--truths", type=int, default=8, help="how many robots (default 8)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first robot")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder that keeps finished robots")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + (1 if arguments.quick else arguments.truths))
    budget = 1500 if arguments.quick else BUDGET
    simulator = sbical.load_simulator(ROBOT)
    prior = sbical.load_prior(ROBOT / "prior.toml").restricted(simulator.parameters)
    depends = (simulator.digest(), prior.to_toml(), str(budget), goals().tobytes().hex(), str(START))
    kept, timer = Kept(arguments.cache / f"arm_posterior-{fingerprint(*depends)}.jsonl"), Timer()
    done = kept.rows()
    with cluster(workers=2) as client:
        client.run(sbical.load_simulator, ROBOT)  # a running cluster has imported what it needs
        for seed in seeds:
            if seed not in done:
                done[seed] = calibrated(simulator, prior, seed, budget, client)
                kept.add(done[seed])
            print(shown(done[seed]), flush=True)
    finish("arm_posterior", summed([done[seed] for seed in seeds]), list(seeds), timer, as_json=arguments.json)


if __name__ == "__main__":
    main()
