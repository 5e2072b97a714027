"""Five tasks of the sbibm benchmark in numpy: priors as maps from a standard normal, and simulators.

Written again from sbibm 1.1.0 (Lueckmann et al. 2021, https://github.com/sbi-benchmark/sbibm, MIT), whose pin on an old sbi
forbids installing it. Its observations and reference posteriors are read from its wheel by ``sbibm.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import expit, ndtr

Simulator = Callable[[np.ndarray, np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class Task:
    """``constrain`` maps u (n, dims), standard normal under the prior, to parameters; ``simulate`` maps those to data (n, k)."""

    dims: int
    constrain: Callable[[np.ndarray], np.ndarray]
    simulate: Simulator
    #: mean C2ST over the ten observations at 10,000 simulations: sbibm's NPE, and the best newer figure where one is known
    published: float
    newer: float | None = None

    def draw(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """u (n, dims) from the prior and data (n, k)."""
        rng = np.random.default_rng(seed)
        u = rng.standard_normal((n, self.dims))
        return u, self.simulate(self.constrain(u), rng)


def _uniform(u: np.ndarray, bound: float) -> np.ndarray:
    return bound * (2 * ndtr(u) - 1)


def _normal(u: np.ndarray, factor: np.ndarray) -> np.ndarray:
    return u @ factor.T


def two_moons(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A noisy half circle, moved by |theta1 + theta2| and theta2 - theta1: two crescents as posterior."""
    angle, radius = rng.uniform(-np.pi / 2, np.pi / 2, len(theta)), rng.normal(0.1, 0.01, len(theta))
    moved = np.column_stack([-np.abs(theta[:, 0] + theta[:, 1]), theta[:, 1] - theta[:, 0]]) / np.sqrt(2)
    return np.column_stack([radius * np.cos(angle) + 0.25, radius * np.sin(angle)]) + moved


def slcp(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Four points of a plane from a Gaussian of mean theta1, theta2, scales theta3^2, theta4^2 and correlation tanh(theta5)."""
    s1, s2, rho = theta[:, 2] ** 2, theta[:, 3] ** 2, np.tanh(theta[:, 4])
    eps = 1e-6  # sbibm adds it to both variances
    first = np.sqrt(s1**2 + eps)
    second = rho * s1 * s2 / first
    rest = np.sqrt(s2**2 + eps - second**2)
    e = rng.standard_normal((len(theta), 4, 2))
    points = np.stack([first[:, None] * e[:, :, 0], second[:, None] * e[:, :, 0] + rest[:, None] * e[:, :, 1]], -1)
    return (theta[:, None, :2] + points).reshape(len(theta), 8)


def gaussian(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """theta plus normal noise of variance 0.1."""
    return theta + np.sqrt(0.1) * rng.standard_normal(theta.shape)


def bernoulli_design() -> np.ndarray:
    """(100, 10): an offset and nine lags of sbibm's frozen stimulus."""
    stimulus = np.random.RandomState(42).randn(100)
    return np.column_stack([np.ones(100), *(np.r_[np.zeros(lag), stimulus[: 100 - lag]] for lag in range(9))])


def bernoulli_factor() -> np.ndarray:
    """(10, 10) Cholesky factor of the prior's covariance: a free offset and a smooth filter."""
    m = 9
    d = np.eye(m) - np.eye(m, k=-1)
    f = d @ d + np.diag(np.sqrt(np.arange(m) / m))
    precision = np.zeros((10, 10))
    precision[0, 0], precision[1:, 1:] = 0.5, f.T @ f
    return np.linalg.cholesky(np.linalg.inv(precision))


def bernoulli(theta: np.ndarray, rng: np.random.Generator, design: np.ndarray) -> np.ndarray:
    """Spikes of a logistic model, as their number and their sum of stimuli at nine lags (sufficient)."""
    spikes = rng.random((len(theta), len(design))) < expit(theta @ design.T)
    return spikes @ design


TASKS: Mapping[str, Task] = {
    "two_moons": Task(2, partial(_uniform, bound=1.0), two_moons, 0.606, 0.522),
    "slcp": Task(5, partial(_uniform, bound=3.0), slcp, 0.901, 0.657),
    "gaussian_linear": Task(10, partial(_normal, factor=np.sqrt(0.1) * np.eye(10)), gaussian, 0.552, 0.509),
    "gaussian_linear_uniform": Task(10, partial(_uniform, bound=1.0), gaussian, 0.553),
    "bernoulli_glm": Task(10, partial(_normal, factor=bernoulli_factor()), partial(bernoulli, design=bernoulli_design()), 0.678, 0.616),
}
