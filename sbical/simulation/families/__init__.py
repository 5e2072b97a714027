"""Registry of families: the members of this package, and what other packages add as ``sbical.families`` entry points."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points

from sbical.simulation.families import (
    armature,
    body_mass,
    command_delay,
    disturbance_torque,
    force_limit,
    inertia,
    joint_damping,
    joint_friction,
    load_friction,
    position_servo,
    sensor_bias,
    sensor_noise,
    sensor_quantisation,
    voltage_servo,
)
from sbical.simulation.families.base import Family

_MEMBERS = (
    armature,
    body_mass,
    command_delay,
    disturbance_torque,
    force_limit,
    inertia,
    joint_damping,
    joint_friction,
    load_friction,
    position_servo,
    sensor_bias,
    sensor_noise,
    sensor_quantisation,
    voltage_servo,
)


@cache
def families() -> Mapping[str, Family]:
    """All families by name; an entry point may not replace a member."""
    found = {member.FAMILY.name: member.FAMILY for member in _MEMBERS}
    for point in entry_points(group="sbical.families"):
        found.setdefault(point.name, point.load())
    return found
