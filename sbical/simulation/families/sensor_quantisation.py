"""Rounding to the sensor's resolution, as an encoder does."""

from __future__ import annotations

import numpy as np

from sbical.errors import SimulatorError
from sbical.simulation.families.base import Binding, Effect, Family, Hooks, Role, Streams, Values


def _bind(binding: Binding, effect: Effect) -> Hooks:
    declared = {binding.sensors[name].resolution for name in effect.targets}
    if "resolution" not in effect.roles and (len(declared) > 1 or None in declared):
        raise SimulatorError(
            f"effects.{effect.name}: give resolution = … here, or the same one to each of the measurements {', '.join(effect.targets)}"
        )
    known = next(iter(declared)) or 0.0

    def resolution(values: Values) -> np.ndarray:
        return values["resolution"] if "resolution" in values else np.array([known])

    def measure(signal: np.ndarray, values: Values, streams: Streams) -> np.ndarray:
        step = resolution(values)[:, None]
        return np.round(signal / step) * step

    return Hooks(measure=measure, resolution=resolution, order=30)


FAMILY = Family(
    name="sensor_quantisation",
    equation="y = resolution * round(x / resolution)",
    target="measurement",
    roles={
        "resolution": Role("sensor", "positive", "smallest step of the reading (default: the measurement's own resolution)", optional=True)
    },
    bind=_bind,
)
