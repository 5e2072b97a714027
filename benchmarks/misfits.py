"""Robots that the six-parameter servo cannot express, each wrong in one way of a fixed size. SIMULATED STAND-INS, never real.

A plain loop over MuJoCo at the model's own timestep and integrator, so that the kind "none" is the model itself and every other
kind differs from it in what its name says and in nothing else. Magnitudes are set here once; none was tuned to be found.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import mujoco
import numpy as np

RATE, SECONDS, STEP = 500, 2.0, 0.002
TIME = np.arange(int(RATE * SECONDS)) / RATE
#: Two motions [rad]: the first is learned from, the second held out. The second begins gently: a start is smoothed from
#: the first 80 ms, which a command that jumps there spoils (the likelihood corrects that where it is learned from).
EASE = np.sin(np.pi / 2 * np.minimum(TIME / 0.3, 1.0)) ** 2
MOTIONS = (
    0.8 * np.sin(2 * np.pi * (0.5 * TIME + 0.5 * TIME**2)) + 0.4 * np.sign(np.sin(2 * np.pi * 1.3 * TIME)),
    EASE * (0.9 * np.sin(2 * np.pi * (0.7 * TIME + 0.3 * TIME**2) + 1.0) - 0.3 * np.sign(np.sin(2 * np.pi * 1.7 * TIME))),
)
#: Where a robot starts: at rest, but for this much [rad], [rad/s].
START = (0.01, 0.05)

#: Play between motor and arm, from one end to the other [rad]; the motor's own encoder closes the loop, the log shows the arm.
BACKLASH = math.radians(2.0)
#: LuGre (Canudas de Wit et al. 1995): the model's Coulomb torque, 1.5 times as much at rest, falling over 0.1 rad/s, on bristles
#: that give way by 0.01 rad; substeps of 0.2 ms, damping of the bristles critical for the rotor.
STICTION, STRIBECK, BRISTLE, SUBSTEPS = 1.5, 0.1, 0.01, 10
#: More mass of the arm, on the second motion only.
PAYLOAD = 0.3
#: The motor gives this share of the largest torque that the motions ask of it.
SATURATION = 0.6
#: Share of samples that were lost, so that the log repeats the one before.
LOST = 0.05

KINDS = ("backlash", "lugre", "payload", "saturation", "lost_samples", "swapped_sign", "degrees")

XML = """
<mujoco><option timestep="{step}" integrator="implicitfast"/>
<worldbody><body name="arm" pos="0 0 1"><joint name="hinge" axis="0 1 0" armature="0.01"/>{lash}
<geom type="capsule" fromto="0 0 0 0 0 -.3" size=".02" mass=".5"/></body></worldbody>
<actuator><position name="servo" joint="hinge" kp="10" kv="0.2"/></actuator></mujoco>"""
#: The rotor is the first hinge's armature; a body may carry two coaxial hinges.
LASH = '<joint name="lash" axis="0 1 0" range="{low} {high}" limited="true" damping="0.001" solreflimit="0.004 1"/>'


@dataclass(frozen=True)
class Truth:
    """A robot of the model's class, SI units."""

    viscous: float
    coulomb: float
    armature: float
    kp: float
    command_delay: float
    encoder_noise: float


def log(truth: Truth, kind: str, motion: int, seed: int) -> np.ndarray:
    """Positions (T,) [rad, or what the log takes for it] that such a robot logs on one of the motions."""
    rng = np.random.default_rng([seed, motion])
    start = rng.normal(0.0, START)
    limit = SATURATION * max(_peak(truth, m, start) for m in range(len(MOTIONS))) if kind == "saturation" else None
    mass = 1 + PAYLOAD if kind == "payload" and motion == 1 else 1.0
    angle = _swing(truth, motion, start, backlash=kind == "backlash", lugre=kind == "lugre", limit=limit, mass=mass)[0]
    read = angle + truth.encoder_noise * rng.standard_normal(len(angle))
    if kind == "lost_samples":
        held = rng.random(len(read)) < LOST
        read = read[np.maximum.accumulate(np.where(held, 0, np.arange(len(read))))]
    return {"swapped_sign": -read, "degrees": np.degrees(read)}.get(kind, read)


