"""Linear summary around a mode: Gauss-Newton parameter estimate, principal components of the residual, residual energy.

Around a mode the trajectories are nearly linear in the parameters, so the Gauss-Newton estimate (J^T W J + P)^-1 J^T W (x - f) loses
little (Alsing and Wandelt 2018, arXiv:1712.00012: it is the score). Where they bend, the principal components of what is left over
carry the rest; the energy of what even these leave tells the scale of the noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sbical.common.statistics import principal_directions
from sbical.laplace.gauss_newton import Fit, NormalEquations, Target
from sbical.simulation.rollout import Trajectories, flatten

#: Components of what is left over: at most so many, and only if they vary by more than this share of the noise (variance).
MOST_BENDS, LEAST_BEND = 24, 0.02


@dataclass(frozen=True, eq=False)
class LinearSummary:
    """Frozen arrays for D samples, p parameters, q initial errors per window and m channels; make one with ``linear_summary``.

    ``clean`` (D,) is the mode's trajectory, ``gain`` (p, D) turns a residual into the parameters' shift [posterior standard deviations],
    ``reduced`` (D, p) turns that back; ``by_error`` (D, q) and ``error_gain`` (D, q) do the same for initial errors;
    ``bends`` (b, D) are the components of what is left over, rows in units of 1/noise, ``straight`` (D, b) turns their scores back;
    ``window`` (D,) and ``group`` (D,) number each sample's window and residual energy, ``level`` (g,) is the mode's energy.
    """

    clean: np.ndarray
    gain: np.ndarray
    reduced: np.ndarray
    by_error: np.ndarray
    error_gain: np.ndarray
    bends: np.ndarray
    straight: np.ndarray
    window: np.ndarray
    group: np.ndarray
    level: np.ndarray
    labels: tuple[str, ...]

    @property
    def residual_features(self) -> np.ndarray:
        """(k,) bool: features that measure what the linear estimate and its bends do not explain."""
        return np.array([label.startswith("residual ") for label in self.labels])

    def __call__(self, trajectories: Trajectories) -> np.ndarray:
        """Summaries (n, p + b + g); NaN rows for failed simulations."""
        # each row on its own: a matrix product rounds differently for different numbers of rows
        return np.stack([self.row(np.asarray(row, np.float64)) for row in flatten(trajectories.values)])

    def row(self, x: np.ndarray) -> np.ndarray:
        """Summary (p + b + g,) of one flattened trajectory x (D,)."""
        shift, rest = self._split(x)
        scores = self.bends @ rest
        rest = rest - self.straight @ scores
        count = np.bincount(self.group)
        energy = 0.5 * np.log(np.bincount(self.group, weights=rest**2) / count + 1e-30)
        return np.concatenate([shift, scores, (energy - self.level) * np.sqrt(2 * count)])

    def _split(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Shift of the parameters (p,) and what neither it nor initial errors explain (D,)."""
        residual = x - self.clean
        shift = self.gain @ residual
        errors = np.zeros((int(self.window[-1]) + 1, self.by_error.shape[1]))
        for column in range(errors.shape[1]):
            errors[:, column] = np.bincount(self.window, weights=self.error_gain[:, column] * residual)
        return shift, residual - self.reduced @ shift - (self.by_error * errors[self.window]).sum(1)

    def bent(self, clean: np.ndarray, noise: np.ndarray) -> LinearSummary:
        """The same summary with components of what it leaves over of clean trajectories (n, D) from around the mode.

        ``noise`` (D,) is each sample's; components in which the bend is small beside it are left out.
        """
        rest = np.stack([self._split(row)[1] for row in clean[np.isfinite(clean).all(1)]]) / noise
        _, components = principal_directions(rest, MOST_BENDS, LEAST_BEND * len(rest))
        if not len(components):
            return self
        p = len(self.gain)
        labels = (*self.labels[:p], *(f"bend {i}" for i in range(len(components))), *self.labels[p:])
        return replace(self, bends=components / noise, straight=noise[:, None] * components.T, labels=labels)


def linear_summary(target: Target, mode: Fit, group: np.ndarray, labels: Sequence[str], names: Sequence[str]) -> LinearSummary:
    """The summary around a mode; ``group`` (D,) numbers the residual energy that each sample counts towards, ``labels`` names them."""
    normal = NormalEquations.of(target, mode.by_u, mode.by_error, mode.noise)
    reduced = normal.reduced()
    weight = mode.noise[target.channel] ** -2.0
    root = np.linalg.cholesky(np.linalg.inv(normal.schur))
    gain = np.linalg.solve(root, np.linalg.solve(normal.schur, (reduced * weight[:, None]).T))
    inverse = np.linalg.inv(normal.inner)
    error_gain = np.einsum("dq,dqr->dr", mode.by_error * weight[:, None], inverse[target.window])
    level = np.log(np.sqrt(np.bincount(group, weights=mode.noise[target.channel] ** 2) / np.bincount(group)))
    none = np.empty((0, len(mode.clean)))
    shifts = tuple(f"shift {i} ({name})" for i, name in enumerate(names))
    return LinearSummary(
        mode.clean,
        gain,
        reduced @ root,
        mode.by_error,
        error_gain,
        none,
        none.T,
        target.window,
        group,
        level,
        (*shifts, *(f"residual {n}" for n in labels)),
    )
