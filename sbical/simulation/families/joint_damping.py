"""Viscous joint friction."""

from __future__ import annotations

from sbical.simulation.families.base import Family, Role, per_dof

FAMILY = Family(
    name="joint_damping",
    equation="tau = -damping * qdot  (dof_damping)",
    target="joint",
    roles={"damping": Role("N m s/rad", "nonnegative", "viscous friction coefficient")},
    bind=per_dof("dof_damping", "damping"),
)