def _peak(truth: Truth, motion: int, start: np.ndarray) -> float:
    return float(np.abs(_swing(truth, motion, start)[1]).max())


def _command(truth: Truth, motion: int) -> np.ndarray:
    """Mean of the delayed command over each step, held between its samples: what the model does with it."""
    edges = np.arange(len(TIME) + 1) * STEP - truth.command_delay
    total = np.concatenate([[0.0], np.cumsum(MOTIONS[motion]) / RATE])
    at = np.append(TIME, len(TIME) / RATE)
    # before the log begins the first command was held
    integral = np.interp(edges, at, total) + MOTIONS[motion][0] * np.minimum(edges, 0.0)
    return np.diff(integral) / STEP


def _swing(
    truth: Truth, motion: int, start: np.ndarray, *, backlash: bool = False, lugre: bool = False, limit: float | None = None,
    mass: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Angle of the arm and torque of the motor, (T,) each."""
    model = _model(truth, backlash=backlash, lugre=lugre, limit=limit, mass=mass)
    data = mujoco.MjData(model)
    data.qpos[0], data.qvel[0] = start
    angle, torque = np.empty((2, len(TIME)))
    friction = _Bristles(truth) if lugre else None
    for k, goal in enumerate(_command(truth, motion)):
        # sample k is what the sensors read before step k; a body with two hinges turns by their sum
        angle[k] = data.qpos.sum()
        data.ctrl[0] = goal
        for _ in range(SUBSTEPS if friction else 1):
            if friction:
                data.qfrc_applied[0] = -friction.torque(float(data.qvel[0]), model.opt.timestep)
            mujoco.mj_step(model, data)
        torque[k] = data.actuator_force[0]
    return angle, torque


def _model(truth: Truth, *, backlash: bool, lugre: bool, limit: float | None, mass: float) -> mujoco.MjModel:
    lash = LASH.format(low=-math.degrees(BACKLASH) / 2, high=math.degrees(BACKLASH) / 2) if backlash else ""
    model = mujoco.MjModel.from_xml_string(XML.format(step=STEP / SUBSTEPS if lugre else STEP, lash=lash))
    model.dof_damping[0], model.dof_armature[0] = truth.viscous, truth.armature
    model.dof_frictionloss[0] = 0.0 if lugre else truth.coulomb
    model.actuator_gainprm[0, 0], model.actuator_biasprm[0, 1] = truth.kp, -truth.kp
    if limit is not None:
        model.actuator_forcelimited[0], model.actuator_forcerange[0] = 1, (-limit, limit)
    arm = model.body("arm").id
    model.body_mass[arm] *= mass
    model.body_inertia[arm] *= mass
    mujoco.mj_setConst(model, mujoco.MjData(model))
    return model


class _Bristles:
    """LuGre's state: the mean deflection of the bristles [rad]."""

    def __init__(self, truth: Truth) -> None:
        self.coulomb, self.deflection = truth.coulomb, 0.0
        self.stiffness = truth.coulomb / BRISTLE
        self.damping = 2 * math.sqrt(self.stiffness * truth.armature)

    def torque(self, speed: float, step: float) -> float:
        """Friction torque [N m] at a joint speed [rad/s], one step later."""
        level = self.coulomb * (1 + (STICTION - 1) * math.exp(-((speed / STRIBECK) ** 2)))
        # backward Euler: stable however fast the joint turns
        after = (self.deflection + step * speed) / (1 + step * abs(speed) * self.stiffness / level)
        rate, self.deflection = (after - self.deflection) / step, after
        return self.stiffness * after + self.damping * rate
