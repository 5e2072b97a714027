"""Torque that the model does not explain: an Ornstein-Uhlenbeck process, which keeps the posterior honest."""

from __future__ import annotations

import numpy as np

from sbical.simulation.families.base import Binding, Effect, Family, Hooks, Role, Streams, Values


def _bind(binding: Binding, effect: Effect) -> Hooks:
    dofs = binding.dofs(effect.targets)
    nv = binding.model.nv

    def force(values: Values, streams: Streams, steps: int, timestep: float) -> np.ndarray:
        # takes a second to import, which a look at the catalog should not pay
        from scipy.signal import lfilter

        out = np.zeros((len(streams.generators), steps, nv))
        white = streams.normal(len(dofs), steps)
        decay = np.exp(-timestep / values["correlation_time"])
        # stationary start, then x_k = a x_(k-1) + sqrt(1 - a^2) e_k
        gain = np.sqrt(1 - decay**2)
        white[:, :, 1:] *= gain[:, None, None]
        for row, (a, std) in enumerate(zip(decay, values["std"], strict=True)):
            filtered = np.asarray(lfilter([1.0], [1.0, -a], white[row], axis=-1))
            out[row][:, dofs] = std * filtered.T
        return out

    return Hooks(force=force)


FAMILY = Family(
    name="disturbance_torque",
    equation="d tau = -tau / correlation_time dt + std * sqrt(2 / correlation_time) dW  (qfrc_applied)",
    target="joint",
    roles={
        "std": Role("N m", "nonnegative", "standard deviation of the disturbance"),
        "correlation_time": Role("s", "positive", "correlation time of the disturbance", default=0.1),
    },
    bind=_bind,
    latent=True,
)
