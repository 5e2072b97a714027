"""The whole line in one function: recordings, simulator and prior in, a judged posterior out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from distributed import Client

from sbical import estimator as estimators
from sbical.calibration import Calibration, Replays
from sbical.checks import judge
from sbical.checks.base import Evidence
from sbical.cluster import cluster
from sbical.errors import SimulationError
from sbical.estimator import Estimator, Training
from sbical.experiment import Experiment
from sbical.fanout import Job, SimulationSet, simulate
from sbical.plan import FRESH, PILOT, Plan, plan
from sbical.posterior import Posterior
from sbical.prior import Prior
from sbical.progress import NullProgress, Progress
from sbical.provenance import provenance
from sbical.recording import Recording
from sbical.replay import Replay, replay
from sbical.simulator import Simulator
from sbical.summary import Summary, fit_summary

#: Posterior draws of the table; replays use the first ``REPLAYED`` of them.
DRAWS = 2000
REPLAYED = 200
#: Ranks of simulation-based calibration are among this many draws.
RANKED = 200


def calibrate(
    simulator: Simulator,
    prior: Prior,
    recordings: Sequence[Recording],
    *,
    holdout: Sequence[str | Path | Recording] | None = None,
    client: Client | str | None = None,
    workers: int = 2,
    simulations: int = 4000,
    window: float | None = None,
    seed: int = 0,
    training: Training | None = None,
    progress: Progress | None = None,
    profiler_clock: bool = False,
) -> Calibration:
    """Learn from recordings what the simulator gets wrong, and judge how far that can be trusted.

    Simulations fan out over ``client`` (a Dask client or a scheduler's address), or over ``workers`` local processes: a script
    that does the latter needs ``if __name__ == "__main__":``. See ``plan`` for ``holdout``, ``window`` and ``seed``.
    ``profiler_clock`` leaves MuJoCo's timer on in the workers; results are the same, simulations slower.

    Raises the errors of ``plan``, ClusterError, and SimulationError if most simulations fail.
    """
    intended = plan(simulator, prior, recordings, holdout=holdout, simulations=simulations, window=window, seed=seed, workers=workers)
    return run(intended, client=client, training=training, progress=progress, profiler_clock=profiler_clock)


def run(
    intended: Plan,
    *,
    client: Client | str | None = None,
    training: Training | None = None,
    progress: Progress | None = None,
    profiler_clock: bool = False,
) -> Calibration:
    """Carry a plan out; see ``calibrate``."""
    progress = progress or NullProgress()
    spent: dict[str, float] = {}
    with cluster(client, workers=intended.workers) as opened:
        line = _Line(intended, opened, progress, spent, profiler_clock)
        summary = line.fit_summary()
        trained_on, fresh = line.simulate_prior(summary)
        estimator = line.train(trained_on, training or Training())
        x_o = summary.observed(intended.experiment)
        posterior_u = estimator.condition(x_o).sample(DRAWS, seed=intended.seed + 1)
        draws = intended.prior.to_constrained(posterior_u)
        prior_draws = intended.prior.sample(DRAWS, intended.seed + 2)
        replays = line.replay(draws, prior_draws)
    began = time.perf_counter()
    simulated = [trained_on, fresh]
    evidence = Evidence(
        names=intended.prior.names, units=intended.prior.units, prior=prior_draws, prior_u=intended.prior.to_unconstrained(prior_draws),
        posterior=draws, posterior_u=posterior_u, prior_interval=intended.prior.interval(0.9), x_o=x_o, outside=summary.outside,
        x_train=_x(trained_on), x_fresh=_x(fresh), **_ranked(estimator, intended.prior, fresh, intended.seed + 3), holdout=replays.holdout,
        holdout_before=replays.before, holdout_after=replays.after,
        failed_fraction=1 - float(np.concatenate([s.ok for s in simulated]).mean()),
    )  # fmt: skip
    verdict = judge(evidence)
    spent["checks"] = time.perf_counter() - began
    origin = {"simulator": intended.simulator.name}
    posterior = Posterior(intended.prior.names, intended.prior.units, draws, prior_draws, replays.predictive, origin)
    return Calibration(
        simulator=intended.simulator, prior=intended.prior, experiment=intended.experiment, summary=summary, estimator=estimator,
        simulations=trained_on, fresh=fresh, posterior=posterior, verdict=verdict, replays=replays, notes=intended.notes,
        provenance=provenance(intended, simulated, spent),
    )  # fmt: skip


class _Line:
    """The steps that simulate or train, with what they share."""

    def __init__(self, intended: Plan, client: Client, progress: Progress, spent: dict[str, float], clock: bool) -> None:
        self.plan, self.client, self.progress, self.spent, self.clock = intended, client, progress, spent, clock
        # one seed per simulation, all from the user's one
        draw, self.seeds = np.random.SeedSequence(intended.seed).spawn(2)
        self.theta = intended.prior.sample(intended.total, int(draw.generate_state(1)[0]))
        self.simulation_seeds = self.seeds.generate_state(intended.total + 4 * REPLAYED, np.uint64)
        self.wide = intended.experiment.spread()

    def _simulate(
        self, stage: str, theta: np.ndarray, seeds: np.ndarray, experiment: Experiment, summary: Summary | None = None, *,
        noise: bool = True,
    ) -> SimulationSet:  # fmt: skip
        began = time.perf_counter()
        job = Job(self.plan.simulator, experiment, summary, noise, self.clock)
        result = simulate(job, theta, seeds, self.client, progress=self.progress, stage=stage)
        self.spent[stage] = self.spent.get(stage, 0.0) + time.perf_counter() - began
        return result

    def fit_summary(self) -> Summary:
        """Simulate the pilot set and fit the summary on it."""
        pilot = self._simulate("pilot", self.theta[:PILOT], self.simulation_seeds[:PILOT], self.wide)
        _enough(pilot)
        if pilot.trajectories is None:
            raise SimulationError("the pilot simulations returned no trajectories")
        return fit_summary(pilot.trajectories, self.wide)

    def simulate_prior(self, summary: Summary) -> tuple[SimulationSet, SimulationSet]:
        """Training set, and fresh simulations that the estimator never sees."""
        rows = slice(PILOT, self.plan.total)
        both = self._simulate("simulate", self.theta[rows], self.simulation_seeds[rows], self.wide, summary)
        _enough(both)
        return _rows(both, slice(None, -FRESH)), _rows(both, slice(-FRESH, None))

    def train(self, simulated: SimulationSet, training: Training) -> Estimator:
        """Fit the ensemble on unconstrained parameters."""
        began = time.perf_counter()
        theta_u = self.plan.prior.to_unconstrained(simulated.theta[simulated.ok])
        with self.progress.stage("train (epochs)", training.total(len(theta_u))) as bar:
            done = 0

            def advance(now: int, total: int, loss: float) -> None:
                nonlocal done
                bar.advance(now - done, f"held-out loss {loss:.2f} nats")
                done = now

            estimator = estimators.fit(theta_u, _x(simulated), seed=self.plan.seed, training=training, progress=advance)
        self.spent["train"] = time.perf_counter() - began
        return estimator

    def replay(self, draws: np.ndarray, prior_draws: np.ndarray) -> Replays:
        """Posterior predictive on the calibration windows; on held-out ones also the two medians, before and after."""
        seeds = self.simulation_seeds[self.plan.total :]
        some = draws[:REPLAYED]
        medians = np.stack([np.median(prior_draws, 0), np.median(draws, 0)])
        predictive = self._replay("replay", some, seeds[:REPLAYED], self.plan.experiment)
        holdout = self._replay("replay held out", some, seeds[REPLAYED : 2 * REPLAYED], self.plan.holdout)
        points = self._replay("replay medians", medians, seeds[-2:], self.plan.holdout, noise=False)
        before, after = (_draw(points, slice(i, i + 1)) for i in (0, 1))
        return Replays(predictive, holdout, before, after)

    def _replay(self, stage: str, theta: np.ndarray, seeds: np.ndarray, experiment: Experiment, *, noise: bool = True) -> Replay:
        simulated = self._simulate(stage, theta, seeds, experiment, noise=noise)
        if simulated.trajectories is None:
            raise SimulationError("the replay returned no trajectories")
        return replay(experiment, simulated.trajectories)


def _ranked(estimator: Estimator, prior: Prior, fresh: SimulationSet, seed: int) -> dict[str, np.ndarray]:
    """Truths of the fresh simulations, draws of their posteriors and log densities of both: fields of ``Evidence``."""
    x, theta_u = _x(fresh), prior.to_unconstrained(fresh.theta[fresh.ok])
    draws = estimator.sample_many(x, RANKED, seed=seed)
    log_q = estimator.log_prob_pairs(draws.reshape(-1, draws.shape[2]), np.repeat(x, RANKED, axis=0)).reshape(len(x), RANKED)
    return {
        "theta_u_fresh": theta_u, "fresh_draws_u": draws,
        "fresh_log_q": estimator.log_prob_pairs(theta_u, x), "fresh_draws_log_q": log_q,
    }  # fmt: skip


def _x(simulated: SimulationSet) -> np.ndarray:
    """Summaries of the simulations that did not fail, (n_ok, k)."""
    if simulated.x is None:
        raise SimulationError("these simulations were not summarised")
    return simulated.x[simulated.ok]


def _rows(simulated: SimulationSet, rows: slice) -> SimulationSet:
    x = None if simulated.x is None else simulated.x[rows]
    return replace(simulated, theta=simulated.theta[rows], seeds=simulated.seeds[rows], status=simulated.status[rows], x=x)


def _draw(full: Replay, rows: slice) -> Replay:
    return replace(full, windows=tuple(replace(w, draws=w.draws[rows]) for w in full.windows))


def _enough(simulated: SimulationSet) -> None:
    """Learning from the few simulations that survived would be learning about the survivors."""
    share = float(simulated.ok.mean())
    if share < 0.5:
        reasons = "; ".join(f"{n} x {reason}" for reason, n in simulated.failures().items())
        raise SimulationError(
            f"{1 - share:.0%} of the simulations failed ({reasons}); narrow the prior, shorten the timestep or the windows"
        )
