"""Stand-in robots: they make the example recordings of the catalog, and are deliberately outside the models that sbical fits.

Simulated, never real. Each differs from its catalog model the way a robot does: another timestep and integrator, friction
with a Stribeck peak that grows with load, delays and lags that no column shows, a firmware loop on a quantised encoder, a
supply that sags, a torque reading with a gain error, jittered timestamps. Written on mujoco alone, without sbical.

    python benchmarks/standins.py            # write simulators/*/example again, the same bytes every time
    python benchmarks/standins.py --json     # and say so as one JSON object in the last line
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import mujoco
import numpy as np

STEP = 0.0005
ENCODER = 2 * math.pi / 4096
DUTY_PER_RAD = 4096 / (2 * math.pi) / (256 * 885)
ARM, MASS, GRAVITY = 0.1, 0.49, 9.81
DRIVE_ENCODER, DRIVE_TORQUE = 25 / 65535, 24 / 4095


@dataclass(frozen=True)
class Friction:
    """Dry friction [N m]: ``coulomb + stribeck exp(-|speed| / speed0) + load |torque through the gears|``."""

    coulomb: float
    stribeck: float
    speed0: float
    load: float

    def torque(self, speed: float, load: float) -> float:
        """Dry friction at a joint speed [rad/s] under a load [N m]."""
        return self.coulomb + self.stribeck * math.exp(-abs(speed) / self.speed0) + self.load * abs(load)


@dataclass(frozen=True)
class Servo:
    """One unit of a servo with a mass on its arm: SI units, latency [s], offset [rad], line resistance [ohm]."""

    friction: Friction
    torque_constant: float = 0.36
    resistance: float = 4.3
    viscous: float = 0.006
    armature: float = 0.0019
    latency: float = 0.0075
    offset: float = 0.021
    line: float = 0.35
    battery: float = 7.5


UNIT1 = Servo(Friction(0.010, 0.006, 0.3, 0.05))
GEARED = replace(UNIT1, friction=Friction(0.008, 0.010, 0.3, 0.26))
UNIT2 = replace(UNIT1, friction=Friction(0.020, 0.008, 0.4, 0.08), resistance=4.7, viscous=0.009, latency=0.0065, offset=-0.012)

SERVO_XML = f"""
<mujoco><option timestep="{STEP}" integrator="Euler"/><worldbody><body>
<joint name="hinge" axis="0 1 0" solreffriction="0.002 1"/>
<geom type="capsule" fromto="0 0 0 0 0 -{ARM}" size="0.004" mass="0.008"/>
<geom type="sphere" pos="0 0 -{ARM}" size="0.024" mass="{MASS}"/></body></worldbody>
<actuator><motor joint="hinge"/></actuator></mujoco>"""

LINKS_XML = f"""
<mujoco><option timestep="{STEP}" integrator="Euler"/>
<default><joint axis="0 1 0" solreffriction="0.002 1" armature="0.0026" damping="0.004"/></default><worldbody>
<body><joint name="q1"/><inertial pos="0 0 -0.275" mass="0.62" diaginertia="0.0058 0.0058 0.0058"/>
<body pos="0 0 -0.3"><joint name="q2"/><inertial pos="0 0 -0.18" mass="0.58" diaginertia="0.0042 0.0042 0.0042"/></body>
</body></worldbody><actuator><motor joint="q1"/><motor joint="q2"/></actuator></mujoco>"""


def log_times(rng: np.random.Generator, seconds: float, period: float, jitter: float, hiccup: float) -> np.ndarray:
    """Times [s] of a logging loop: jittered, and one cycle in fifty late by up to ``hiccup``."""
    count = int(seconds / period)
    late = np.where(rng.random(count) < 0.02, rng.uniform(0, hiccup, count), 0.0)
    times = 0.0035 + np.cumsum(period + jitter * rng.uniform(-1, 1, count) + late)
    return times[times < seconds].round(6)


def servo_goal(run: int) -> Callable[[float], float]:
    """Motion of a run [rad]: two sines, then smooth steps that are held, so that friction shows at speed and at rest."""
    slow, fast = (0.9, 0.7, 0.8)[run], (2.3, 2.9, 2.0)[run]
    amplitude = (1.3, 0.8, 0.7)[run]
    targets = ((0.0, 1.5, -0.6, 0.9), (0.0, -1.0, 0.5, -0.3), (0.0, 0.8, -0.9, 0.4))[run]

    def goal(t: float) -> float:
        blend = min(max((t - 1.2) / 0.3, 0.0), 1.0)
        ease = math.sin(math.pi / 2 * min(t / 0.3, 1.0)) ** 2
        sines = amplitude * ease * (0.7 * math.sin(2 * math.pi * slow * t) + 0.3 * math.sin(2 * math.pi * fast * t))
        k = min(max((t - 1.2) / 0.45, 0.0), 2.999)
        s = min((k - int(k)) / 0.6, 1.0)
        held = targets[int(k)] + (targets[int(k) + 1] - targets[int(k)]) * s * s * (3 - 2 * s)
        return (1 - blend) * sines + blend * held

    return goal


def swing_servo(unit: Servo, kp: int, run: int, seed: int, seconds: float = 2.5) -> dict[str, np.ndarray]:
    """Columns of one servo log, named and scaled like the logs of a Dynamixel XL330."""
    rng = np.random.default_rng(seed)
    model = mujoco.MjModel.from_xml_string(SERVO_XML)
    model.dof_armature[0], model.dof_damping[0] = unit.armature, unit.viscous
    data = mujoco.MjData(model)
    mujoco.mj_setConst(model, data)
    times, goal = log_times(rng, seconds, 0.0053, 0.0001, 0.003), servo_goal(run)
    # the firmware rounds the goal to its encoder and hears of it one bus delay later
    sent = np.array([goal(t) for t in times])
    heard = np.round(sent / ENCODER) * ENCODER
    arrival = times + unit.latency + rng.uniform(-0.0008, 0.0008, len(times))
    start = float(rng.normal(0.0, 0.004))
    data.qpos[0] = start
    rows: list[tuple[float, ...]] = []
    packet, duty, volts, shown = -1, 0.0, unit.battery, unit.battery
    for k in range(int(seconds / STEP)):
        now, angle, speed = k * STEP, float(data.qpos[0]), float(data.qvel[0])
        while packet + 1 < len(times) and arrival[packet + 1] <= now:
            packet += 1
        reading = round((angle + unit.offset + rng.normal(0.0, 4e-4)) / ENCODER) * ENCODER
        if k % 2 == 0:
            target = heard[packet] if packet >= 0 else reading
            duty = round(885 * min(max(kp * DUTY_PER_RAD * (target - reading), -1.0), 1.0)) / 885
        current = (duty * volts - unit.torque_constant * speed) / unit.resistance
        volts = unit.battery - unit.line * duty * current
        shown += (volts - shown) * STEP / 0.005
        torque = unit.torque_constant * current
        gravity = -MASS * GRAVITY * ARM * math.sin(angle)
        model.dof_frictionloss[0] = unit.friction.torque(speed, torque - gravity)
        if len(rows) < len(times) and now >= times[len(rows)]:
            i = len(rows)
            rows.append((times[i], sent[i], reading, speed, 100 * duty, shown + rng.normal(0.0, 0.03), 1.0))
        data.ctrl[0] = torque
        mujoco.mj_step(model, data)
    table = np.array(rows)
    table[:, 3] = np.round(table[:, 3] / 0.02398082) * 0.02398082
    table[:, 4], table[:, 5] = np.round(table[:, 4]), np.round(table[:, 5], 1)
    return dict(zip(("time", "goal_position", "position", "speed", "load", "input_volts", "torque_enable"), table.T, strict=True))


def link_torques(run: int) -> Callable[[float], tuple[float, float]]:
    """Commanded torques of a run [N m], near the resonances of the two links."""
    f1, f2 = ((1.1, 2.3), (0.9, 2.6), (1.3, 2.0))[run]

    def torques(t: float) -> tuple[float, float]:
        ease = min(t / 0.2, 1.0)
        first = 0.45 * math.sin(2 * math.pi * f1 * t) + 0.25 * math.sin(2 * math.pi * 0.43 * f2 * t + run)
        second = 0.45 * math.sin(2 * math.pi * (f2 + 0.2 * t) * t) + 0.2 * math.sin(2 * math.pi * 0.7 * t + 2.0 * run)
        return ease * first, ease * second

    return torques


def swing_links(run: int, seed: int, seconds: float = 2.6) -> dict[str, np.ndarray]:
    """Columns of one log of two torque-driven links, named and scaled like the logs of DFKI's double pendulum."""
    rng = np.random.default_rng(seed)
    model = mujoco.MjModel.from_xml_string(LINKS_XML)
    data = mujoco.MjData(model)
    friction = (Friction(0.105, 0.04, 0.3, 0.05), Friction(0.085, 0.03, 0.4, 0.06))
    times, command = log_times(rng, seconds, 0.002, 0.00004, 0.001), link_torques(run)
    applied, rows = np.zeros(2), []
    for k in range(int(seconds / STEP)):
        now = k * STEP
        # 3 ms of bus delay, then a current loop with a lag of 2 ms; the log shows neither
        applied += (np.array(command(max(now - 0.003, 0.0))) - applied) * STEP / 0.002
        cogging = 0.015 * np.sin(21 * data.qpos + np.array([0.4, 1.1]))
        for joint in (0, 1):
            model.dof_frictionloss[joint] = friction[joint].torque(float(data.qvel[joint]), float(applied[joint]))
        if len(rows) < len(times) and now >= times[len(rows)]:
            # the reading of current overstates the torque by 4 %
            measured = 1.04 * applied + rng.normal(0.0, 0.003, 2)
            angles = data.qpos + rng.normal(0.0, 8e-5, 2)
            speeds = data.qvel + rng.normal(0.0, 0.05, 2)
            rows.append((times[len(rows)], *angles, *speeds, *command(now), *measured))
        data.ctrl[:] = applied + cogging
        mujoco.mj_step(model, data)
    table = np.array(rows)
    for columns, unit in (((1, 2), DRIVE_ENCODER), ((3, 4), 3 / 91), ((7, 8), DRIVE_TORQUE)):
        table[:, columns] = np.round(table[:, columns] / unit) * unit
    names = ("time", "pos_meas1", "pos_meas2", "vel_meas1", "vel_meas2", "tau_con1", "tau_con2", "tau_meas1", "tau_meas2")
    return dict(zip(names, table.T, strict=True))


