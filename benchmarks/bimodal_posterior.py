"""A servo whose log admits two delays: are both kept, with the right weight?

The command repeats every 0.1 s and ran before the motor was switched on, so a delay d and a delay d + 0.1 s give exactly the same torque
at every step: the likelihoods are equal, and the modes' weights are as the prior's densities, d + 0.1 : d under a log-uniform prior. That
is the exact answer, without a reference run. Each truth has a delay below 0.05 s or its partner above 0.1 s, at random.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import xarray as xr
from common import Timer, finish, options

import sbical
from sbical.priors.prior import Prior
from sbical.recordings.experiment import build
from sbical.recordings.initial_state import InitialState
from sbical.recordings.recording import Recording
from sbical.simulation.cluster import cluster
from sbical.simulation.process import simulating
from sbical.simulation.simulator import Simulator

ROBOT = Path(__file__).parent / "robots" / "periodic_servo"
RATE, PERIOD, ON = 500, 0.1, 0.3
TIME = np.arange(int(RATE * 2.3)) / RATE
#: Two harmonics: their phases and the response tell the delay within a period, and nothing tells the period.
COMMAND = 0.6 * np.sin(2 * np.pi * TIME / PERIOD) + 0.4 * np.sin(4 * np.pi * TIME / PERIOD + 1.0)
START = (0.02, 0.5)
BUDGET = 14_500


def recording(name: str, time: np.ndarray, position: np.ndarray) -> Recording:
    """A log that begins ``ON`` seconds before the motor is switched on; ``position`` (T,) holds what was measured from then on."""
    inside = time >= ON - 1e-9
    seen = np.full(len(time), position[0])
    seen[inside] = position[: inside.sum()]
    streams = {"goal": COMMAND[: len(time)], "position": seen, "goal_enable": inside.astype(float)}
    nodes = {"/": xr.Dataset()}
    nodes |= {stream: xr.Dataset({"value": ("time", value)}, coords={"time": time}) for stream, value in streams.items()}
    return Recording(name, xr.DataTree.from_dict(nodes, name=name), (), f"{name}.csv")


def truth(simulator: Simulator, prior: Prior, seed: int) -> tuple[float, np.ndarray]:
    """The shorter of the two delays [s], and the positions that such a robot logs once it is on."""
    rng = np.random.default_rng(seed)
    theta, short = prior.sample(1, 2000 + seed), rng.uniform(0.008, 0.045)
    theta[0, prior.names.index("command_delay")] = short + PERIOD * rng.integers(2)
    blank = build([recording("blank", TIME, np.zeros(len(TIME)))], simulator.columns, simulator.layout, rate=RATE)
    window = replace(blank.windows[0], initial=InitialState(np.zeros(2), np.diag(START)))
    with simulating():
        found = simulator.simulate(theta, replace(blank, windows=(window,)), np.array([seed]))
    return float(short), found.values[0][0, :, 0]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--truths", type=int, default=10, help="how many robots (default 10)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first robot")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + (1 if arguments.quick else arguments.truths))
    simulator = sbical.load_simulator(ROBOT)
    prior = sbical.load_prior(ROBOT / "prior.toml").restricted(simulator.parameters)
    column, timer = prior.names.index("command_delay"), Timer()
    errors, lost = [], 0
    with cluster(workers=2) as client:
        for seed in seeds:
            short, position = truth(simulator, prior, seed)
            part = Timer()
            calibration = sbical.calibrate(
                simulator, prior, [recording("run", TIME, position)], holdout=[recording("again", TIME[: len(TIME) // 2], position)],
                client=client, simulations=1500 if arguments.quick else BUDGET, seed=seed,
            )  # fmt: skip
            delay = calibration.posterior.draws[:, column]
            weight, exact = float((delay > PERIOD).mean()), short / (2 * short + PERIOD)
            errors.append(abs(weight - exact))
            lost += int(weight < 0.01) + int(weight > 0.99)
            print(
                f"seed {seed}: delay {1e3 * short:.1f} ms, weight of the long one {weight:.3f} (exact {exact:.3f}), efficiency "
                f"{calibration.posterior.attrs['efficiency']:.2f}, {part.seconds:.0f} s",
                flush=True,
            )
    figures = {"worst_weight_error": round(max(errors), 3), "median_weight_error": round(float(np.median(errors)), 3), "lost_modes": lost}
    finish("bimodal_posterior", figures, list(seeds), timer, as_json=arguments.json)


if __name__ == "__main__":
    main()
