"""The prior truncated to rotated boxes around the posterior modes: sampling and log density.

The prior is standard normal in its unconstrained coordinates (see ``sbical.priors.prior``), in any rotation. Along the principal axes of a
mode's covariance it is therefore a product of truncated normals: sampled exactly, with a density that is known. A direction that the
data do not determine keeps the prior whole, because a box of several posterior standard deviations covers it. Where the posterior is a
bent ridge, the box follows it: straight in the coordinates of ``sbical.laplace.ridge``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from sbical.laplace.ridge import Ridge

#: A side this far out, in standard deviations of the prior, is no limit.
WIDE = 4.5
#: Draws along a bent box for each that is kept.
THINNED = 8
_LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True, eq=False)
class Box:
    """Prior coordinates ``(u - centre) / spread`` in a rotated box: ``axes`` (d, d) orthonormal columns, sides ``low`` and ``high`` (d,)
    along them, around ``mode`` (d,), all in those coordinates; ``scale`` (d,): posterior standard deviation along each axis.
    With ``ridges`` the box is straight in the coordinates that they leave, one after the other, and its sides are those at the mode.
    """

    centre: np.ndarray
    spread: np.ndarray
    mode: np.ndarray
    axes: np.ndarray
    scale: np.ndarray
    low: np.ndarray
    high: np.ndarray
    ridges: tuple[Ridge, ...] = ()

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
        if not self.ridges:
            drawn, _ = _truncated(self.low, self.high, rng.uniform(size=(n, len(self.mode))))
            return self.centre + self.spread * (drawn @ self.axes.T)
        # those of the straight box, bent, and thinned until they are the prior's again
        drawn, _ = _truncated(self.low, self.high, rng.uniform(size=(THINNED * n, len(self.mode))))
        y = (drawn - self.axes.T @ self.mode) / self.scale
        u = self.unwhitened(y)
        bent = (u - self.centre) / self.spread
        weight = 0.5 * ((drawn**2).sum(1) - (bent**2).sum(1)) + self.log_scale(y)
        kept = np.argsort(-(weight + rng.gumbel(size=len(weight))), kind="stable")[:n]
        return u[rng.permutation(kept)]

    def log_prob(self, u: np.ndarray) -> np.ndarray:
        """(n,) log density of a straight box in unconstrained coordinates; -inf outside."""
        along = ((u - self.centre) / self.spread) @ self.axes
        inside = ((along >= self.low) & (along <= self.high)).all(1)
        density = -0.5 * (along**2 + _LOG_2PI).sum(1) - self.log_mass() - np.log(self.spread).sum()
        return np.where(inside, density, -np.inf)

    def log_mass(self) -> float:
        """Log of the prior's probability of a straight box."""
        return float(_truncated(self.low, self.high, np.full(len(self.mode), 0.5))[1].sum())

    def whitened(self, u: np.ndarray) -> np.ndarray:
        """(n, d) distances from the mode along the axes, or from the ridges, in posterior standard deviations."""
        z = (((u - self.centre) / self.spread - self.mode) @ self.axes) / self.scale
        for ridge in self.ridges:
            z = ridge.straightened(z)
        return z

    def unwhitened(self, z: np.ndarray) -> np.ndarray:
        """The inverse of ``whitened``."""
        for ridge in reversed(self.ridges):
            z = ridge.bent(z)
        return self.mode_u + z @ self.factor.T

    def log_scale(self, z: np.ndarray) -> np.ndarray:
        """(n,) log |du/dz| at whitened z (n, d)."""
        out = np.full(len(z), float((np.log(self.spread) + np.log(self.scale)).sum()))
        for ridge in reversed(self.ridges):
            out += ridge.log_scale(z[:, ridge.axis])
            z = ridge.bent(z)
        return out

    @property
    def factor(self) -> np.ndarray:
        """(d, d): u = mode + factor @ whitened, where there are no ridges."""
        return self.spread[:, None] * self.axes * self.scale

    @property
    def mode_u(self) -> np.ndarray:
        """(d,) the mode in unconstrained coordinates."""
        return self.centre + self.spread * self.mode


@dataclass(frozen=True, eq=False)
class BoxMixture:
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


def _truncated(low: np.ndarray, high: np.ndarray, uniform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Standard normals between ``low`` and ``high`` at these quantiles, and the log of the mass between the two."""
    # in the tail above zero a CDF has no digits left
    flip = low > 0
    below, above = np.where(flip, -high, low), np.where(flip, -low, high)
    log_above = log_ndtr(above)
    log_mass = log_above + np.log1p(-np.exp(np.minimum(log_ndtr(below) - log_above, -1e-300)))
    drawn = ndtri(ndtr(below) + uniform * (ndtr(above) - ndtr(below)))
    return np.clip(np.where(flip, -drawn, drawn), low, high), log_mass
