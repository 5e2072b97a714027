"""Are posteriors as often right as they say? Simulated robots through the whole product, by both routes, on two rigs.

Rigs: `servo6` (benchmarks/robots; the catalog's servo has a disturbance and so no explicit likelihood, this one has, which puts the local
route's weights to the test) and the catalog's `double_pendulum` (disturbance torques are latent: there the local route is the truncated
one). Every robot is drawn from the prior and simulated by the model itself, noise and disturbances included. A recording is one window,
started at rest give or take ``experiment.START_SPREAD``.

- amortized: one calibration per rig, on a robot with the prior's median; then ``Calibration.infer`` for every robot. Robots start as that
  calibration's simulations do, ``Experiment.spread()``, so that truth and model agree exactly.
- local: one calibration per robot. The route takes starts from the recording itself and as good as unknown beforehand (``local.DIFFUSE``
  times the fit's spread; the truncated route: the fit's spread), so no prior of starts exists that robots could be drawn from: they start
  at rest give or take ``START_SPREAD``, and what that difference does is part of what is measured.

Four statistics per rig and route, on ranks of the truth among ``DRAWS`` draws: `sbc` (rank ECDFs of all parameters), `tarp`, `central`
(coverage of each parameter's central 50, 80, 90 and 95 % ranges) and `densest` (expected coverage of the estimator's densest 50 to 95 %
regions). Each has its own band, simultaneous over all that it comprises (parameters, levels, points of a curve), with 99 % under exact
calibration: in 4,000 replicates a random member of every robot's pool of truth and draws is swapped for the truth, so that the
draws of one robot stay one cluster with its correlations. ``outside_bands_amortized`` and ``outside_bands_local`` count statistics
outside of their band, at most 8 each; exact posteriors have one or more with a chance of at most 8 %.

Finished robots and amortized calibrations are kept in --cache under names that hold all they depend on: an interrupted run goes on.

    python benchmarks/coverage.py --json
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import Timer, finish, options
from distributed import Client
from kept import CACHE, Kept, fingerprint
from servo_posterior import COMMAND, RATE
from simulated import measured, recording, shortened, started
from standins import link_torques

import sbical
from sbical.checks import expected_coverage, sbc, tarp
from sbical.checks.base import WARN_P, Evidence
from sbical.checks.permutation_tests import means, p_value, pooled, ranks, swaps
from sbical.inference.local_estimator import LocalEstimator
from sbical.inference.summary import Summary
from sbical.priors.prior import Prior
from sbical.recordings.experiment import START_SPREAD, Experiment, build
from sbical.recordings.protocol import experiment_on_protocol
from sbical.recordings.recording import Recording
from sbical.results.calibration import Calibration, load_calibration
from sbical.simulation.cluster import cluster
from sbical.simulation.simulator import Simulator

LEVELS = expected_coverage.LEVELS
DRAWS = 200
ROBOTS, LOCAL = 300, 60
HERTZ = 250


@dataclass(frozen=True, eq=False)
class Rig:
    """A simulator and its protocol: for each run the commands by name (T,), sampled at ``time`` (T,) [s]."""

    name: str
    simulator: Simulator
    prior: Prior
    time: np.ndarray
    runs: tuple[Mapping[str, np.ndarray], ...]
    window: float | None

    def log(self, values: tuple[np.ndarray, ...] | None = None) -> list[Recording]:
        """The recordings of a robot that measured ``values`` (T, m) in each run; zero before any robot ran it."""
        channels = [c.name for c in self.simulator.columns.measurements]
        read = values or tuple(np.zeros((len(self.time), len(channels))) for _ in self.runs)
        return [
            recording(f"run{i}", self.time, {**run, **dict(zip(channels, seen.T, strict=True))})
            for i, (run, seen) in enumerate(zip(self.runs, read, strict=True))
        ]

    def at_rest(self, spread: tuple[float, float]) -> Experiment:
        """The protocol started at rest at the model's home, give or take ``spread``."""
        blank = build(self.log(), self.simulator.columns, self.simulator.layout, window=self.window, rate=HERTZ)
        return started(blank, self.simulator.layout.qpos0, spread)

    def robot(self, experiment: Experiment, seed: int) -> tuple[np.ndarray, list[Recording]]:
        """A robot from the prior, theta (d,), and what it logs; another one where a simulation fails, as in training."""
        for theta in self.prior.sample(10, 5000 + seed):
            values = measured(self.simulator, theta, experiment, seed)
            if values is not None:
                return theta, self.log(values)
        raise RuntimeError(f"ten robots of {self.name} could not be simulated")

    def depends(self) -> str:
        """What its robots depend on."""
        commands = b"".join(c.tobytes() for run in self.runs for c in run.values())
        return "\0".join([self.simulator.digest(), self.prior.to_toml(), self.time.tobytes().hex(), commands.hex(), str(self.window)])


