"""Reflected rotor inertia."""

from __future__ import annotations

from sbical.simulation.families.base import Family, Role, per_dof

FAMILY = Family(
    name="armature",
    equation="M_jj += armature = gear ratio^2 * rotor inertia  (dof_armature)",
    target="joint",
    roles={"armature": Role("kg m^2", "nonnegative", "rotor inertia seen at the joint")},
    bind=per_dof("dof_armature", "armature"),
)
