"""Proportional-derivative position servo."""

from __future__ import annotations

import mujoco

from sbical.errors import SimulatorError
from sbical.simulation.families.base import Binding, Effect, Family, Hooks, Role, Values, Write


def _bind(binding: Binding, effect: Effect) -> Hooks:
    actuators = [binding.model.actuator(name).id for name in effect.targets]
    for a in actuators:
        if binding.model.actuator_biastype[a] != mujoco.mjtBias.mjBIAS_AFFINE:
            raise SimulatorError(
                f"effects.{effect.name}: actuator '{binding.model.actuator(a).name}' has no position feedback, which kp would scale; "
                "make it a <position> in the MJCF"
            )

    def write(values: Values) -> list[Write]:
        writes: list[Write] = []
        for a in actuators:
            writes.append(Write("actuator_gainprm", (a, 0), "set", values["kp"]))
            writes.append(Write("actuator_biasprm", (a, 1), "set", -values["kp"]))
            if "kv" in values:
                writes.append(Write("actuator_biasprm", (a, 2), "set", -values["kv"]))
        return writes

    return Hooks(write=write)


FAMILY = Family(
    name="position_servo",
    equation="tau = kp * (goal - q) - kv * qdot  (actuator_gainprm, actuator_biasprm)",
    target="actuator",
    roles={
        "kp": Role("N m/rad", "nonnegative", "position gain"),
        "kv": Role("N m s/rad", "nonnegative", "velocity gain", optional=True),
    },
    bind=_bind,
)
