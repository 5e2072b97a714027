"""Constant sensor offset. It also shifts where the robot really started, since that was read from the same sensor."""

from __future__ import annotations

import numpy as np

from sbical.simulation.families.base import Binding, Effect, Family, Hooks, Role, Streams, Values


def _bind(binding: Binding, effect: Effect) -> Hooks:
    model = binding.model
    sensors = [binding.sensors[name] for name in effect.targets]
    positions = [int(model.jnt_qposadr[s.joint]) for s in sensors if s.kind == "position" and s.joint is not None]
    velocities = [int(model.jnt_dofadr[s.joint]) for s in sensors if s.kind == "velocity" and s.joint is not None]

    def measure(signal: np.ndarray, values: Values, streams: Streams) -> np.ndarray:
        return signal + values["bias"][:, None]

    def initial(qpos: np.ndarray, qvel: np.ndarray, values: Values) -> None:
        qpos[:, positions] -= values["bias"][:, None]
        qvel[:, velocities] -= values["bias"][:, None]

    return Hooks(measure=measure, initial=initial, order=10, clean=True)


FAMILY = Family(
    name="sensor_bias",
    equation="y = x + bias",
    target="measurement",
    roles={"bias": Role("sensor", "real", "offset of the reading, in the sensor's unit")},
    bind=_bind,
)