def text(columns: dict[str, np.ndarray], comments: list[str]) -> str:
    """CSV text with comment lines on top; times to the microsecond, the rest to six digits."""
    lines = [f"# {c}" for c in comments] + [",".join(columns)]
    # adding zero turns -0 into 0
    rows = zip(*((c + 0.0).tolist() for c in columns.values()), strict=True)
    lines.extend(f"{t:.6f}," + ",".join(f"{v:.6g}" for v in rest) for t, *rest in rows)
    return "\n".join(lines) + "\n"


def recordings(quick: bool = False) -> dict[str, str]:
    """Text of every example recording by its path in ``simulators/``; ``quick`` makes one per robot."""
    files: dict[str, str] = {}
    for number, (unit, folder) in enumerate(((UNIT1, "example/"), (UNIT2, "example/unit2/unit2_")), 1):
        for run, kp in enumerate((100, 200, 400)):
            seed = 10 * number + run
            if not quick or seed == 10:
                label = f"SIMULATED STAND-IN, not a real robot: servo unit {number}, made by benchmarks/standins.py with seed {seed}"
                files[f"servo_pendulum/{folder}kp{kp}_run{run + 1}.csv"] = text(swing_servo(unit, kp, run, seed), [label, f"kp: {kp}"])
    for run, kp in enumerate((100, 200, 400)):
        seed = 30 + run
        if not quick or not run:
            label = f"SIMULATED STAND-IN, not a real robot: servo with a heavy gear, made by benchmarks/standins.py with seed {seed}"
            files[f"geared_servo/example/kp{kp}_run{run + 1}.csv"] = text(swing_servo(GEARED, kp, run, seed), [label, f"kp: {kp}"])
    for run in range(1 if quick else 3):
        label = f"SIMULATED STAND-IN, not a real robot: double pendulum, made by benchmarks/standins.py with seed {run}"
        files[f"double_pendulum/example/run{run + 1}.csv"] = text(swing_links(run, run), [label])
    return files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--quick", action="store_true", help="one recording per robot only")
    default = Path(__file__).resolve().parents[1] / "simulators"
    parser.add_argument("--output", type=Path, default=default, help="folder to write into (default: the catalog)")
    arguments = parser.parse_args()
    began = time.perf_counter()
    files = recordings(arguments.quick)
    for name, content in files.items():
        path = arguments.output / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8", newline="\n")
        print(f"{name}: {content.count(chr(10))} lines, {len(content) / 1000:.0f} kB")
    if arguments.json:
        figures = {"files": len(files), "kilobytes": round(sum(map(len, files.values())) / 1000, 1)}
        seeds = [10, 30, 0] if arguments.quick else [10, 11, 12, 20, 21, 22, 30, 31, 32, 0, 1, 2]
        seconds = round(time.perf_counter() - began, 2)
        print(json.dumps({"benchmark": "standins", "figures": figures, "seeds": seeds, "seconds": seconds}))


if __name__ == "__main__":
    main()
