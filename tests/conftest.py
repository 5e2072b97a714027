"""What all tests share: one thread for torch and one for BLAS, one local Dask cluster for the whole session, and two tiny robots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from distributed import Client
from threadpoolctl import threadpool_limits

from sbical.recordings.experiment import Experiment, Window
from sbical.recordings.held_signal import HeldSignal
from sbical.recordings.initial_state import InitialState
from sbical.recordings.recording import Recording
from sbical.simulation.cluster import cluster
from sbical.simulation.simulator import Simulator
from sbical.simulation.simulator_toml import parse

torch.set_num_threads(1)  # small networks are faster, and sums repeatable, on one thread
threadpool_limits(1, user_api="blas")  # two processes of tests, and their workers, share the cores already


@pytest.fixture(scope="session")
def client() -> Iterator[Client]:
    """A client of two single-threaded worker processes, started by spawn, without a dashboard."""
    with cluster(None, workers=2) as opened:
        yield opened


SERVO_XML = """
<mujoco model="servo">
  <option timestep="0.002" integrator="implicitfast"/>
  <worldbody><body name="arm">
    <joint name="hinge" axis="0 1 0" solreffriction="0.004 1"/>
    <inertial pos="0 0 -0.1" mass="0.49" diaginertia="1e-6 1e-6 1e-6"/>
  </body></worldbody>
  <actuator><position name="servo" joint="hinge" kp="1" forcerange="-1 1"/></actuator>
  <sensor><jointpos name="angle" joint="hinge"/></sensor>
</mujoco>
"""

SERVO_TOML = """
model = "model.xml"
[commands.goal]
actuator = "servo"
column = "goal_position"
unit = "rad"
[measurements.position]
sensor = "angle"
column = "position"
unit = "rad"
resolution = 0.001534
[conditions.kp]
unit = "1"
[conditions.supply]
column = "input_volts"
unit = "V"
[effects.motor]
family = "voltage_servo"
target = "servo"
torque_constant = "torque_constant"
resistance = "resistance"
gain = { condition = "kp" }
supply = { condition = "supply" }
[effects.viscous]
family = "joint_damping"
target = "hinge"
damping = "viscous"
[effects.coulomb]
family = "joint_friction"
target = "hinge"
frictionloss = "coulomb"
[effects.rotor]
family = "armature"
target = "hinge"
armature = "armature"
[effects.latency]
family = "command_delay"
target = "goal"
delay = "delay"
[effects.offset]
family = "sensor_bias"
target = "position"
bias = "bias"
[effects.noise]
family = "sensor_noise"
target = "position"
std = "noise"
[effects.rounding]
family = "sensor_quantisation"
target = "position"
[effects.push]
family = "disturbance_torque"
target = "hinge"
std = "push"
"""

PENDULUM_XML = """
<mujoco model="pendulum">
  <option timestep="0.002" integrator="implicitfast"/>
  <worldbody><body name="arm">
    <joint name="hinge" axis="0 1 0"/>
    <inertial pos="0 0 -0.1" mass="0.5" diaginertia="1e-3 1e-3 1e-3"/>
  </body></worldbody>
  <actuator><motor name="motor" joint="hinge"/></actuator>
  <sensor><jointpos name="angle" joint="hinge"/><jointvel name="rate" joint="hinge"/></sensor>
