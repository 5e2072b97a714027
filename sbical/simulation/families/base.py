"""What a family of effects is: named roles, and the hooks through which they reach the simulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import mujoco
import numpy as np

from sbical.errors import SimulatorError
from sbical.simulation.parameters import Support

TargetKind = Literal["joint", "actuator", "body", "measurement", "command"]
Operation = Literal["set", "add", "scale"]

#: Values of an effect's roles: (rows,), or (rows, blocks) where a condition changes along a recording.
Values = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Role:
    """One quantity of a family. ``default`` fills a role that is left out; ``optional`` roles may stay absent."""

    unit: str
    support: Support
    meaning: str
    default: float | None = None
    optional: bool = False


@dataclass(frozen=True)
class ConditionRef:
    """A role whose value is known for each recording: ``{ condition = "kp" }``."""

    name: str


RoleValue = str | float | ConditionRef


@dataclass(frozen=True)
class Effect:
    """One entry of ``[effects]``: a family, the model elements it acts on, and a value per role."""

    name: str
    family: str
    targets: tuple[str, ...]
    roles: Mapping[str, RoleValue]


@dataclass(frozen=True)
class Write:
    """One entry of one model field. ``values`` (rows,), or (rows, blocks) to change it while the simulation runs."""

    field: str
    index: tuple[int, ...]
    op: Operation
    values: np.ndarray


@dataclass(frozen=True)
class Streams:
    """One independent random stream per row, so that results do not depend on how rows are grouped."""

    generators: Sequence[np.random.Generator]

    def normal(self, *shape: int) -> np.ndarray:
        """Standard normal draws, (rows, *shape)."""
        out = np.empty((len(self.generators), *shape))
        for row, generator in zip(out, self.generators, strict=True):
            generator.standard_normal(out=row)
        return out


@dataclass(frozen=True)
class Hooks:
    """How a bound effect takes part in a simulation; every hook is optional.

    write(values) -> writes to model fields
    command(edges, values) -> edges: times [s], (rows, steps + 1), at which the held command is read
    initial(qpos, qvel, values): corrects the measured initial state in place
    force(values, streams, steps, timestep) -> (rows, steps, nv) generalised force [N m or N]
    measure(signal, values, streams) -> (rows, samples): what the sensor makes of a clean signal
    step(batch, values): changes fields of the batch's models before every step, from what its last step left. Values are those of one
    recording, (rows,). Its presence selects the stepping loop, which is slower than a rollout in C.

    What ``measure`` does at random has a likelihood where one of these says so:
    variance(values) -> (rows,): white Gaussian noise of that variance, squared unit of the sensor
    resolution(values) -> (rows,): rounding to multiples of that step, unit of the sensor
    """

    write: Callable[[Values], list[Write]] | None = None
    command: Callable[[np.ndarray, Values], np.ndarray] | None = None
    initial: Callable[[np.ndarray, np.ndarray, Values], None] | None = None
    force: Callable[[Values, Streams, int, float], np.ndarray] | None = None
    measure: Callable[[np.ndarray, Values, Streams], np.ndarray] | None = None
    step: Callable[[Any, Values], None] | None = None
    variance: Callable[[Values], np.ndarray] | None = None
    resolution: Callable[[Values], np.ndarray] | None = None
    #: Effects on one measurement act in ascending order, as the signal passes through the sensor.
    order: int = 0
    #: Part of the noise-free reading too, as a bias is and noise is not.
    clean: bool = False


@dataclass(frozen=True)
class Sensor:
    """A measured channel: its place in ``sensordata`` and, for joint sensors, its joint."""

    address: int
    kind: Literal["position", "velocity", "other"]
    joint: int | None
    resolution: float | None


@dataclass(frozen=True)
class Binding:
    """What a family may look at when its names are resolved, once per process."""

    model: mujoco.MjModel
    sensors: Mapping[str, Sensor]
    commands: Mapping[str, int]

    def joint_of_actuator(self, actuator: int, where: str) -> int:
        """Joint that an actuator drives. Raises SimulatorError for other transmissions."""
        if self.model.actuator_trntype[actuator] != mujoco.mjtTrn.mjTRN_JOINT:
            name = self.model.actuator(actuator).name
            raise SimulatorError(f"{where}: actuator '{name}' does not drive a joint; use an actuator with joint=\"…\"")
        return int(self.model.actuator_trnid[actuator, 0])

    def dofs(self, joints: Sequence[str]) -> list[int]:
        """Degrees of freedom of the named joints."""
        first = [int(self.model.jnt_dofadr[self.model.joint(j).id]) for j in joints]
        size = {0: 6, 1: 3, 2: 1, 3: 1}
        return [d + k for j, d in zip(joints, first, strict=True) for k in range(size[int(self.model.joint(j).type[0])])]


@dataclass(frozen=True)
class Family:
    """One kind of physics: the roles it offers, what it acts on, and how it is bound to a compiled model.

    ``edit(spec, effect)`` may add elements before the model is compiled. ``latent`` families are random beyond
    their parameters, which takes the explicit likelihood away.
    """

    name: str
    equation: str
    target: TargetKind
    roles: Mapping[str, Role]
    bind: Callable[[Binding, Effect], Hooks]
    edit: Callable[[mujoco.MjSpec, Effect], None] | None = None
    latent: bool = False


def per_dof(field_name: str, role: str, op: Operation = "set") -> Callable[[Binding, Effect], Hooks]:
    """Bind a role that is one entry per degree of freedom of the targeted joints."""

    def bind(binding: Binding, effect: Effect) -> Hooks:
        dofs = binding.dofs(effect.targets)
        return Hooks(write=lambda values: [Write(field_name, (d,), op, values[role]) for d in dofs])

    return bind
