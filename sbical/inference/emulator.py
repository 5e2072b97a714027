"""Gaussian-process emulator of the log posterior around a mode, trained on draws whose likelihood was already computed.

The likelihood is deterministic and smooth, and a few thousand evaluations tell it to a tenth of a nat: enough to turn down, before they
are simulated, most draws that would carry little weight. The weights of those that remain stay exact.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

#: Draws so many nats below the highest tell of places that do not matter; a mode needs at least so many of the others.
DEEPEST, LEAST = 15.0, 100
#: Draws that the process' scales are fitted to, and that it remembers, half of them the outermost, which are rare: its cost grows with
#: their cube.
SCALED, REMEMBERED = 300, 1500
#: Variance of the process [nats^2] and its scales [posterior standard deviations] to start from, and the scales it may find. Matern's
#: rougher relative of the Gaussian kernel does not run away where it has seen nothing.
VARIANCE, SCALE, SCALES = 10.0, 3.0, (0.3, 30.0)
#: Steps of the fit of the scales.
STEPS = 15


@dataclass(frozen=True, eq=False)
class Emulator:
    """``process`` of whitened coordinates z = ``root^-1 (u - mean)``, around a Gaussian: mean (d,), root (d, d). Which coordinates u are is
    up to whoever learns: those of the box, which follow a ridge.
    """

    process: GaussianProcessRegressor
    mean: np.ndarray
    root: np.ndarray

    def __call__(self, u: np.ndarray) -> np.ndarray:
        """(n,) log posterior at u (n, d), up to a constant."""
        z = _whitened(u, self.mean, self.root)
        return self.process.predict(z) - 0.5 * (z**2).sum(1)


def emulate(u: np.ndarray, log_target: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> Emulator | None:
    """From draws u (n, d) and their log density (n,), near a mode with this mean (d,) and covariance (d, d); None if they are too few."""
    root = np.linalg.cholesky(covariance + 1e-12 * np.diag(np.diag(covariance)))
    kept = np.flatnonzero(log_target > log_target.max() - DEEPEST)
    if len(kept) < LEAST:
        return None
    z = _whitened(u[kept], mean, root)
    rest = log_target[kept] - log_target.max() + 0.5 * (z**2).sum(1)
    rng = np.random.default_rng(0)
    few = rng.permutation(len(z))[:SCALED]
    matern = Matern(np.full(z.shape[1], SCALE), SCALES, nu=2.5)  # pyright: ignore[reportArgumentType]
    kernel = ConstantKernel(VARIANCE) * matern + WhiteKernel(1e-3, (1e-6, 1.0))
    with warnings.catch_warnings():
        # a scale at its upper bound: the posterior is Gaussian along that axis
        warnings.simplefilter("ignore", ConvergenceWarning)
        scaled = _regressor(kernel, _optimise).fit(z[few], rest[few])
    inwards = np.argsort(-(z**2).sum(1), kind="stable")
    known = np.concatenate([inwards[: REMEMBERED // 2], rng.permutation(inwards[REMEMBERED // 2 :])[: REMEMBERED // 2]])
    return Emulator(_regressor(scaled.kernel_, None).fit(z[known], rest[known]), mean, root)


def _regressor(kernel: Any, optimizer: Callable[..., tuple[np.ndarray, float]] | None) -> GaussianProcessRegressor:
    return GaussianProcessRegressor(kernel, optimizer=optimizer)  # pyright: ignore[reportArgumentType]


def _whitened(u: np.ndarray, mean: np.ndarray, root: np.ndarray) -> np.ndarray:
    return np.linalg.solve(root, (u - mean).T).T


def _optimise(cost: Callable[..., tuple[float, np.ndarray]], start: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, float]:
    found = minimize(cost, start, method="L-BFGS-B", jac=True, bounds=bounds, options={"maxiter": STEPS})
    return found.x, float(found.fun)
