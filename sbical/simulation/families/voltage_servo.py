"""Position servo whose firmware sets a motor voltage: gain, limit and electrical damping follow from the motor.

duty = clip(gain * error_gain * (goal - q), -1, 1);  torque = kt / R * (duty * supply - kt * qdot).
Source: firmware law of Dynamixel X servos as modelled by Rhoban's BAM (Apache-2.0).
"""

from __future__ import annotations

import math

import mujoco
import numpy as np

from sbical.errors import SimulatorError
from sbical.simulation.families.base import Binding, Effect, Family, Hooks, Role, Values, Write

#: Encoder counts per radian over the firmware's gain divider and PWM range (XL330), [1/rad].
ERROR_GAIN = (4096 / (2 * math.pi)) / (256 * 885)


def _bind(binding: Binding, effect: Effect) -> Hooks:
    actuators = [binding.model.actuator(name).id for name in effect.targets]
    model = binding.model
    for a in actuators:
        if model.actuator_biastype[a] != mujoco.mjtBias.mjBIAS_AFFINE or not model.actuator_forcelimited[a]:
            raise SimulatorError(
                f"effects.{effect.name}: actuator '{model.actuator(a).name}' must be a <position> with a forcerange, so that the "
                'supply voltage can limit its torque; for example forcerange="-1 1"'
            )
    dofs = [int(model.jnt_dofadr[binding.joint_of_actuator(a, f"effects.{effect.name}")]) for a in actuators]

    def write(values: Values) -> list[Write]:
        per_volt = _times(values["torque_constant"], 1 / values["resistance"])
        limit = _times(per_volt, values["supply"])
        kp = _times(limit, _times(values["gain"], values["error_gain"]))
        writes: list[Write] = []
        for a, dof in zip(actuators, dofs, strict=True):
            writes.append(Write("actuator_gainprm", (a, 0), "set", kp))
            writes.append(Write("actuator_biasprm", (a, 1), "set", -kp))
            writes.append(Write("actuator_forcerange", (a, 0), "set", -limit))
            writes.append(Write("actuator_forcerange", (a, 1), "set", limit))
            # back-EMF acts whatever the duty, so it is damping of the joint, outside the force limit
            writes.append(Write("dof_damping", (dof,), "add", _times(per_volt, values["torque_constant"])))
        return writes

    return Hooks(write=write)


def _times(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Product of two role values, each (rows,) or (rows, blocks)."""
    if a.ndim < b.ndim:
        a = a[:, None]
    if b.ndim < a.ndim:
        b = b[:, None]
    return a * b


FAMILY = Family(
    name="voltage_servo",
    equation="tau = kt/R * (clip(gain*error_gain*(goal - q), -1, 1) * supply - kt*qdot)  (actuator gain, bias, forcerange; dof_damping)",
    target="actuator",
    roles={
        "torque_constant": Role("N m/A", "positive", "torque constant kt (equals the back-EMF constant) at the joint"),
        "resistance": Role("ohm", "positive", "winding resistance R"),
        "gain": Role("1", "nonnegative", "firmware position gain"),
        "supply": Role("V", "nonnegative", "supply voltage"),
        "error_gain": Role("1/rad", "positive", "duty per rad at gain 1", default=ERROR_GAIN),
    },
    bind=_bind,
)
