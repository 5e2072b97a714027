"""Coordinates that straighten a curved ridge of the posterior.

Along one axis the data hardly tell where the parameters are, and the place of all others depends on it: a chain of conditional Gaussians
(the profile of a nested Laplace approximation: Rue, Martino and Chopin 2009, doi:10.1111/j.1467-9868.2008.00700.x).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.interpolate import CubicSpline, PchipInterpolator


@dataclass(frozen=True, eq=False)
class Ridge:
    """In whitened coordinates z (d,): at ``knots`` (m,) along ``axis`` the other coordinates have their optimum at ``offset`` (m, d), and
    there the root ``root`` (m, d, d) of their covariance. Along the axis itself the offset is 0, the root 1.
    """

    axis: int
    knots: np.ndarray
    offset: np.ndarray
    root: np.ndarray

    @cached_property
    def _offset(self) -> CubicSpline:
        return CubicSpline(self.knots, self.offset)

    @cached_property
    def _root(self) -> PchipInterpolator:
        return PchipInterpolator(self.knots, self.root)

    def at(self, along: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Offsets (n, d) and roots (n, d, d) at positions (n,); beyond the knots the ridge goes straight on."""
        clipped = np.clip(along, self.knots[0], self.knots[-1])
        # the derivative is asked for only where it is needed: at the two ends
        slope = np.where((along > clipped)[:, None], self._offset(self.knots[-1], 1), self._offset(self.knots[0], 1))
        return self._offset(clipped) + (along - clipped)[:, None] * slope, self._root(clipped)

    def straightened(self, z: np.ndarray) -> np.ndarray:
        """(n, d): z less the ridge, in its local standard deviations; the axis keeps its coordinate."""
        offset, root = self.at(z[:, self.axis])
        return np.linalg.solve(root, (z - offset)[..., None])[..., 0]

    def bent(self, y: np.ndarray) -> np.ndarray:
        """The inverse of ``straightened``."""
        offset, root = self.at(y[:, self.axis])
        return offset + np.einsum("nij,nj->ni", root, y)

    def log_scale(self, along: np.ndarray) -> np.ndarray:
        """(n,) log |dz/dy| at positions (n,)."""
        return np.log(np.diagonal(self.at(along)[1], axis1=1, axis2=2)).sum(1)
