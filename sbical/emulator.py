"""The log posterior around a mode, learned from draws that were weighted already: a polynomial, and a Gaussian process for what it leaves.

The likelihood is deterministic and mostly smooth, and a thousand evaluations tell it to a tenth of a nat: enough to turn down, before they
are simulated, most draws that would carry little weight. The weights of those that remain stay exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb

import numpy as np
from scipy.optimize import minimize
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

#: Degrees that are tried; a polynomial needs this many times as many draws as it has terms.
DEGREES, PER_TERM = (2, 3, 4), 1.5
#: Draws so many nats below the highest tell of places that do not matter; the weight of the rest falls by e each so many nats.
DEEPEST, FALL = 20.0, 6.0
#: Little: it only keeps terms that draws do not determine from growing.
PENALTY = 0.1
FOLDS = 4
#: Draws that the process' scales are fitted to, and that it remembers: its cost grows with their cube.
SCALED, REMEMBERED = 400, 3000
#: Steps of that fit, and the scales it may find [posterior standard deviations].
STEPS, SCALES = 15, (0.5, 50.0)


@dataclass(frozen=True, eq=False)
class Emulator:
    """``polynomial`` and ``process`` of whitened coordinates ``root^-1 (u - mean)``: mean (d,), root (d, d).

    It says nothing, -inf, beyond the farthest draw it has learned from, at distance ``farthest`` there.
    """

    polynomial: Pipeline
    process: GaussianProcessRegressor
    mean: np.ndarray
    root: np.ndarray
    farthest: float

    def __call__(self, u: np.ndarray) -> np.ndarray:
        """(n,) log posterior at u (n, d), up to the constant of the draws it was made from."""
        z = np.linalg.solve(self.root, (u - self.mean).T).T
        known = (z**2).sum(1) <= self.farthest**2
        out = np.full(len(u), -np.inf)
        if known.any():
            out[known] = self.polynomial.predict(z[known]) + self.process.predict(z[known])
        return out


def emulate(u: np.ndarray, log_target: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> Emulator | None:
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
    polynomial = _polynomial(z, y, importance, best[1])
    process = _process(z, y - polynomial.predict(z), importance)
    return Emulator(polynomial, process, mean, root, float(np.sqrt((z**2).sum(1).max())))


def _left_out(z: np.ndarray, y: np.ndarray, importance: np.ndarray, degree: int) -> float:
    """RMS error on draws left out, weighted."""
    square = np.empty(len(z))
    for train, test in KFold(FOLDS, shuffle=True, random_state=0).split(z):
        square[test] = (_polynomial(z[train], y[train], importance[train], degree).predict(z[test]) - y[test]) ** 2
    return float(np.sqrt(np.average(square, weights=importance)))


def _polynomial(z: np.ndarray, y: np.ndarray, importance: np.ndarray, degree: int) -> Pipeline:
    model = make_pipeline(PolynomialFeatures(degree, include_bias=False), StandardScaler(), Ridge(PENALTY))
    return model.fit(z, y, ridge__sample_weight=importance)


def _process(z: np.ndarray, rest: np.ndarray, importance: np.ndarray) -> GaussianProcessRegressor:
    """A Gaussian process through what the polynomial leaves; it knows its own scale along every axis."""
    rows = np.random.default_rng(0).permutation(len(z))
    few = rows[:SCALED]
    kernel = ConstantKernel(1.0) * Matern(np.full(z.shape[1], 8.0), SCALES, nu=1.5) + WhiteKernel(1e-4, (1e-6, 1.0))
    scaled = GaussianProcessRegressor(kernel, optimizer=_optimise).fit(z[few], rest[few])
    near = rows[np.argsort(-importance[rows], kind="stable")][:REMEMBERED]
    return GaussianProcessRegressor(scaled.kernel_, optimizer=None).fit(z[near], rest[near])


def _optimise(cost: Callable[..., tuple[float, np.ndarray]], start: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, float]:
    found = minimize(cost, start, method="L-BFGS-B", jac=True, bounds=bounds, options={"maxiter": STEPS})
    return found.x, float(found.fun)
