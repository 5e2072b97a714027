"""Measurement noise: samples it, and gives the log likelihood of recorded samples given noise-free trajectories.

A channel whose reading is clean signal + white Gaussian noise, then rounded, has an explicit likelihood. Anything else that
is random (a disturbance torque, jitter) has none: then only simulations can say how likely a measurement is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import log_ndtr

from sbical.recordings.experiment import Experiment, Window
from sbical.simulation.simulator import Simulator

#: Newton steps towards the mode of the initial state's error; one is exact for Gaussian noise.
NEWTON = 4
#: Rows that are evaluated at once, to bound memory.
ROWS = 250

_LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True, eq=False)
class NoiseModel:
    """The random part of a simulator's measurements in one experiment."""

    simulator: Simulator
    experiment: Experiment

    @cached_property
    def why_not_explicit(self) -> str:
        """Why there is no explicit likelihood; empty if there is one."""
        effects = self.simulator.engine.effects
        for e in effects:
            if e.hooks.force or e.family.latent:
                return f"effects.{e.effect.name} ({e.family.name}) is random beyond its parameters"
        for channel in self.experiment.channels:
            mine = [e for e in effects if e.hooks.measure and channel in e.effect.targets and not e.hooks.clean]
            unknown = [e.effect.name for e in mine if not (e.hooks.variance or e.hooks.resolution)]
            if unknown:
                return f"effects.{unknown[0]} gives no likelihood for {channel}"
            if not any(e.hooks.variance for e in mine):
                return f"{channel} has no noise; add a sensor_noise effect"
        return ""

    @property
    def exact(self) -> bool:
        """Whether the likelihood is explicit."""
        return not self.why_not_explicit

    @cached_property
    def motion(self) -> np.ndarray:
        """(d,) bool: parameters that move the clean trajectories; the others only shape what is random."""
        names = self.simulator.parameters.names
        moves = np.zeros(len(names), bool)
        for e in self.simulator.engine.effects:
            h = e.hooks
            if h.write or h.command or h.initial or h.clean:
                moves[[names.index(v) for v in e.effect.roles.values() if isinstance(v, str)]] = True
        return moves

    def scales(self, theta: np.ndarray, window: Window) -> tuple[np.ndarray, np.ndarray]:
        """Standard deviation of the noise and step of the rounding (0: none), each (n, m), for theta (n, d)."""
        known = {name: np.full(len(theta), value) for name, value in window.constants.items()}
        known |= {name: np.full(len(theta), signal.value.mean()) for name, signal in window.signals.items()}
        variance, step = np.zeros((2, len(theta), len(self.experiment.channels)))
        for e in self.simulator.engine.effects:
            if not (e.hooks.variance or e.hooks.resolution):
                continue
            values = e.values(theta, self.simulator.parameters.names, known)
            for c, channel in enumerate(self.experiment.channels):
                if channel in e.effect.targets:
                    variance[:, c] += e.hooks.variance(values) if e.hooks.variance else 0.0
                    step[:, c] = np.maximum(step[:, c], e.hooks.resolution(values) if e.hooks.resolution else 0.0)
        return np.sqrt(variance), step

    def log_likelihood(self, clean: Sequence[np.ndarray], theta: np.ndarray) -> np.ndarray:
        """(n,) log density of what was observed, given clean trajectories (n, T_w, m) per window; -inf where one failed."""
        total = np.zeros(len(theta))
        for values, window in zip(clean, self.experiment.windows, strict=True):
            std, step = self.scales(theta, window)
            for rows in _blocks(len(theta)):
                log_p, _, _ = _reading(window.observed - values[rows], std[rows, None], step[rows, None])
                total[rows] += log_p.sum((1, 2))
        return np.where(np.isfinite(total), total, -np.inf)

    def log_marginal(
        self, clean: Sequence[np.ndarray], theta: np.ndarray, errors: np.ndarray, sensitivity: Sensitivity
    ) -> np.ndarray:  # fmt: skip
        """(n,) log density of what was observed, integrated over the standard normal errors of the initial states.

        ``clean`` was simulated at ``errors`` (n, windows, k). It is linearised there, and the integrand around its mode
        (Laplace's method): exact for Gaussian noise up to that linearisation, approximate for rounded readings.
        """
        total = np.zeros(len(theta))
        for w, (values, window) in enumerate(zip(clean, self.experiment.windows, strict=True)):
            std, step = self.scales(theta, window)
            for rows in _blocks(len(theta)):
                gradient = sensitivity(w, rows)
                total[rows] += _integrated(window.observed - values[rows], std[rows, None], step[rows, None], gradient, errors[rows, w])
        return np.where(np.isfinite(total), total, -np.inf)


