"""A sampled signal evaluated between its samples: zero-order hold or linear interpolation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np


@dataclass(frozen=True)
class HeldSignal:
    """A sampled signal and how it is held between samples; the ends extend to infinity.

    ``time`` (s,) ascending [s], ``value`` (s,) in SI units.
    """

    time: np.ndarray
    value: np.ndarray
    hold: Literal["zoh", "linear"] = "zoh"

    @cached_property
    def _slope(self) -> np.ndarray:
        slope = np.zeros(len(self.time))
        if self.hold == "linear":
            slope[:-1] = np.diff(self.value) / np.diff(self.time)
        return slope

    @cached_property
    def _integral(self) -> np.ndarray:
        step = np.diff(self.time)
        mean = self.value[:-1] if self.hold == "zoh" else (self.value[1:] + self.value[:-1]) / 2
        return np.concatenate([[0.0], np.cumsum(step * mean)])

    def at(self, time: np.ndarray) -> np.ndarray:
        """The signal's value at each time (…)."""
        if self.hold == "linear":
            return np.interp(time, self.time, self.value)
        return self.value[np.clip(np.searchsorted(self.time, time, side="right") - 1, 0, len(self.time) - 1)]

    def integral(self, at: np.ndarray) -> np.ndarray:
        """Integral of the signal from its first sample to ``at`` (…), continuous in ``at``."""
        if self.hold == "zoh":
            # piecewise linear, so that plain interpolation is exact between the ends
            inside = np.interp(at, self.time, self._integral)
            before = self.value[0] * np.minimum(at - self.time[0], 0.0)
            return inside + before + self.value[-1] * np.maximum(at - self.time[-1], 0.0)
        i = np.clip(np.searchsorted(self.time, at, side="right") - 1, 0, len(self.time) - 1)
        s = at - self.time[i]
        return self._integral[i] + self.value[i] * s + np.where(s > 0, self._slope[i] * s**2 / 2, 0.0)

    def averages(self, edges: np.ndarray) -> np.ndarray:
        """Mean over each interval between neighbouring ``edges`` (…, k + 1), as (…, k)."""
        return np.diff(self.integral(edges), axis=-1) / np.diff(edges, axis=-1)
