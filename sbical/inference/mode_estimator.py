"""Posterior estimator around one mode: an ensemble trained on the residuals of a linear regression of parameters on summaries.

Coordinates are distances from the mode (or its ridge) along the posterior's principal axes, in its standard deviations, less a linear
regression on the summaries. What is left to the network is how the posterior differs from a Gaussian that moves with the estimate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sbical.inference import estimator as estimators
from sbical.inference.estimator import Estimator
from sbical.inference.training import EpochCallback, Training
from sbical.laplace.truncated_box import Box


@dataclass(frozen=True, eq=False)
class RegressionCoordinates:
    """``u = box.unwhitened(z + intercept + x @ slope)``: intercept (d,), slope (k, d)."""

    box: Box
    intercept: np.ndarray
    slope: np.ndarray

    @classmethod
    def fit(cls, u: np.ndarray, x: np.ndarray, box: Box) -> RegressionCoordinates:
        """Least squares on simulations: parameters u (n, d) and summaries x (n, k)."""
        design = np.column_stack([np.ones(len(x)), x])
        solution = np.linalg.lstsq(design, box.whitened(u), rcond=None)[0]
        return cls(box, solution[0], solution[1:])

    def residuals(self, u: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """z (n, d) of u (n, d) given x (n, k) or (k,), and log |du/dz| (n,)."""
        whitened = self.box.whitened(u)
        return whitened - self.intercept - x @ self.slope, self.box.log_scale(whitened)

    def parameters(self, z: np.ndarray, x: np.ndarray) -> np.ndarray:
        """u of z (..., d), given x that broadcasts against it."""
        whitened = z + self.intercept + x @ self.slope
        return self.box.unwhitened(whitened.reshape(-1, z.shape[-1])).reshape(z.shape)


@dataclass(frozen=True, eq=False)
class ModeEstimator:
    """An ``Estimator`` of z with the coordinates that lead to unconstrained parameters u."""

    estimator: Estimator
    coordinates: RegressionCoordinates

    def sample_many(self, x: np.ndarray, n: int, seed: int) -> np.ndarray:
        """(m, n, d) draws of u given each row of x (m, k)."""
        return self.coordinates.parameters(self.estimator.sample_many(x, n, seed), x[:, None])

    def log_prob_pairs(self, u: np.ndarray, x: np.ndarray) -> np.ndarray:
        """(n,) log density of each u (n, d) given the same row of x (n, k)."""
        z, log_scale = self.coordinates.residuals(u, x)
        return self.estimator.log_prob_pairs(z, x) - log_scale


def fit(u: np.ndarray, x: np.ndarray, box: Box, *, seed: int, training: Training, progress: EpochCallback | None = None) -> ModeEstimator:
    """Train on simulations in the box around a mode: u (n, d) and summaries x (n, k). Raises what ``estimator.fit`` raises."""
    coordinates = RegressionCoordinates.fit(u, x, box)
    return ModeEstimator(estimators.fit(coordinates.residuals(u, x)[0], x, seed=seed, training=training, progress=progress), coordinates)
