"""The log posterior around a mode as a polynomial, learned from draws that were weighted already.

Where trajectories bend smoothly so does the likelihood, and a few hundred evaluations tell it to a fraction of a nat: enough to turn
down, before they are simulated, most draws that would carry little weight. The weights of those that remain stay exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

#: Degrees that are tried; a polynomial needs this many times as many draws as it has terms.
DEGREES, PER_TERM = (2, 3, 4), 1.5
#: Draws so many nats below the highest tell of places that do not matter; the weight of the rest falls by e each so many nats.
DEEPEST, FALL = 25.0, 6.0
#: Little: it only keeps terms that draws do not determine from growing.
PENALTY = 0.1
#: No draw is accepted with less than this probability: the polynomial may be wrong where it has seen nothing.
LEAST_ACCEPTANCE = 0.02
#: Share of all weight whose draws are accepted for certain: a bound that the single largest ratio sets would turn nearly all down.
CERTAIN = 0.01
FOLDS = 4


@dataclass(frozen=True, eq=False)
class Emulator:
    """``polynomial`` of whitened coordinates ``root^-1 (u - mean)``: mean (d,), root (d, d); ``error`` [nats] on draws left out."""

    polynomial: Pipeline
    mean: np.ndarray
    root: np.ndarray
    error: float

    def __call__(self, u: np.ndarray) -> np.ndarray:
        """(n,) log posterior at u (n, d), up to the constant of the draws it was made from."""
        return self.polynomial.predict(np.linalg.solve(self.root, (u - self.mean).T).T)


def emulator(u: np.ndarray, log_target: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> Emulator | None:
    """From draws u (n, d) and their log posterior (n,), near a mode with this mean (d,) and covariance (d, d); None if they are too few."""
    root = np.linalg.cholesky(covariance + 1e-12 * np.diag(np.diag(covariance)))
    kept = np.isfinite(log_target) & (log_target > log_target.max() - DEEPEST)
    z, y = np.linalg.solve(root, (u[kept] - mean).T).T, log_target[kept]
    importance = np.exp((y - y.max()) / FALL)
    best: tuple[float, int] | None = None
    for degree in DEGREES:
        if PER_TERM * comb(u.shape[1] + degree, degree) > len(z) * (1 - 1 / FOLDS):
            break
        error = _left_out(z, y, importance, degree)
        if best is None or error < best[0]:
            best = (error, degree)
    if best is None:
        return None
    return Emulator(_fitted(z, y, importance, best[1]), mean, root, best[0])


def _left_out(z: np.ndarray, y: np.ndarray, importance: np.ndarray, degree: int) -> float:
    """RMS error on draws left out, weighted."""
    square = np.empty(len(z))
    for train, test in KFold(FOLDS, shuffle=True, random_state=0).split(z):
        square[test] = (_fitted(z[train], y[train], importance[train], degree).predict(z[test]) - y[test]) ** 2
    return float(np.sqrt(np.average(square, weights=importance)))


def _fitted(z: np.ndarray, y: np.ndarray, importance: np.ndarray, degree: int) -> Pipeline:
    model = make_pipeline(PolynomialFeatures(degree, include_bias=False), StandardScaler(), Ridge(PENALTY))
    return model.fit(z, y, ridge__sample_weight=importance)
