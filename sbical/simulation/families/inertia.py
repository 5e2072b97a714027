"""Mass, centre of mass and rotational inertia of a body that turns about one axis."""

from __future__ import annotations

import fnmatch

import mujoco
import numpy as np

from sbical.errors import SimulatorError
from sbical.simulation.families.base import Binding, Effect, Family, Hooks, Role, Values, Write


def _bind(binding: Binding, effect: Effect) -> Hooks:
    if not effect.roles:
        raise SimulatorError(f"effects.{effect.name} changes nothing; give at least one of {', '.join(FAMILY.roles)}")
    model = binding.model
    bodies = [model.body(name).id for name in effect.targets]
    directions = {}
    for body in bodies:
        offset = np.array(model.body_ipos[body])
        length = float(np.linalg.norm(offset))
        if "com_distance" in effect.roles and length == 0.0:
            raise SimulatorError(
                f"effects.{effect.name}: the centre of mass of body '{model.body(body).name}' is at its origin, so com_distance "
                'has no direction; give the body an <inertial pos="…"> away from it'
            )
        directions[body] = offset / max(length, 1e-12)

    def write(values: Values) -> list[Write]:
        writes: list[Write] = []
        for body in bodies:
            if "mass" in values:
                writes.append(Write("body_mass", (body,), "set", values["mass"]))
            if "com_distance" in values:
                along = directions[body]
                writes.extend(Write("body_ipos", (body, k), "set", values["com_distance"] * along[k]) for k in range(3))
            if "inertia" in values:
                # an isotropic tensor is always physically consistent; about a single hinge only one moment acts
                writes.extend(Write("body_inertia", (body, k), "set", values["inertia"]) for k in range(3))
        return writes

    return Hooks(write=write)


def _edit(spec: mujoco.MjSpec, effect: Effect) -> None:
    """MuJoCo compiles a body whose centre of mass is at its frame as "simple", and refuses to move it afterwards."""
    for body in spec.bodies:
        if any(fnmatch.fnmatch(body.name, target) for target in effect.targets):
            body.simple = False


FAMILY = Family(
    name="inertia",
    equation="m = mass, c = com_distance along its nominal direction, I_com = inertia * identity  (body_mass, body_ipos, body_inertia)",
    target="body",
    roles={
        "mass": Role("kg", "positive", "mass of the body", optional=True),
        "com_distance": Role("m", "nonnegative", "distance of the centre of mass from the body frame", optional=True),
        "inertia": Role("kg m^2", "positive", "moment of inertia about the centre of mass", optional=True),
    },
    bind=_bind,
    edit=_edit,
)
