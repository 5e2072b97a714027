"""Where to simulate: the prior, cut down to boxes around the modes of the posterior.

The prior is standard normal in its unconstrained coordinates (see ``sbical.prior``), in any rotation. Along the principal axes of a
mode's covariance it is therefore a product of truncated normals: sampled exactly, with a density that is known. A direction that the
data do not determine keeps the prior whole, because a box of several posterior standard deviations covers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

#: A side this far out, in standard deviations of the prior, is no limit.
WIDE = 4.5
_LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True, eq=False)
class Box:
    """Prior coordinates ``(u - centre) / spread`` in a rotated box: ``axes`` (d, d) orthonormal columns, sides ``low`` and ``high`` (d,)
    along them, around ``mode`` (d,), all in those coordinates; ``scale`` (d,): posterior standard deviation along each axis.
    """

    centre: np.ndarray
    spread: np.ndarray
    mode: np.ndarray
    axes: np.ndarray
    scale: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def around(cls, mode_u: np.ndarray, covariance: np.ndarray, centre: np.ndarray, spread: np.ndarray, radius: float) -> Box:
        """``radius`` standard deviations of ``covariance`` (d, d) to each side of ``mode_u`` (d,), both in unconstrained coordinates."""
        mode = (mode_u - centre) / spread
        values, axes = np.linalg.eigh(covariance / np.outer(spread, spread))
        scale = np.sqrt(np.clip(values, 1e-16, None))
        middle = axes.T @ mode
        low, high = middle - radius * scale, middle + radius * scale
        return cls(centre, spread, mode, axes, scale, np.where(low < -WIDE, -np.inf, low), np.where(high > WIDE, np.inf, high))

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, d) unconstrained parameters from the truncated prior."""
        uniform = rng.uniform(size=(n, len(self.mode)))
        # in the tail above zero a CDF has no digits left
        flip = self.low > 0
        low, high = np.where(flip, -self.high, self.low), np.where(flip, -self.low, self.high)
        drawn = ndtri(ndtr(low) + uniform * (ndtr(high) - ndtr(low)))
        drawn = np.where(flip, -drawn, drawn)
        return self.centre + self.spread * (np.clip(drawn, self.low, self.high) @ self.axes.T)

    def log_prob(self, u: np.ndarray) -> np.ndarray:
        """(n,) log density in unconstrained coordinates; -inf outside."""
        along = ((u - self.centre) / self.spread) @ self.axes
        inside = ((along >= self.low) & (along <= self.high)).all(1)
        density = -0.5 * (along**2 + _LOG_2PI).sum(1) - self.log_mass() - np.log(self.spread).sum()
        return np.where(inside, density, -np.inf)

    def log_mass(self) -> float:
        """Log of the prior's probability of the box."""
        low, high = np.where(self.low > 0, -self.high, self.low), np.where(self.low > 0, -self.low, self.high)
        log_high = log_ndtr(high)
        return float((log_high + np.log1p(-np.exp(np.minimum(log_ndtr(low) - log_high, -1e-300)))).sum())

    def whitened(self, u: np.ndarray) -> np.ndarray:
        """(n, d) distances from the mode along the axes, in posterior standard deviations."""
        return (((u - self.centre) / self.spread - self.mode) @ self.axes) / self.scale

    @property
    def factor(self) -> np.ndarray:
        """(d, d): u = mode + factor @ whitened."""
        return self.spread[:, None] * self.axes * self.scale

    @property
    def mode_u(self) -> np.ndarray:
        """(d,) the mode in unconstrained coordinates."""
        return self.centre + self.spread * self.mode


@dataclass(frozen=True, eq=False)
class Region:
    """A mixture of boxes with ``weights`` (b,)."""

    boxes: tuple[Box, ...]
    weights: np.ndarray

    def counts(self, n: int) -> Sequence[int]:
        """How many of n draws each box gets."""
        edges = np.round(np.concatenate([[0.0], np.cumsum(self.weights)]) * n).astype(int)
        return np.diff(edges).tolist()

    def log_prob(self, u: np.ndarray) -> np.ndarray:
        """(n,) log density of the mixture."""
        parts = np.stack([b.log_prob(u) for b in self.boxes]) + np.log(self.weights)[:, None]
        return np.logaddexp.reduce(parts, axis=0)
