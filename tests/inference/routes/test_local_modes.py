"""The local route where two values of a parameter explain the recording: both are kept, in the right proportion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from sbical.inference.routes import local
from sbical.priors.prior import Prior, load_prior
from sbical.recordings.experiment import Experiment
from sbical.simulation.fanout import SimulationSet, Summarise
from sbical.simulation.rollout import Trajectories
from sbical.simulation.simulator import Simulator

MEDIANS, SPREAD = (1.0, 0.1, 0.2), (1.0, 0.5, 0.5)
TIME = 0.01 * np.arange(30)


def moved(u: np.ndarray) -> np.ndarray:
    """Clean trajectories (n, 30, 2) that hardly tell u from -u."""
    return u[:, None, None] ** 2 * np.stack([1 + TIME, np.cos(9 * TIME)], 1) + 0.02 * u[:, None, None]


@dataclass
class Toy:
    """Stands in for a runner: the motion is ``moved``, the noise is the simulator's."""

    simulator: Simulator
    count: int = 0
    late: bool = False
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def simulate(
        self, stage: str, theta: np.ndarray, experiment: Experiment, *, summary: Summarise, errors: np.ndarray
    ) -> SimulationSet:  # fmt: skip
        found = self.trajectories(stage, theta, experiment, noise=True, errors=errors)
        return SimulationSet(theta, np.zeros(len(theta), np.uint64), found.status, x=summary(found))

    def trajectories(self, stage: str, theta: np.ndarray, experiment: Experiment, *, noise: bool, **_: Any) -> Trajectories:
        self.count += len(theta)
        values = moved(np.log(theta[:, 0]))
        if noise:
            values = values + theta[:, None, 1:] * self.rng.normal(size=values.shape)
        return Trajectories((values,), np.zeros((len(theta), 1), np.int8))

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        yield


@pytest.fixture(scope="module")
def simulator(make_simulator: Callable[[str, str], Simulator], pendulum_toml: str, noisy_toml: str, pendulum_xml: str) -> Simulator:
    return make_simulator(pendulum_toml + noisy_toml, pendulum_xml)


@pytest.fixture(scope="module")
def experiment(simulator: Simulator, make_experiment: Callable[..., Experiment]) -> Experiment:
    """One recording at u = 1.2; its initial state is known exactly."""
    plain = make_experiment(simulator, seconds=(0.3,), time=TIME)
    noise = np.random.default_rng(5).normal(size=(30, 2)) * [0.1, 0.2]
    return replace(plain, windows=(replace(plain.windows[0], observed=moved(np.array([1.2]))[0] + noise),))


@pytest.fixture(scope="module")
def prior(simulator: Simulator, log_normal: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Prior:
    path = tmp_path_factory.mktemp("prior") / "prior.toml"
    path.write_text(log_normal(dict(zip(("viscous", "grain", "hum"), zip(MEDIANS, SPREAD, strict=True), strict=True))))
    return load_prior(path).restricted(simulator.parameters)


def log_marginal(observed: np.ndarray, u: np.ndarray) -> np.ndarray:
    """(n,) log prior + log likelihood of u, noises integrated out by quadrature."""
    square = ((observed - moved(u)) ** 2).sum(1)
    total = norm.logpdf(u)
    for c in range(2):
        z = np.linspace(-6, 6, 1201)
        std = MEDIANS[1 + c] * np.exp(SPREAD[1 + c] * z)
        log_p = norm.logpdf(z) - square[:, c, None] / (2 * std**2) - len(TIME) * (np.log(std) + 0.5 * np.log(2 * np.pi))
        total += logsumexp(log_p, axis=1) + np.log(z[1] - z[0])
    return total


@pytest.mark.slow
def test_two_modes_share_the_posterior(simulator: Simulator, prior: Prior, experiment: Experiment) -> None:
    toy: Any = Toy(simulator)
    found = local.local_posterior(toy, prior, experiment, budget=6000, seed=0, training=local.TRAINING)
    assert toy.count < 1.1 * 6000
    assert len(found.components) == 2
    weighted = found.weighted
    assert weighted.importance.trustworthy
    assert weighted.importance.efficiency > 0.3

    grid = np.linspace(-3, 3, 6001)
    log_p = log_marginal(experiment.observed[0], grid)
    evidence = logsumexp(log_p) + np.log(grid[1] - grid[0])
    assert weighted.importance.log_evidence == pytest.approx(evidence, abs=0.01 + 4 * weighted.importance.evidence_error)
    exact = np.exp(log_p - evidence) * (grid[1] - grid[0])
    right = exact[grid > 0].sum()
    assert 0.05 < right < 0.95
    u, weights = prior.to_unconstrained(prior.to_constrained(weighted.u))[:, 0], weighted.importance.weights
    assert weights[u > 0].sum() == pytest.approx(right, abs=0.05)
    for side in (1, -1):
        mine, there = side * u > 0, side * grid > 0
        mean = np.average(u[mine], weights=weights[mine])
        sd = np.sqrt(np.average((u[mine] - mean) ** 2, weights=weights[mine]))
        wanted = np.average(grid[there], weights=exact[there])
        wanted_sd = np.sqrt(np.average((grid[there] - wanted) ** 2, weights=exact[there]))
        assert mean == pytest.approx(wanted, abs=0.15 * wanted_sd)
        assert sd == pytest.approx(wanted_sd, rel=0.15)
