"""A simulator: a MuJoCo model, the effects written into it, and what its commands and measurements are called in logs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import mujoco
import numpy as np
from mujoco.batch import Batch

from sbical.recordings.column_map import Columns
from sbical.recordings.experiment import Experiment, JointLayout
from sbical.recordings.initial_state import JointSensor
from sbical.simulation.binding import apply, bind
from sbical.simulation.families import families
from sbical.simulation.families.base import Binding, Effect, Operation, Sensor, Write
from sbical.simulation.parameters import Parameter, ParameterSpace
from sbical.simulation.rollout import Engine, Trajectories


@dataclass(frozen=True)
class NamedWrite:
    """One entry of one model field that parameters decide: ``values`` (n,) for n draws."""

    effect: str
    parameters: tuple[str, ...]
    field: str
    index: tuple[int, ...]
    object: str
    op: Operation
    values: np.ndarray


@dataclass(frozen=True, eq=False)
class Simulator:
    """Picklable: the compiled model travels, the engine is made once per process. Load one with ``load_simulator``."""

    name: str
    model: mujoco.MjModel
    xml: str
    toml: str
    columns: Columns
    effects: tuple[Effect, ...]
    sensors: Mapping[str, Sensor]
    commands: Mapping[str, int]
    parameters: ParameterSpace
    window: float | None = None
    prior: str | None = None

    @property
    def timestep(self) -> float:
        """Step of the simulation [s]; a calibrated delay is specific to it."""
        return float(self.model.opt.timestep)

    @property
    def latent(self) -> bool:
        """Whether an effect is random beyond its parameters, which rules an explicit likelihood out."""
        return any(families()[e.family].latent for e in self.effects)

    @cached_property
    def engine(self) -> Engine:
        """The model with its effects bound; made on first use in a process."""
        binding = Binding(self.model, self.sensors, self.commands)
        return Engine(self.model, self.parameters.names, bind(self.effects, binding), binding)

    def __getstate__(self) -> dict[str, object]:
        state = dict(self.__dict__)
        # hooks close over functions, and an engine is cheap to make again
        state.pop("engine", None)
        return state

    @cached_property
    def layout(self) -> JointLayout:
        """Which joints the measurements read."""
        joints = {}
        for name, s in self.sensors.items():
            if s.joint is not None and s.kind != "other":
                joints[name] = JointSensor(s.kind, int(self.model.jnt_qposadr[s.joint]), int(self.model.jnt_dofadr[s.joint]), s.resolution)
        return JointLayout(joints, np.array(self.model.qpos0), int(self.model.nv))

    def simulate(
        self, theta: np.ndarray, experiment: Experiment, seeds: np.ndarray, *, noise: bool = True, errors: np.ndarray | None = None
    ) -> Trajectories:
        """Measurements under each row of ``theta`` (n, d) [SI], with ``seeds`` (n,); see ``Engine.simulate``."""
        return self.engine.simulate(np.asarray(theta, float), experiment, np.asarray(seeds), noise=noise, errors=errors)

    def measured(self, theta: np.ndarray, experiment: Experiment, seeds: np.ndarray, copies: int) -> tuple[Trajectories, ...]:
        """The same, each motion measured ``copies`` times with sensor noise of its own."""
        return self.engine.measured(np.asarray(theta, float), experiment, np.asarray(seeds), copies)

    def writes(self, theta: np.ndarray, conditions: Mapping[str, float] | None = None) -> list[NamedWrite]:
        """What ``theta`` (n, d) means in the model, entry by entry.

        Roles that follow a condition are left out unless ``conditions`` gives its value in SI units, because no single
        number stands for them.
        """
        theta = np.atleast_2d(np.asarray(theta, float))
        known = {name: np.full(len(theta), value) for name, value in (conditions or {}).items()}
        out: list[NamedWrite] = []
        for effect in self.engine.effects:
            if effect.hooks.write is None or not self._conditions_of(effect.effect) <= set(known):
                continue
            used = tuple(v for v in effect.effect.roles.values() if isinstance(v, str))
            for write in effect.hooks.write(effect.values(theta, self.parameters.names, known)):
                label = self._label(write)
                out.append(NamedWrite(effect.effect.name, used, write.field, write.index, label, write.op, write.values))
        return out

    def calibrated_model(self, theta: np.ndarray, conditions: Mapping[str, float] | None = None) -> mujoco.MjModel:
        """A copy of the model with ``theta`` (d,) written into it; see ``writes`` for ``conditions``."""
        batch = Batch(self.model, 1, nthread=1)
        named = self.writes(theta, conditions)
        for write in sorted(named, key=lambda w: ("set", "scale", "add").index(w.op)):
            apply(Write(write.field, write.index, write.op, write.values), batch)
        batch.set_const()
        return batch.get_model(0)

    def spec(self) -> mujoco.MjSpec:
        """The specification that the model was compiled from, effects' edits included."""
        return mujoco.MjSpec.from_string(self.xml)

    def digest(self) -> str:
        """SHA-256 over the compiled model and everything simulator.toml says."""
        size = mujoco.mj_sizeModel(self.model)
        buffer = np.empty(size, np.uint8)
        mujoco.mj_saveModel(self.model, None, buffer)
        return hashlib.sha256(buffer.tobytes() + self.toml.encode()).hexdigest()

    def _conditions_of(self, effect: Effect) -> set[str]:
        return {v.name for v in effect.roles.values() if not isinstance(v, str | int | float)}

    def _label(self, write: Write) -> str:
        """``joint shoulder`` for an entry of ``dof_damping``, and so on."""
        kind, _, _ = write.field.partition("_")
        element = write.index[0]
        if kind == "dof":
            return f"joint {self.model.joint(int(self.model.dof_jntid[element])).name}"
        if kind in ("body", "actuator", "geom"):
            return f"{kind} {getattr(self.model, kind)(element).name}"
        return f"{kind} {element}"


def parameter_space(effects: Sequence[Effect], unit_of: Mapping[tuple[str, str], str]) -> ParameterSpace:
    """The unknowns of all effects in order of appearance; one name used twice is one unknown."""
    found: dict[str, Parameter] = {}
    for effect in effects:
        roles = families()[effect.family].roles
        for role, value in effect.roles.items():
            if isinstance(value, str):
                use = Parameter(value, unit_of[effect.name, role], roles[role].support, (f"{effect.name}.{role}",))
                found[value] = found[value].merged(use) if value in found else use
    return ParameterSpace(tuple(found.values()))