class Sensitivity:
    """Derivative of the clean trajectories by the errors of the initial states, (rows, T, m, k) for a window and rows.

    To first order in the parameters: ``at_mode`` (T, m, k) and ``slopes`` (p, T, m, k) per window, ``shifts`` (n, p).
    """

    def __init__(self, at_mode: Sequence[np.ndarray], slopes: Sequence[np.ndarray], shifts: np.ndarray) -> None:
        self.at_mode, self.slopes, self.shifts = at_mode, slopes, shifts

    def __call__(self, window: int, rows: slice) -> np.ndarray:
        """(rows, T, m, k)."""
        return self.at_mode[window] + np.tensordot(self.shifts[rows], self.slopes[window], 1)


def _blocks(n: int) -> list[slice]:
    return [slice(low, low + ROWS) for low in range(0, n, ROWS)]


def _reading(residual: np.ndarray, std: np.ndarray, step: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log density of a reading by its distance from the clean value, its slope by the clean value, and minus its curvature.

    A rounded reading has probability Phi((r + q/2)/s) - Phi((r - q/2)/s); divided by q it is a density, as it is unrounded.
    """
    if not (step > 0).any():
        z = residual / std
        return -0.5 * (z**2 + _LOG_2PI) - np.log(std), z / std, np.broadcast_to(std**-2.0, z.shape)
    low, high = (residual - step / 2) / std, (residual + step / 2) / std
    # the tail below zero keeps its digits
    flip = low > 0
    a, b = np.where(flip, -high, low), np.where(flip, -low, high)
    log_b = log_ndtr(b)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        log_z = log_b + np.log1p(-np.exp(np.minimum(log_ndtr(a) - log_b, 0.0)))
        at_a, at_b = np.exp(-0.5 * (a**2 + _LOG_2PI) - log_z), np.exp(-0.5 * (b**2 + _LOG_2PI) - log_z)
        slope = (at_a - at_b) / std
        curvature = slope**2 - (a * at_a - b * at_b) / std**2
    log_q = np.log(np.where(step > 0, step, 1.0))
    plain = np.broadcast_to(step <= 0, residual.shape)
    if plain.any():
        exact = _reading(residual, std, np.zeros(1))
        log_z, slope, curvature = (
            np.where(plain, exact[0], log_z - log_q),
            np.where(plain, exact[1], slope),
            np.where(plain, exact[2], curvature),
        )
    else:
        log_z = log_z - log_q
    # slope was taken in the flipped variable
    return log_z, np.where(flip & ~plain, -slope, slope), np.clip(curvature, 0.0, None)


def _integrated(residual: np.ndarray, std: np.ndarray, step: np.ndarray, gradient: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """(n,): log of the integral over z of N(z; 0, I) times the readings' density, clean values linear in z around ``errors``."""
    n = len(residual)
    # errors that move nothing integrate to one
    free = np.flatnonzero((gradient != 0).any((0, 1, 2)))
    rows = residual.reshape(n, -1)
    flat, start = gradient[..., free].reshape(*rows.shape, len(free)), errors[:, free]
    scale, rounding = (np.broadcast_to(a, residual.shape).reshape(n, -1) for a in (std, step))
    rounding = rounding if (step > 0).any() else np.zeros(1)
    move, height, size = np.zeros((n, len(free))), np.full(n, -np.inf), np.ones(n)
    normaliser, newton = np.zeros(n), np.zeros((n, len(free)))
    for _ in range(NEWTON if (step > 0).any() else 2):
        trial = move + size[:, None] * newton
        log_p, slope, curvature = _reading(rows - np.einsum("ntk,nk->nt", flat, trial), scale, rounding)
        value = log_p.sum(1) - 0.5 * ((start + trial) ** 2).sum(1)
        # a failed row's curvature is NaN; its value says so too
        hessian = np.einsum("ntk,nt,ntl->nkl", flat, np.nan_to_num(curvature), flat) + np.eye(len(free))
        step_to_mode = np.linalg.solve(hessian, (np.einsum("ntk,nt->nk", flat, slope) - (start + trial))[..., None])[..., 0]
        up = value > height
        move, newton = np.where(up[:, None], trial, move), np.where(up[:, None], step_to_mode, newton)
        height, normaliser = np.where(up, value, height), np.where(up, -0.5 * np.linalg.slogdet(hessian)[1], normaliser)
        # rounding makes the integrand flat in places: go back halfway where a step overshot
        size = np.where(up, 1.0, size / 2)
    return height + normaliser