def servo() -> Rig:
    """The six-parameter servo, 2 s."""
    folder = Path(__file__).parent / "robots" / "servo6"
    simulator = sbical.load_simulator(folder)
    prior = sbical.load_prior(folder / "prior.toml").restricted(simulator.parameters)
    command = COMMAND[:: RATE // HERTZ]
    return Rig("servo6", simulator, prior, np.arange(len(command)) / HERTZ, ({"goal": command},), None)


def pendulum() -> Rig:
    """The catalog's double pendulum, three runs of 1 s with the torques of its stand-in."""
    simulator = sbical.load_simulator("double_pendulum")
    prior = sbical.load_prior("double_pendulum").restricted(simulator.parameters)
    time = np.arange(HERTZ + 1) / HERTZ
    torques = [np.array([link_torques(run)(float(t)) for t in time]) for run in range(3)]
    runs = tuple({"torque1": t[:, 0], "torque2": t[:, 1]} for t in torques)
    return Rig("double_pendulum", simulator, prior, time, runs, 1.0)


RIGS: dict[str, Callable[[], Rig]] = {"servo6": servo, "double_pendulum": pendulum}


def amortized(rig: Rig, budget: int | None, client: Client, folder: Path) -> Calibration:
    """The rig's one calibration, from the cache or made."""
    if folder.exists():
        return load_calibration(folder)
    centre, _ = rig.prior.moments_unconstrained()
    values = measured(rig.simulator, rig.prior.to_constrained(centre[None])[0], rig.at_rest((0.0, 0.0)), 0)
    runs = rig.log(values)
    calibration = sbical.calibrate(
        rig.simulator, rig.prior, runs, holdout=[shortened(runs[0], len(rig.time))], method="amortized", simulations=budget,
        window=rig.window, client=client,
    )  # fmt: skip
    calibration.save(folder)
    return calibration


def inferred(rig: Rig, calibration: Calibration, seed: int) -> dict[str, Any]:
    """One robot by the amortized estimator."""
    timer = Timer()
    theta, runs = rig.robot(calibration.experiment.spread(), seed)
    inference = calibration.infer(runs, draws=DRAWS, seed=seed)
    experiment = experiment_on_protocol(calibration.experiment, runs, rig.simulator.columns)
    return row(calibration, theta, inference.posterior.draws, experiment) | {"seed": seed, "seconds": timer.seconds}


def calibrated(rig: Rig, budget: int | None, client: Client, seed: int) -> dict[str, Any]:
    """One robot by a calibration of its own."""
    timer = Timer()
    theta, runs = rig.robot(rig.at_rest(START_SPREAD), 10_000 + seed)
    calibration = sbical.calibrate(
        rig.simulator, rig.prior, runs, holdout=[shortened(runs[0], len(rig.time))], simulations=budget, window=rig.window, client=client,
        seed=seed,
    )  # fmt: skip
    found = row(calibration, theta, calibration.posterior.draws[:DRAWS], calibration.experiment)
    told = {"efficiency": calibration.posterior.attrs.get("efficiency"), "verdict": calibration.verdict.status}
    return found | told | {"seed": seed, "seconds": timer.seconds}


def row(calibration: Calibration, theta: np.ndarray, draws: np.ndarray, experiment: Experiment) -> dict[str, Any]:
    """Truth and draws in unconstrained coordinates, with the estimator's log density of both; truth first."""
    u = calibration.prior.to_unconstrained(np.concatenate([theta[None], draws]))
    estimator, summary = calibration.estimator, calibration.summary
    if isinstance(estimator, LocalEstimator):
        log_q = estimator.log_prob(u)
    elif isinstance(summary, Summary):
        log_q = estimator.condition(summary.observed(experiment)).log_prob(u)
    else:
        raise TypeError(f"no density of {type(estimator).__name__} on {type(summary).__name__}")
    return {"u": [[float(f"{v:.7g}") for v in r] for r in u], "log_q": [float(f"{v:.7g}") for v in log_q]}


def evidence(names: tuple[str, ...], rows: list[dict[str, Any]]) -> Evidence:
    """What the checks of calibration look at; all else is empty."""
    u, log_q = np.array([r["u"] for r in rows]), np.array([r["log_q"] for r in rows])
    none, flat = np.empty((0, len(names))), np.empty(0)
    return Evidence(
        names=names, units=("",) * len(names), prior_u=none, posterior_u=none, prior=none, posterior=none, prior_interval=(flat, flat),
        x_o=flat, residual_features=flat, x_fresh=none, theta_u_fresh=u[:, 0], fresh_draws_u=u[:, 1:], fresh_log_q=log_q[:, 0],
        fresh_draws_log_q=log_q[:, 1:], x_train=none, importance=None, holdout=None, holdout_before=None, holdout_after=None,
        fitted=None, unseen=None, failed_fraction=0.0,
    )  # fmt: skip


def central(seen: Evidence) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """p of the central ranges' coverage, the coverage (d, levels) itself, and the low and high edges of its band."""
    pit = ranks(pooled(seen.theta_u_fresh, seen.fresh_draws_u))
    m, members, d = pit.shape
    inside = (np.abs(pit - 0.5)[..., None] <= LEVELS / 2).astype(float).reshape(m, members, -1)
    covered = means(inside, swaps(m, members))
    exact, spread = covered[1:].mean(axis=0), np.maximum(covered[1:].std(axis=0), 1e-9)
    deviation = (np.abs(covered - exact) / spread).max(axis=1)
    half = np.quantile(deviation[1:], 1 - WARN_P) * spread
    shaped = (d, len(LEVELS))
    low, high = np.maximum(exact - half, 0.0), np.minimum(exact + half, 1.0)
    return p_value(deviation), covered[0].reshape(shaped), low.reshape(shaped), high.reshape(shaped)


def judged(names: tuple[str, ...], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """All statistics of one rig and route."""
    seen = evidence(names, rows)
    p, covered, low, high = central(seen)
    densest = expected_coverage.check(seen)
    distances = tarp.check(seen)
    p_values = {"sbc": sbc.check(seen).values["p"], "tarp": distances.values["p"], "central": p, "densest": densest.values["p"]}
    narrow = {n: int(c[2] < a[2]) - int(c[2] > b[2]) for n, c, a, b in zip(names, covered, low, high, strict=True)}
    held = {f"{level:.0%}": round(float(c), 3) for level, c in zip(LEVELS, covered.mean(0), strict=True)}
    found = {
        "robots": len(rows), "p": {k: round(v, 5) for k, v in p_values.items()},
        "outside": [k for k, v in p_values.items() if v < WARN_P],
        "central_mean": held, "central90": {n: round(float(c[2]), 3) for n, c in zip(names, covered, strict=True)},
        "band90": [round(float(low[:, 2].mean()), 3), round(float(high[:, 2].mean()), 3)],
        "narrow90": [n for n, side in narrow.items() if side > 0], "wide90": [n for n, side in narrow.items() if side < 0],
        "tarp": distances.figure, "densest": densest.figure, "median_seconds": float(np.median([r["seconds"] for r in rows])),
    }  # fmt: skip
    weights = [r["efficiency"] for r in rows if r.get("efficiency") is not None]
    return found | ({"efficiency": round(float(np.median(weights)), 3), "worst_efficiency": round(min(weights), 3)} if weights else {})


def robots(rig: Rig, route: str, count: int, budget: int | None, client: Client, cache: Path) -> list[dict[str, Any]]:
    """Rows of the rig's robots, from the cache or made."""
    name = f"coverage-{route}-{rig.name}-{fingerprint(rig.depends(), route, str(budget), str(DRAWS))}"
    kept = Kept(cache / f"{name}.jsonl")
    done = kept.rows()
    missing = [seed for seed in range(count) if seed not in done]
    calibration = amortized(rig, budget, client, cache / name) if route == "amortized" and missing else None
    for seed in missing:
        done[seed] = calibrated(rig, budget, client, seed) if calibration is None else inferred(rig, calibration, seed)
        kept.add(done[seed])
        if calibration is None:
            print(f"{rig.name} local {seed}: {done[seed]['seconds']} s, efficiency {done[seed]['efficiency']}", flush=True)
    return [done[seed] for seed in range(count)]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--robots", type=int, default=ROBOTS, help=f"robots by the amortized route (default {ROBOTS})")
    parser.add_argument("--local", type=int, default=LOCAL, help=f"robots by the local route (default {LOCAL})")
    parser.add_argument("--rigs", nargs="+", choices=tuple(RIGS), default=tuple(RIGS), help="which rigs (default all)")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder that keeps finished robots")
    arguments = parser.parse_args()
    counts = {"amortized": arguments.robots, "local": arguments.local}
    budgets: dict[str, int | None] = dict.fromkeys(counts)
    if arguments.quick:
        arguments.rigs, counts = ("servo6",), {"amortized": 30, "local": 1}
        budgets |= {"amortized": 1000, "local": 1500}
    figures: dict[str, Any] = {}
    timer = Timer()
    with cluster(workers=2) as client:
        client.run(sbical.load_simulator, "double_pendulum")  # a running cluster has imported what it needs
        for route, count in counts.items():
            if not count:
                continue
            for name in arguments.rigs:
                rig = RIGS[name]()
                rows = robots(rig, route, count, budgets[route], client, arguments.cache)
                figures[f"{name}_{route}"] = judged(rig.prior.names, rows)
                print(f"{name} {route}: {figures[f'{name}_{route}']}", flush=True)
            mine = [figures[f"{name}_{route}"]["outside"] for name in arguments.rigs]
            figures[f"outside_bands_{route}"] = sum(map(len, mine))
    finish("coverage", figures, list(range(max(counts.values()))), timer, as_json=arguments.json)


if __name__ == "__main__":
    main()
