"""Calibrate real robots, and score the motions that were held out.

Every rig runs through the product as a user would run it, with the split its README names. RMSE is the replay of the
posterior median (and of the prior median, before any calibration) on held-out recordings; coverage is that of the 90 %
posterior predictive band, by channel. Held-out recordings tune nothing.

    python benchmarks/recordings.py --data ../shared/data --json
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import Timer, finish, need, options
from rich.console import Console

import sbical
from sbical.common.progress import RichProgress
from sbical.inference.training import Training
from sbical.simulation.cluster import cluster


@dataclass(frozen=True)
class Rig:
    """A robot, the recordings it is calibrated on, and those that judge the result."""

    simulator: str
    prior: str
    calibrate: tuple[str, ...]
    holdout: tuple[str, ...]
    simulations: int


#: Training of --quick, on one recording of each rig.
QUICK = Training(members=1, steps=200)

RIGS = {
    "xl330": Rig(
        "geared_servo",
        "geared_servo",
        tuple(f"xl330_servo/kp{kp}_{motion}.csv" for kp in (100, 200, 400) for motion in ("sin_sin", "up_and_down", "lift_and_drop")),
        tuple(f"xl330_servo/kp{kp}_sin_time_square.csv" for kp in (100, 200, 400)),
        8000,
    ),
    "double_pendulum_a": Rig(
        "double_pendulum",
        "double_pendulum",
        ("double_pendulum/A0_sysid_00.csv.gz", "double_pendulum/A0_sysid_12.csv.gz"),
        ("double_pendulum/A0_sysid_03.csv.gz",),
        8000,
    ),
}


def calibrate(
    rig: Rig, data: Path, seed: int, simulations: int, client: Any, training: Training | None = None
) -> tuple[sbical.Calibration, float]:
    """One calibration of one rig, and its wall time [s]."""
    timer = Timer()
    simulator, prior = sbical.load_simulator(rig.simulator), sbical.load_prior(rig.prior)
    recordings = sbical.read_recordings([data / p for p in rig.calibrate], simulator.columns)
    held = sbical.read_recordings([data / p for p in rig.holdout], simulator.columns)
    progress = RichProgress(Console(stderr=True))
    calibration = sbical.calibrate(
        simulator, prior, recordings, holdout=held, client=client, seed=seed, simulations=simulations, training=training, progress=progress
    )
    return calibration, timer.seconds


def figures(calibration: sbical.Calibration, seconds: float) -> dict[str, Any]:
    """What is reported of one calibration."""
    channels = calibration.holdout.channels
    return {
        "rmse": float(np.mean(calibration.holdout_after.rmse())),
        "prior_rmse": float(np.mean(calibration.holdout_before.rmse())),
        "band_median_rmse": float(np.mean(calibration.holdout.rmse())),
        "coverage90": dict(zip(channels, calibration.holdout.coverage(0.9).round(3).tolist(), strict=True)),
        "interval_score": float(np.mean(calibration.holdout.interval_score(0.9))),
        "verdict": calibration.verdict.status,
        "seconds": seconds,
    }


def median(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Medians over seeds, and the spread of the held-out error."""
    out: dict[str, Any] = {k: round(float(np.median([r[k] for r in runs])), 5) for k in runs[0] if isinstance(runs[0][k], float)}
    out["coverage90"] = {c: float(np.median([r["coverage90"][c] for r in runs])) for c in runs[0]["coverage90"]}
    out["rmse_by_seed"] = [round(r["rmse"], 5) for r in runs]
    out["verdict_by_seed"] = [r["verdict"] for r in runs]
    return out


def main() -> None:
    parser = options(__doc__, data=True)
    parser.add_argument("--rigs", nargs="+", choices=list(RIGS), default=list(RIGS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--simulations", type=int, help="simulations to spend instead of each rig's own number")
    parser.add_argument("--keep", type=Path, help="folder to save every calibration in, as RIG-SEED")
    arguments = parser.parse_args()
    need(arguments.data)
    timer, results = Timer(), {}
    seeds = arguments.seeds[:1] if arguments.quick else arguments.seeds
    with cluster(workers=2) as client:
        for name in arguments.rigs:
            rig, runs = RIGS[name], []
            for seed in seeds:
                if arguments.quick:
                    rig = Rig(rig.simulator, rig.prior, rig.calibrate[:1], rig.holdout[:1], 1000)
                count = arguments.simulations or rig.simulations
                calibration, seconds = calibrate(rig, arguments.data, seed, count, client, QUICK if arguments.quick else None)
                if arguments.keep:
                    calibration.save(arguments.keep / f"{name}-{seed}")
                runs.append(figures(calibration, seconds))
                print(f"{name}, seed {seed}: {runs[-1]}\n{calibration.table()}\n{calibration.verdict}", flush=True)
            results[name] = median(runs)
    finish("recordings", results, seeds, timer, as_json=arguments.json)


if __name__ == "__main__":
    main()
