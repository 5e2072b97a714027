"""Coulomb (dry) joint friction."""

from __future__ import annotations

from sbical.simulation.families.base import Family, Role, per_dof

FAMILY = Family(
    name="joint_friction",
    equation="|tau| <= frictionloss, opposing motion  (dof_frictionloss)",
    target="joint",
    roles={"frictionloss": Role("N m", "nonnegative", "Coulomb friction torque")},
    bind=per_dof("dof_frictionloss", "frictionloss"),
)
