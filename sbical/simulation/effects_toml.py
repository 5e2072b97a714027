"""Reading the ``[effects]`` of a ``simulator.toml``: families, roles and targets, each checked where it is written."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np

from sbical.common.units import conversion
from sbical.errors import SimulatorError, unknown
from sbical.recordings.column_map import NAME, Columns
from sbical.simulation.binding import bind, check_writes, element_names
from sbical.simulation.families import families
from sbical.simulation.families.base import Binding, ConditionRef, Effect, Family, Role, RoleValue
from sbical.simulation.parameters import BOUNDS

#: Keys whose value is text; a unit may be the number 1.
_TEXTS = {"model", "prior", "integrator", "time", "actuator", "sensor", "column", "hold", "enable", "pattern", "family"}


def check_text(key: str, value: object, where: str) -> None:
    """Raises SimulatorError for a key that must be text and is not."""
    if key in _TEXTS and not (isinstance(value, str) and value.isprintable() and value):
        raise SimulatorError(f'{where}: {key} = {value!r} must be text in quotes, like {key} = "…"')


def parse_effect(name: str, table: Mapping[str, Any], where: str) -> Effect:
    """One ``[effects.NAME]`` table; its targets are still patterns. Raises SimulatorError naming family, role or value."""
    place = f"effects.{name} of {where}"
    if not re.fullmatch(NAME, name):
        raise SimulatorError(f"the name '{name}' of an effect in {where} is not a name (letters, digits, _ and - only); rename it")
    if "family" not in table:
        raise SimulatorError(f"{place} has no family; valid: {', '.join(sorted(families()))}")
    check_text("family", table["family"], place)
    if table["family"] not in families():
        raise SimulatorError(unknown("family", str(table["family"]), families(), where=place))
    family = families()[table["family"]]
    _known_roles(table, family, place)
    target = table.get("target")
    listed: list[Any] = target if isinstance(target, list) else [target]
    targets = tuple(t for t in listed if isinstance(t, str))
    if not targets or len(targets) != len(listed):
        raise SimulatorError(f'{place} needs target = "NAME" (a {family.target}, or a list of them)')
    roles: dict[str, RoleValue] = {}
    for role, spec in family.roles.items():
        if role in table:
            roles[role] = _role_value(table[role], role, spec, place)
        elif spec.default is not None:
            roles[role] = spec.default
        elif not spec.optional:
            raise SimulatorError(f'{place} has no {role} ({spec.meaning} [{spec.unit}]); add {role} = "PARAMETER_NAME" or a number')
    return Effect(name, family.name, targets, roles)


def _known_roles(table: Mapping[str, Any], family: Family, place: str) -> None:
    for key in table:
        if key not in {"family", "target", *family.roles}:
            raise SimulatorError(unknown("role", key, family.roles, where=f"{place} (family {family.name})"))


def _role_value(value: object, role: str, spec: Role, place: str) -> RoleValue:
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z_]\w*", value):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        low, high = BOUNDS[spec.support]
        if not (low <= value <= high and math.isfinite(value)) or (spec.support == "positive" and value == 0):
            kind = spec.support.replace("_", " ")
            raise SimulatorError(f"{place}: {role} = {value:g} is out of range; give a finite {kind} number ({spec.meaning} [{spec.unit}])")
        return float(value)
    if isinstance(value, dict) and set(value) == {"condition"}:
        return ConditionRef(str(value["condition"]))
    raise SimulatorError(
        f'{place}: {role} = {value!r} is none of a parameter name (letters, digits, _), a number, {{ condition = "NAME" }}'
    )


def condition_units(effects: Sequence[Effect]) -> dict[str, str]:
    """What each condition becomes: the unit of the role it fills."""
    units: dict[str, str] = {}
    for effect in effects:
        for role, value in effect.roles.items():
            unit = families()[effect.family].roles[role].unit
            if isinstance(value, ConditionRef) and unit != "sensor":
                units[value.name] = unit
    return units


def resolve_targets(effect: Effect, model: mujoco.MjModel, columns: Columns, where: str) -> Effect:
    """Resolve globs against the names that exist; a pattern that matches nothing is an error."""
    family = families()[effect.family]
    place = f"effects.{effect.name} of {where}"
    if family.target == "measurement":
        options = tuple(c.name for c in columns.measurements)
    elif family.target == "command":
        options = tuple(c.name for c in columns.commands)
    else:
        options = element_names(family.target, model)
    found: list[str] = []
    for pattern in effect.targets:
        # a name that holds a bracket is a name before it is a pattern
        matches = [pattern] if pattern in options else fnmatch.filter(options, pattern)
        if not matches:
            raise SimulatorError(unknown(family.target, pattern, options, where=place))
        found.extend(m for m in matches if m not in found)
    return Effect(effect.name, effect.family, tuple(found), effect.roles)


def role_unit(effect: Effect, role: str, columns: Columns) -> str:
    """SI unit of a role. Raises SimulatorError for one number that would stand for two units."""
    unit = families()[effect.family].roles[role].unit
    if unit != "sensor":
        return unit
    units = {columns.get(target).si: target for target in effect.targets}
    if len(units) > 1:
        mixed = " and ".join(f"{target} [{u}]" for u, target in units.items())
        raise SimulatorError(f"effects.{effect.name}: {role} cannot be one number for {mixed}; write one effect for each unit")
    return next(iter(units))


def check_conditions(effects: Sequence[Effect], columns: Columns, where: str) -> None:
    """Raises SimulatorError for a condition that does not exist, or is not in the unit of the role it fills."""
    options = {c.name: c for c in columns.conditions}
    for effect in effects:
        for role, value in effect.roles.items():
            if not isinstance(value, ConditionRef):
                continue
            place = f"effects.{effect.name}.{role} of {where}"
            if value.name not in options:
                raise SimulatorError(unknown("condition", value.name, options, where=place))
            unit = role_unit(effect, role, columns)
            if conversion(options[value.name].si, unit, where=place, error=SimulatorError) != (1.0, 0.0):
                raise SimulatorError(f"{place}: condition '{value.name}' is [{options[value.name].si}]; declare it in [{unit}]")


def check_bound(effects: Sequence[Effect], binding: Binding) -> None:
    """Bind once with unit values, so that contradictions show before the first simulation."""
    writes, owners = [], []
    for bound in bind(effects, binding):
        values = {role: np.ones(1) for role in bound.effect.roles}
        if bound.hooks.write:
            new = bound.hooks.write(values)
            writes.extend(new)
            owners.extend([bound.effect.name] * len(new))
    check_writes(writes, owners)
