"""Mass of a body whose shape and density profile are known: the inertia scales with it."""

from __future__ import annotations

from sbical.errors import SimulatorError
from sbical.simulation.families.base import Binding, Effect, Family, Hooks, Role, Values, Write


def _bind(binding: Binding, effect: Effect) -> Hooks:
    bodies = [binding.model.body(name).id for name in effect.targets]
    nominal = {b: float(binding.model.body_mass[b]) for b in bodies}
    for name, mass in zip(effect.targets, nominal.values(), strict=True):
        if mass <= 0.0:
            raise SimulatorError(f"effects.{effect.name}: body '{name}' has no mass to scale its inertia with; give it one in the MJCF")

    def write(values: Values) -> list[Write]:
        writes: list[Write] = []
        for body in bodies:
            writes.append(Write("body_mass", (body,), "set", values["mass"]))
            writes.extend(Write("body_inertia", (body, axis), "scale", values["mass"] / nominal[body]) for axis in range(3))
        return writes

    return Hooks(write=write)


FAMILY = Family(
    name="body_mass",
    equation="m = mass, I = I_nominal * mass / m_nominal  (body_mass, body_inertia)",
    target="body",
    roles={"mass": Role("kg", "positive", "mass of the body")},
    bind=_bind,
)
