"""A posterior estimator around one mode: an ensemble that learns where the parameters lie relative to their linear estimate.

Coordinates are distances from the mode along the posterior's principal axes, in its standard deviations, less a linear regression on
the summaries. What is left to the network is how the posterior differs from a Gaussian that moves with the estimate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sbical import estimator as estimators
from sbical.estimator import Estimator
from sbical.training import Progress, Training


@dataclass(frozen=True, eq=False)
class Chart:
    """``u = origin + factor @ (z + intercept + x @ slope)``: origin (d,), factor (d, d), intercept (d,), slope (k, d)."""

    origin: np.ndarray
    factor: np.ndarray
    intercept: np.ndarray
    slope: np.ndarray

    @classmethod
    def fit(cls, u: np.ndarray, x: np.ndarray, origin: np.ndarray, factor: np.ndarray) -> Chart:
        """Least squares on simulations: parameters u (n, d) and summaries x (n, k)."""
        whitened = np.linalg.solve(factor, (u - origin).T).T
        design = np.column_stack([np.ones(len(x)), x])
        solution = np.linalg.lstsq(design, whitened, rcond=None)[0]
        return cls(origin, factor, solution[0], solution[1:])

    def inside(self, u: np.ndarray, x: np.ndarray) -> np.ndarray:
        """z (n, d) of u (n, d) given x (n, k) or (k,)."""
        return np.linalg.solve(self.factor, (u - self.origin).T).T - self.intercept - x @ self.slope

    def outside(self, z: np.ndarray, x: np.ndarray) -> np.ndarray:
        """u of z (..., d), given x that broadcasts against it."""
        return self.origin + (z + self.intercept + x @ self.slope) @ self.factor.T

    @property
    def log_scale(self) -> float:
        """log |du/dz|."""
        return float(np.linalg.slogdet(self.factor)[1])


@dataclass(frozen=True, eq=False)
class ChartedEstimator:
    """An ``Estimator`` of z with the chart that leads to unconstrained parameters u."""

    estimator: Estimator
    chart: Chart

    def sample_many(self, x: np.ndarray, n: int, seed: int) -> np.ndarray:
        """(m, n, d) draws of u given each row of x (m, k)."""
        return self.chart.outside(self.estimator.sample_many(x, n, seed), x[:, None])

    def log_prob_pairs(self, u: np.ndarray, x: np.ndarray) -> np.ndarray:
        """(n,) log density of each u (n, d) given the same row of x (n, k)."""
        return self.estimator.log_prob_pairs(self.chart.inside(u, x), x) - self.chart.log_scale


def fit(
    u: np.ndarray, x: np.ndarray, origin: np.ndarray, factor: np.ndarray, *, seed: int, training: Training, progress: Progress | None = None
) -> ChartedEstimator:
    """Train on simulations around a mode: u (n, d) and summaries x (n, k). Raises what ``estimator.fit`` raises."""
    chart = Chart.fit(u, x, origin, factor)
    return ChartedEstimator(estimators.fit(chart.inside(u, x), x, seed=seed, training=training, progress=progress), chart)
