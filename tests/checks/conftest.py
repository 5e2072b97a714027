"""A linear Gaussian robot whose exact posterior is known, and may be made wrong on purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from sbical.checks.base import Evidence
from sbical.simulation.replay import Replay, Reproduction, WindowReplay

MakeEvidence = Callable[..., Evidence]

NAMES, UNITS = ("kp", "damping", "friction", "armature"), ("N m/rad", "N m s/rad", "N m", "kg m^2")
D, K, M, L = 4, 12, 300, 200


def replay(rng: np.random.Generator, *, spread: float = 1.0, draws: int = 400, error: float = 1.0) -> Replay:
    """Observations N(0, error²) per sample, replayed with draws N(0, spread²)."""
    observed = error * rng.normal(size=(500, 2))
    window = WindowReplay("run1", 0.0, np.arange(500) * 0.01, observed, spread * rng.normal(size=(draws, 500, 2)))
    return Replay(("position", "velocity"), ("rad", "rad/s"), (window,))


def reproduced(
    rng: np.random.Generator, noise: Callable[[np.random.Generator, int], np.ndarray] | None = None, *, windows: int = 2, step: float = 0.0,
    samples: int = 300, draws: int = 200,
) -> Reproduction:  # fmt: skip
    """One channel: a sine whose amplitude, offset and rate are known as well as white noise of 0.1 allows, and a robot
    that follows the same sine with ``noise(rng, samples)`` (default: the same white noise) on top; readings are rounded to ``step``.
    """
    time = np.arange(samples) * 0.004
    shape = np.stack([np.sin(9 * time), np.ones(samples), time * np.cos(9 * time)], 1)
    sensitivity = np.concatenate([shape] * windows)
    root = np.linalg.cholesky(0.1**2 * np.linalg.inv(sensitivity.T @ sensitivity))
    truth = rng.normal(size=3)
    shocks = rng.normal(size=(draws, 3)) @ root.T
    added = [0.1 * rng.normal(size=samples) if noise is None else noise(rng, samples) for _ in range(windows)]
    # where the posterior of linear least squares would be
    best = truth + np.linalg.lstsq(sensitivity, np.concatenate(added), rcond=None)[0]
    clean = (best + shocks) @ shape.T

    def read(values: np.ndarray) -> np.ndarray:
        return np.round(values / step) * step if step else values

    held = [read(shape @ truth + a)[:, None] for a in added]
    noisy = [read(clean + 0.1 * rng.normal(size=clean.shape))[..., None] for _ in held]
    pair = [
        Replay(("position",), ("rad",), tuple(WindowReplay(f"run{w}", 0.0, time, held[w], values[w]) for w in range(windows)))
        for values in (noisy, [clean[..., None]] * windows)
    ]
    return Reproduction(pair[0], pair[1], ({"goal": np.sin(9 * time + 0.5)},) * windows)


def physical(u: np.ndarray) -> np.ndarray:
    return np.exp(0.5 * u)


def build(seed: int = 0, *, factor: float = 1.0, shift: float = 0.0, fresh: int = M, x_shift: float = 0.0, **changes: object) -> Evidence:
    """u ~ N(0, I), x = A u + 0.4 noise. Posterior draws have their sd times ``factor`` and their mean moved by ``shift`` sd.

    The last two summaries stand for what lies outside the summary's components.
    """
    rng = np.random.default_rng(seed)
    a = np.random.default_rng(99).normal(size=(K, D))
    covariance = np.linalg.inv(np.eye(D) + a.T @ a / 0.16)
    root = np.linalg.cholesky(covariance)

    def simulate(u: np.ndarray) -> np.ndarray:
        return u @ a.T + 0.4 * rng.normal(size=(len(u), K))

    def posterior(x: np.ndarray, n: int) -> np.ndarray:
        mean = x @ a @ covariance / 0.16
        z = factor * rng.normal(size=(len(x), n, D)) + shift
        return mean[:, None] + z @ root.T

    def log_density(x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """(m, n) of u (m, n, D), under the posterior as it was made; up to a constant."""
        z = ((u - (x @ a @ covariance / 0.16)[:, None]) @ np.linalg.inv(root).T - shift) / factor
        return -0.5 * np.sum(z**2, axis=2)

    theta_u, train = rng.normal(size=(fresh, D)), rng.normal(size=(2000, D))
    x_fresh, x_train = simulate(theta_u), simulate(train)
    x_o = simulate(np.array([[0.3, -0.4, 0.2, 0.1]]))[0] + x_shift
    prior_u, posterior_u = rng.normal(size=(4000, D)), posterior(x_o[None], 2000)[0]
    draws_u = posterior(x_fresh, L)
    low, high = np.quantile(physical(prior_u), [0.05, 0.95], axis=0)
    evidence = Evidence(
        names=NAMES,
        units=UNITS,
        prior_u=prior_u,
        posterior_u=posterior_u,
        prior=physical(prior_u),
        posterior=physical(posterior_u),
        prior_interval=(low, high),
        x_o=x_o,
        residual_features=np.arange(K) >= K - 2,
        x_fresh=x_fresh,
        theta_u_fresh=theta_u,
        fresh_draws_u=draws_u,
        fresh_log_q=log_density(x_fresh, theta_u[:, None])[:, 0],
        fresh_draws_log_q=log_density(x_fresh, draws_u),
        x_train=x_train,
        importance=None,
        holdout=replay(rng),
        holdout_before=replay(rng, draws=1, spread=0.0, error=1.0),
        holdout_after=replay(rng, draws=1, spread=0.0, error=0.5),
        fitted=reproduced(rng),
        unseen=reproduced(rng),
        failed_fraction=0.0,
    )
    return replace(evidence, **changes)


@pytest.fixture(scope="session")
def build_evidence() -> MakeEvidence:
    return build


@pytest.fixture
def make_evidence() -> MakeEvidence:
    return build


@pytest.fixture
def make_reproduced() -> Callable[..., Reproduction]:
    return reproduced


@pytest.fixture
def make_replay() -> Callable[..., Replay]:
    return replay
