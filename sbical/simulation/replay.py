"""Replays: what the simulator does in the windows of a recording, beside what the robot did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from sbical.common.statistics import central_interval
from sbical.recordings.experiment import Experiment
from sbical.simulation.rollout import Trajectories


@dataclass(frozen=True, eq=False)
class WindowReplay:
    """One window of one recording, replayed with several parameter draws.

    ``time`` (T,) [s since the window's start], ``observed`` (T, m) and ``draws`` (n, T, m) in the channels' units;
    ``start`` [s] is where the window begins in the recording. Draws that failed are NaN.
    """

    recording: str
    start: float
    time: np.ndarray
    observed: np.ndarray
    draws: np.ndarray

    def usable(self) -> np.ndarray:
        """(n', T, m): the draws that did not fail."""
        return self.draws[np.isfinite(self.draws).all(axis=(1, 2))]

    def median(self) -> np.ndarray:
        """(T, m): pointwise median of the usable draws; NaN where every draw failed."""
        draws = self.usable()
        return np.median(draws, axis=0) if len(draws) else np.full(self.observed.shape, np.nan)

    def band(self, mass: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """(T, m), (T, m): pointwise central band that holds ``mass`` of the usable draws; NaN where every draw failed."""
        draws = self.usable()
        if not len(draws):
            return np.full(self.observed.shape, np.nan), np.full(self.observed.shape, np.nan)
        return central_interval(draws, mass)


@dataclass(frozen=True, eq=False)
class Replay:
    """Replayed windows; ``channels`` and ``units`` name the last axis of every window.

    Figures pool the samples of all windows. A window in which every draw failed counts as an infinite error and as not
    covered, so that a failure can never improve a figure; samples that were not observed (NaN) do not count.
    """

    channels: tuple[str, ...]
    units: tuple[str, ...]
    windows: tuple[WindowReplay, ...]

    def rmse(self) -> np.ndarray:
        """(m,): root mean square error of the pointwise median of the draws, in the channels' units."""
        return np.sqrt(self._mean(lambda w: (w.median() - w.observed) ** 2, failed=np.inf))

    def coverage(self, mass: float = 0.9) -> np.ndarray:
        """(m,): share of observed samples inside the central pointwise band that holds ``mass`` of the draws."""

        def inside(window: WindowReplay) -> np.ndarray:
            low, high = window.band(mass)
            return ((window.observed >= low) & (window.observed <= high)).astype(np.float64)

        return self._mean(inside, failed=0.0)

    def interval_score(self, mass: float = 0.9) -> np.ndarray:
        """(m,): mean interval score of that band, lower is better, in the channels' units.

        Width plus 2/(1 - mass) times the distance of what it misses (Gneiting and Raftery 2007, eq. 43).
        """
        penalty = 2 / (1 - mass)

        def score(window: WindowReplay) -> np.ndarray:
            low, high = window.band(mass)
            below = np.clip(low - window.observed, 0, None)
            above = np.clip(window.observed - high, 0, None)
            return high - low + penalty * (below + above)

        return self._mean(score, failed=np.inf)

    def _mean(self, figure: Callable[[WindowReplay], np.ndarray], *, failed: float) -> np.ndarray:
        """(m,): mean of a (T, m) figure over the observed samples of all windows; NaN without any sample."""
        total = np.zeros(len(self.channels))
        count = np.zeros(len(self.channels))
        for window in self.windows:
            seen = np.isfinite(window.observed)
            values = figure(window) if len(window.usable()) else np.full(window.observed.shape, failed)
            total += np.where(seen, values, 0.0).sum(axis=0)
            count += seen.sum(axis=0)
        return np.divide(total, count, out=np.full(len(self.channels), np.nan), where=count > 0)


@dataclass(frozen=True, eq=False)
class Replays:
    """``predictive``: posterior draws on the calibration windows; ``holdout``: on held-out ones, noise included.

    ``before`` and ``after``: the prior's and the posterior's median alone on held-out windows, noise-free.
    """

    predictive: Replay
    holdout: Replay
    before: Replay
    after: Replay


@dataclass(frozen=True, eq=False)
class Reproduction:
    """Posterior draws replayed twice from the same initial states: as measured (``noisy``) and without anything random (``clean``).

    ``commands``: what the robot was told at the sample times, ``{name: (T,)}`` for each window.
    """

    noisy: Replay
    clean: Replay
    commands: tuple[Mapping[str, np.ndarray], ...]


def reproduction(experiment: Experiment, noisy: Replay, clean: Replay) -> Reproduction:
    """Pair two replays of an experiment with its commands."""
    commands = tuple({name: signal.at(w.time) for name, signal in w.commands.items()} for w in experiment.windows)
    return Reproduction(noisy, clean, commands)


def replay(experiment: Experiment, trajectories: Trajectories) -> Replay:
    """Simulated trajectories beside the experiment's measurements; failed draws are NaN."""
    windows = tuple(
        WindowReplay(w.recording, w.start, w.time, w.observed, np.asarray(v, float))
        for w, v in zip(experiment.windows, trajectories.values, strict=True)
    )
    return Replay(experiment.channels, experiment.units, windows)
