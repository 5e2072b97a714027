"""Friction of a gear: a dry part, one that grows with the torque that the teeth carry, and one that fades with speed (Stribeck).

frictionloss = coulomb + load * |tau_actuator + tau_bias| + stribeck * exp(-|qdot| / stribeck_velocity)

The teeth carry what the actuator pushes (``qfrc_actuator``) against gravity and inertial forces (minus ``qfrc_bias``); it is read one
step late, and without the back-EMF that ``voltage_servo`` writes as damping. Source: the load-dependent and Stribeck terms of Rhoban's
BAM (Duclusaud et al. 2024, arXiv:2410.08650).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sbical.simulation.families.base import Binding, Effect, Family, Hooks, Role, Values, Write


def _bind(binding: Binding, effect: Effect) -> Hooks:
    dofs = binding.dofs(effect.targets)

    def write(values: Values) -> list[Write]:
        return [Write("dof_frictionloss", (d,), "set", values["coulomb"] + values["stribeck"]) for d in dofs]

    def step(batch: Any, values: Values) -> None:
        push, bias, speed = (batch.bind(field)[:, dofs] for field in ("qfrc_actuator", "qfrc_bias", "qvel"))
        fading = values["stribeck"][:, None] * np.exp(-np.abs(speed) / values["stribeck_velocity"][:, None])
        batch.expand("dof_frictionloss")[:, dofs] = values["coulomb"][:, None] + values["load"][:, None] * np.abs(push + bias) + fading

    return Hooks(write=write, step=step)


FAMILY = Family(
    name="load_friction",
    equation="|tau| <= coulomb + load * |tau_actuator + tau_bias| + stribeck * exp(-|qdot| / stribeck_velocity)  (dof_frictionloss)",
    target="joint",
    roles={
        "coulomb": Role("N m", "nonnegative", "dry friction without load"),
        "load": Role("1", "nonnegative", "share of the torque between the gear's teeth that friction takes"),
        "stribeck": Role("N m", "nonnegative", "dry friction at rest beyond that in motion", default=0.0),
        "stribeck_velocity": Role("rad/s", "positive", "speed at which that has faded to 1/e", default=0.1),
    },
    bind=_bind,
)
