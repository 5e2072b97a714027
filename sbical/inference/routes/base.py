"""What every route to a posterior gives back, and the steps that routes share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from sbical.errors import SimulationError
from sbical.inference import estimator as estimators
from sbical.inference.estimator import Estimator
from sbical.inference.importance_weights import ImportanceWeights
from sbical.inference.local_estimator import LocalEstimator
from sbical.inference.summary import Summary, fit_summary
from sbical.inference.training import Training
from sbical.laplace.linear_summary import LinearSummary
from sbical.recordings.experiment import Experiment
from sbical.simulation.fanout import SimulationSet
from sbical.simulation.runner import Runner, check_failures

#: Draws of the posterior, the table that is exported; replays use the first ``REPLAYED`` of them.
DRAWS, REPLAYED = 2000, 200
#: Ranks of the tests of calibration are among this many draws.
FRESH_DRAWS = 200
#: Simulations that the summary is fitted on; they keep their trajectories, so memory limits them.
PILOT = 600
#: Measurements of each motion that a network is trained on, one at random in each step: noise that never comes again is not learned by
#: heart. Twice gained 0.46 nats on the example servo (2,500 simulations, three seeds), eight times no more; nothing on the double
#: pendulum, whose disturbance hides its sensors' noise.
COPIES = 2
#: Simulations that the estimator never sees, for the checks (Talts et al. 2018).
FRESH = 300


@dataclass(frozen=True, eq=False)
class FreshPosteriors:
    """Fresh simulations' truths (m, d), draws of their posteriors (m, L, d), and log densities (m,) and (m, L) of both."""

    theta_u: np.ndarray
    draws_u: np.ndarray
    log_q: np.ndarray
    draws_log_q: np.ndarray

    @classmethod
    def none(cls, d: int) -> FreshPosteriors:
        """Where the estimator's own calibration decides nothing."""
        return cls(np.empty((0, d)), np.empty((0, 0, d)), np.empty(0), np.empty((0, 0)))


@dataclass(frozen=True, eq=False)
class RouteResult:
    """A posterior and what it rests on.

    ``x_o`` (k,): summary of the recordings; ``posterior_u`` (n, d) draws; ``trained_on`` and ``fresh`` are summarised simulations;
    ``importance`` holds the weights where the likelihood corrected the estimator, ``statistics`` per draw (n,) what ArviZ keeps of
    them and ``figures`` what they say of the whole, ``errors`` (n, windows, k) the initial errors that belong to the draws.
    """

    summary: Summary | LinearSummary
    estimator: Estimator | LocalEstimator
    x_o: np.ndarray
    posterior_u: np.ndarray
    trained_on: SimulationSet
    fresh: SimulationSet
    fresh_posteriors: FreshPosteriors
    importance: ImportanceWeights | None = None
    errors: np.ndarray | None = None
    statistics: Mapping[str, np.ndarray] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def summarised(runner: Runner, stage: str, theta: np.ndarray, experiment: Experiment) -> tuple[Summary, SimulationSet]:
    """Simulate theta (n, d), fit a summary on the first ``PILOT`` of them, and summarise all.

    Raises SimulationError if most simulations fail.
    """
    some = min(PILOT, max(len(theta) // 3, 100))
    pilot = check_failures(runner.simulate(f"{stage} (pilot)", theta[:some], experiment))
    if pilot.trajectories is None:
        raise SimulationError("the pilot simulations returned no trajectories")
    summary = fit_summary(pilot.trajectories, experiment)
    x = summary(pilot.trajectories)
    own = replace(pilot, x=x, copies=np.repeat(x[:, None], COPIES, 1), trajectories=None)
    rest = check_failures(runner.simulate(stage, theta[some:], experiment, summary=summary, copies=COPIES))
    return summary, joined(own, rest)


def joined(first: SimulationSet, second: SimulationSet) -> SimulationSet:
    """Two summarised sets as one."""
    theta, seeds, status = (np.concatenate([getattr(first, k), getattr(second, k)]) for k in ("theta", "seeds", "status"))
    x = np.concatenate([features(first), features(second)])
    copies = None if first.copies is None or second.copies is None else np.concatenate([first.copies, second.copies])
    return SimulationSet(theta, seeds, status, x=x, seconds_per_simulation=second.seconds_per_simulation, copies=copies)


def features(simulated: SimulationSet) -> np.ndarray:
    """Summaries (n, k) of a set, failed rows NaN."""
    if simulated.x is None:
        raise SimulationError("these simulations were not summarised")
    return simulated.x


def train(runner: Runner, theta_u: np.ndarray, simulated: SimulationSet, *, seed: int, training: Training) -> Estimator:
    """Fit the ensemble on theta_u (n, d) and the summaries of the n simulations that did not fail, and show how far it is."""
    x = (features(simulated) if simulated.copies is None else simulated.copies)[simulated.ok]
    with runner.timed("training"), runner.progress.stage("train (epochs)", training.total(len(theta_u))) as bar:
        done = 0

        def advance(now: int, total: int, loss: float) -> None:
            nonlocal done
            bar.advance(now - done, f"held-out loss {loss:.2f} nats")
            done = now

        return estimators.fit(theta_u, x, seed=seed, training=training, progress=advance)


def fresh_posteriors(estimator: Estimator, theta_u: np.ndarray, x: np.ndarray, draws_u: np.ndarray) -> FreshPosteriors:
    """Fresh truths theta_u (m, d) with summaries x (m, k) and posterior draws (m, L, d)."""
    m, count, d = draws_u.shape
    log_q = estimator.log_prob_pairs(draws_u.reshape(-1, d), np.repeat(x, count, axis=0)).reshape(m, count)
    return FreshPosteriors(theta_u, draws_u, estimator.log_prob_pairs(theta_u, x), log_q)


def subset(simulated: SimulationSet, part: slice) -> SimulationSet:
    """Some simulations of a summarised set."""
    copies = None if simulated.copies is None else simulated.copies[part]
    return replace(
        simulated, theta=simulated.theta[part], seeds=simulated.seeds[part], status=simulated.status[part], x=features(simulated)[part],
        copies=copies,
    )  # fmt: skip
