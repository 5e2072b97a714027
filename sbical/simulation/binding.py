"""Effects whose names are resolved in a compiled model, and what they write into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
from mujoco.batch import Batch

from sbical.errors import SimulatorError, unknown
from sbical.simulation.families import families
from sbical.simulation.families.base import Binding, ConditionRef, Effect, Family, Hooks, Write


@dataclass(frozen=True)
class BoundEffect:
    """An effect whose names are resolved in a compiled model."""

    effect: Effect
    family: Family
    hooks: Hooks
    number: int

    def values(self, theta: np.ndarray, names: Sequence[str], known: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Values of its roles: columns of ``theta`` (rows, d), numbers, or the rows' known conditions."""
        out: dict[str, np.ndarray] = {}
        for role, value in self.effect.roles.items():
            if isinstance(value, str):
                out[role] = theta[:, names.index(value)]
            elif isinstance(value, ConditionRef):
                out[role] = known[value.name]
                if out[role].ndim == 2 and self.hooks.write is None:
                    raise SimulatorError(
                        f"effects.{self.effect.name}: {role} follows the condition '{value.name}', which changes along a recording, but "
                        f"{self.family.name} takes one value per recording; give one with --set {value.name}=NUMBER"
                    )
            else:
                out[role] = np.full(len(theta), float(value))
        return out


def bind(effects: Sequence[Effect], binding: Binding) -> tuple[BoundEffect, ...]:
    """Resolve every effect's names in the compiled model."""
    known = families()
    return tuple(BoundEffect(e, known[e.family], known[e.family].bind(binding, e), k) for k, e in enumerate(effects))


def apply(write: Write, batch: Batch, block: int | None = None) -> None:
    """One write into the batch's model fields; ``block`` picks the value of a write that changes along the recording."""
    values = write.values if write.values.ndim == 1 else write.values[:, block or 0]
    entry = batch.expand(write.field)[(slice(None), *write.index)]
    if write.op == "add":
        entry += values
    elif write.op == "scale":
        entry *= values
    else:
        entry[:] = values


def check_writes(writes: Sequence[Write], owner: Sequence[str]) -> None:
    """Two effects that set the same entry contradict each other. Raises SimulatorError naming both."""
    seen: dict[tuple[str, tuple[int, ...]], str] = {}
    for write, name in zip(writes, owner, strict=True):
        key = (write.field, write.index)
        if write.op != "set":
            continue
        if key in seen:
            raise SimulatorError(
                f"effects.{seen[key]} and effects.{name} both set {write.field}{list(write.index)}; remove one of them or narrow its target"
            )
        seen[key] = name


def needs_set_const(writes: Sequence[Write]) -> bool:
    """Whether derived constants of the model must follow the writes."""
    # the list is private to MuJoCo; this fallback holds the fields that our families write
    fallback = {"body_mass", "body_inertia", "body_ipos", "dof_armature", "actuator_gear"}
    fields = set(getattr(mujoco.MjModel, "_setconst_inputs", fallback))
    return any(w.field in fields for w in writes)


def resolve(kind: str, name: str, model: mujoco.MjModel) -> int:
    """Id of a named model element. Raises SimulatorError listing the names that exist."""
    objects = mujoco.mjtObj
    codes = {"joint": objects.mjOBJ_JOINT, "actuator": objects.mjOBJ_ACTUATOR, "body": objects.mjOBJ_BODY, "sensor": objects.mjOBJ_SENSOR}
    code = codes[kind]
    found = mujoco.mj_name2id(model, code, name)
    if found < 0:
        raise SimulatorError(unknown(kind, name, element_names(kind, model), where="the model"))
    return found


def element_names(kind: str, model: mujoco.MjModel) -> tuple[str, ...]:
    """Names of all joints, actuators, bodies (but the world) or sensors."""
    count = {"joint": model.njnt, "actuator": model.nu, "body": model.nbody, "sensor": model.nsensor}[kind]
    access = {"joint": model.joint, "actuator": model.actuator, "body": model.body, "sensor": model.sensor}[kind]
    return tuple(access(i).name for i in range(count) if access(i).name and access(i).name != "world")
