"""Where a window starts: joint positions and velocities read from the samples around it, with their covariance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

#: Samples within this distance of the start are fitted by a parabola [s]; motions of robots bend slower than this.
SPAN = 0.04
#: At least this many samples are used, however far away.
FEWEST = 7


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

    Each joint's position is a parabola in time, fitted by weighted least squares to its position and velocity samples near
    the start; the covariance is the fit's, with the noise estimated from its residuals (at least the quantisation's).
    """
    nq = len(qpos0)
    mean, covariance = np.concatenate([qpos0, np.zeros(nv)]), np.zeros((nq + nv, nq + nv))
    for qpos, dof in sorted({(s.qpos, s.dof) for s in sensors.values()}):
        rows = [_rows(start, *streams[name], s) for name, s in sensors.items() if s.dof == dof and name in streams]
        rows = [r for r in rows if r is not None]
        if not rows:
            continue
        design, target = np.concatenate([r[0] for r in rows]), np.concatenate([r[1] for r in rows])
        # a weak pull to zero keeps the acceleration (and an unmeasured position) finite
        pull = np.diag([1e-6, 1e-6, 1e-8])
        inverse = np.linalg.inv(design.T @ design + pull)
        fitted = inverse @ design.T @ target
        entries = np.array([qpos, nq + dof])
        if any(s.kind == "position" for s in sensors.values() if s.dof == dof):
            mean[entries] = fitted[:2]
            covariance[np.ix_(entries, entries)] = inverse[:2, :2]
        else:
            mean[nq + dof], covariance[nq + dof, nq + dof] = fitted[1], inverse[1, 1]
    return InitialState(mean, _factor(covariance))


def widened(state: InitialState, sensors: Mapping[str, JointSensor], nq: int, position: float, velocity: float) -> InitialState:
    """The same mean with independent spread [rad or m, 1/s] added to every measured joint."""
    covariance = state.factor @ state.factor.T
    for sensor in {(s.qpos, s.dof): s for s in sensors.values()}.values():
        covariance[sensor.qpos, sensor.qpos] += position**2
        covariance[nq + sensor.dof, nq + sensor.dof] += velocity**2
    return InitialState(state.mean, _factor(covariance))


def _rows(start: float, time: np.ndarray, value: np.ndarray, sensor: JointSensor) -> tuple[np.ndarray, np.ndarray] | None:
    """Whitened least-squares rows in (position, velocity, acceleration) at the start."""
    distance = np.abs(time - start)
    near = np.flatnonzero(distance <= SPAN)
    if len(near) < FEWEST:
        near = np.sort(np.argsort(distance)[:FEWEST])
    if len(near) < 4:
        return None
    s = time[near] - start
    one, zero = np.ones_like(s), np.zeros_like(s)
    design = np.stack([one, s, s**2 / 2] if sensor.kind == "position" else [zero, one, s], 1)
    active = design[:, [0, 1, 2]] if sensor.kind == "position" else design[:, [1, 2]]
    solution = np.linalg.lstsq(active, value[near], rcond=None)[0]
    freedom = max(len(near) - active.shape[1], 1)
    noise = np.sqrt(((value[near] - active @ solution) ** 2).sum() / freedom)
    noise = max(noise, (sensor.resolution or 0.0) / np.sqrt(12), 1e-6)
    return design / noise, value[near] / noise


def _factor(covariance: np.ndarray) -> np.ndarray:
    """Cholesky factor of a matrix whose zero rows are exact values."""
    out = np.zeros_like(covariance)
    used = np.flatnonzero(np.diag(covariance) > 0)
    if len(used):
        out[np.ix_(used, used)] = np.linalg.cholesky(covariance[np.ix_(used, used)])
    return out