</mujoco>
"""

PENDULUM_TOML = """
model = "model.xml"
[commands.torque]
actuator = "motor"
column = "torque"
unit = "N m"
[measurements.position]
sensor = "angle"
column = "position"
unit = "rad"
[measurements.velocity]
sensor = "rate"
column = "velocity"
unit = "rad/s"
[effects.viscous]
family = "joint_damping"
target = "hinge"
damping = "viscous"
"""

#: A plausible draw for the servo, in its parameters' order.
SERVO_THETA = {
    "torque_constant": 0.5, "resistance": 3.5, "viscous": 0.004, "coulomb": 0.01, "armature": 0.002, "delay": 0.005, "bias": 0.02,
    "noise": 0.002, "push": 0.02,
}  # fmt: skip


@pytest.fixture(scope="session")
def servo_toml() -> str:
    return SERVO_TOML


@pytest.fixture(scope="session")
def servo_xml() -> str:
    return SERVO_XML


@pytest.fixture(scope="session")
def pendulum_toml() -> str:
    return PENDULUM_TOML


@pytest.fixture(scope="session")
def pendulum_xml() -> str:
    return PENDULUM_XML


@pytest.fixture(scope="session")
def make_simulator() -> Callable[[str, str], Simulator]:
    """Simulator from the texts of a ``simulator.toml`` and an MJCF, without files."""
    return lambda toml, xml: parse(toml, Path("no-such-folder"), name="tiny", xml=xml)


@pytest.fixture(scope="session")
def servo(make_simulator: Callable[[str, str], Simulator]) -> Simulator:
    """A servo whose position follows a goal; kp is known per recording, the supply per sample or per recording."""
    return make_simulator(SERVO_TOML, SERVO_XML)


@pytest.fixture(scope="session")
def pendulum(make_simulator: Callable[[str, str], Simulator]) -> Simulator:
    """A pendulum driven by a motor, with one unknown."""
    return make_simulator(PENDULUM_TOML, PENDULUM_XML)


@pytest.fixture(scope="session")
def servo_theta(servo: Simulator) -> Callable[[int], np.ndarray]:
    """``n`` draws (n, 9) around a plausible one."""

    def draws(n: int) -> np.ndarray:
        return servo.parameters.vector(SERVO_THETA) * np.random.default_rng(0).uniform(0.7, 1.4, (n, len(servo.parameters)))

    return draws


@pytest.fixture(scope="session")
def make_experiment() -> Callable[..., Experiment]:
    """An experiment written by hand: one window per duration, the same command for every actuator."""

    def make(
        simulator: Simulator,
        *,
        seconds: Sequence[float] = (0.4,),
        time: np.ndarray | None = None,
        command: HeldSignal | float | None = None,
        constants: Mapping[str, float] | None = None,
        signals: Mapping[str, HeldSignal] | None = None,
        start: tuple[float, float] = (0.3, 0.0),
        spread: tuple[float, float] = (0.0, 0.0),
    ) -> Experiment:
        windows = []
        for k, duration in enumerate(seconds):
            clock = np.arange(-0.5, duration + 0.1, 0.02)
            swing = HeldSignal(clock, 0.5 * np.sin(7 * clock + k)) if command is None else command
            signal = swing if isinstance(swing, HeldSignal) else HeldSignal(np.zeros(1), np.array([swing]))
            at = np.arange(0.0, duration, 0.01) if time is None else time
            windows.append(
                Window(
                    recording=f"run{k}", start=0.0, time=at, observed=np.zeros((len(at), len(simulator.columns.measurements))),
                    commands=dict.fromkeys(simulator.commands, signal), signals=dict(signals or {}), constants=dict(constants or {}),
                    initial=InitialState(np.array(start), np.diag(spread)), opens=True,
                )
            )  # fmt: skip
        measured = simulator.columns.measurements
        return Experiment(tuple(windows), tuple(c.name for c in measured), tuple(c.si for c in measured), simulator.layout)

    return make


@pytest.fixture(scope="session")
def make_recording() -> Callable[..., Recording]:
    """A recording from ``{stream: (time, value)}`` and what is known of the whole run."""

    def make(name: str, streams: Mapping[str, tuple[np.ndarray, np.ndarray]], conditions: Mapping[str, float] | None = None) -> Recording:
        nodes = {"/": xr.Dataset(attrs=dict(conditions or {}))}
        nodes |= {stream: xr.Dataset({"value": ("time", value)}, coords={"time": time}) for stream, (time, value) in streams.items()}
        return Recording(name, xr.DataTree.from_dict(nodes, name=name), (), f"{name}.csv")

    return make
