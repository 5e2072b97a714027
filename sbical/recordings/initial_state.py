"""Where a window starts: joint positions and velocities read from the samples around it, with their covariance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sbical.recordings.smoothing import smoothed


@dataclass(frozen=True)
class JointSensor:
    """A measured channel that reads a hinge or slide joint directly."""

    kind: Literal["position", "velocity"]
    qpos: int
    dof: int
    resolution: float | None


@dataclass(frozen=True)
class InitialState:
    """Mean and Cholesky factor of the state at a window's start; the state is (qpos, qvel).

    ``mean`` (nq + nv,), ``factor`` (nq + nv, nq + nv) lower triangular; zero rows are known exactly.
    """

    mean: np.ndarray
    factor: np.ndarray


def estimate(
    start: float,
    streams: Mapping[str, tuple[np.ndarray, np.ndarray]],
    sensors: Mapping[str, JointSensor],
    qpos0: np.ndarray,
    nv: int,
) -> InitialState:
    """State at ``start`` [s] from measured streams ``{name: (time, value)}``; unmeasured joints stay at ``qpos0``, at rest.

    Each stream is smoothed by itself (see ``sbical.recordings.smoothing``), nothing known beforehand; densities of one
    joint are multiplied.
    """
    nq = len(qpos0)
    mean, covariance = np.concatenate([qpos0, np.zeros(nv)]), np.zeros((nq + nv, nq + nv))
    for qpos, dof in sorted({(s.qpos, s.dof) for s in sensors.values()}):
        precision, weighted = np.zeros((2, 2)), np.zeros(2)
        for name, sensor in sensors.items():
            if sensor.dof != dof or name not in streams:
                continue
            found = smoothed(start, *streams[name], sensor.kind, sensor.resolution or 0.0)
            if found is not None:
                seen = slice(0, 2) if sensor.kind == "position" else slice(1, 2)
                inverse = np.linalg.inv(found[1])
                precision[seen, seen] += inverse
                weighted[seen] += inverse @ found[0]
        known = np.flatnonzero(np.diag(precision))
        if len(known):
            entries = np.array([qpos, nq + dof])[known]
            inverse = np.linalg.inv(precision[np.ix_(known, known)])
            mean[entries], covariance[np.ix_(entries, entries)] = inverse @ weighted[known], inverse
    return InitialState(mean, _factor(covariance))


def widened(state: InitialState, sensors: Mapping[str, JointSensor], nq: int, position: float, velocity: float) -> InitialState:
    """The same mean with independent spread [rad or m, 1/s] added to every measured joint."""
    covariance = state.factor @ state.factor.T
    for sensor in {(s.qpos, s.dof): s for s in sensors.values()}.values():
        covariance[sensor.qpos, sensor.qpos] += position**2
        covariance[nq + sensor.dof, nq + sensor.dof] += velocity**2
    return InitialState(state.mean, _factor(covariance))


def _factor(covariance: np.ndarray) -> np.ndarray:
    """Cholesky factor of a matrix whose zero rows are exact values."""
    out = np.zeros_like(covariance)
    used = np.flatnonzero(np.diag(covariance) > 0)
    if len(used):
        out[np.ix_(used, used)] = np.linalg.cholesky(covariance[np.ix_(used, used)])
    return out
