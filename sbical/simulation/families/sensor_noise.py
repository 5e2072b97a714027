"""White Gaussian sensor noise. MuJoCo's ``noise`` attribute is inert, so it is added after the rollout."""

from __future__ import annotations

import numpy as np

from sbical.simulation.families.base import Binding, Effect, Family, Hooks, Role, Streams, Values


def _bind(binding: Binding, effect: Effect) -> Hooks:
    def measure(signal: np.ndarray, values: Values, streams: Streams) -> np.ndarray:
        return signal + values["std"][:, None] * streams.normal(signal.shape[1])

    return Hooks(measure=measure, variance=lambda values: values["std"] ** 2, order=20)


FAMILY = Family(
    name="sensor_noise",
    equation="y = x + std * N(0, 1)",
    target="measurement",
    roles={"std": Role("sensor", "nonnegative", "standard deviation of the noise, in the sensor's unit")},
    bind=_bind,
)
