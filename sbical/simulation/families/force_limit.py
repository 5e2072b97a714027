"""Symmetric torque or force limit of an actuator."""

from __future__ import annotations

from sbical.errors import SimulatorError
from sbical.simulation.families.base import Binding, Effect, Family, Hooks, Role, Values, Write


def _bind(binding: Binding, effect: Effect) -> Hooks:
    actuators = [binding.model.actuator(name).id for name in effect.targets]
    for a in actuators:
        if not binding.model.actuator_forcelimited[a]:
            raise SimulatorError(
                f"effects.{effect.name}: actuator '{binding.model.actuator(a).name}' has no forcerange, which the limit would set; "
                'add forcerange="-1 1" to it in the MJCF'
            )

    def write(values: Values) -> list[Write]:
        sides = ((0, -1.0), (1, 1.0))
        return [Write("actuator_forcerange", (a, side), "set", sign * values["limit"]) for a in actuators for side, sign in sides]

    return Hooks(write=write)


FAMILY = Family(
    name="force_limit",
    equation="|tau| <= limit  (actuator_forcerange)",
    target="actuator",
    roles={"limit": Role("N m", "nonnegative", "largest torque the actuator can give")},
    bind=_bind,
)
