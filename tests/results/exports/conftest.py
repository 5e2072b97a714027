"""A small arm with effects on model fields and on the signal path, calibrated by made-up draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sbical.results.randomization import Randomization
from sbical.simulation.simulator import Simulator
from sbical.simulation.simulator_toml import parse

ARM = """
<mujoco model="arm">
  <compiler angle="radian"/>
  <default><default class="light"><joint damping="0.123456789"/></default></default>
  <worldbody>
    <body name="upper" euler="0.1 0 0">
      <joint name="q1" axis="0 1 0" class="light"/>
      <geom name="rod" type="capsule" fromto="0 0 0 0 0 -0.1" size="0.005" mass="0.05"/>
      <body name="lower" pos="0 0 -0.1">
        <joint name="q2" axis="0 1 0"/>
        <inertial pos="0 0 -0.05" mass="0.1" diaginertia="1e-4 1e-4 1e-4"/>
      </body>
    </body>
  </worldbody>
  <actuator><position name="servo" joint="q1" kp="3" forcerange="-1 1"/></actuator>
  <sensor><jointpos name="angle" joint="q1"/></sensor>
</mujoco>
"""

TOML = """
timestep = 0.004
[commands.goal]
actuator = "servo"
column = "goal"
unit = "rad"
[measurements.position]
sensor = "angle"
column = "position"
unit = "rad"
[conditions.supply]
column = "volts"
unit = "V"
[effects.motor]
family = "voltage_servo"
target = "servo"
torque_constant = "kt"
resistance = 2.0
gain = 100
supply = { condition = "supply" }
[effects.tip]
family = "inertia"
target = "lower"
mass = "tip_mass"
com_distance = "reach"
[effects.lag]
family = "command_delay"
target = "goal"
delay = "lag"
[effects.push]
family = "disturbance_torque"
target = "q1"
std = 0.01
correlation_time = 0.1
"""


@pytest.fixture
def arm(tmp_path_factory: pytest.TempPathFactory) -> Simulator:
    """A position servo that swings two links."""
    folder: Path = tmp_path_factory.mktemp("arm")
    return parse(TOML, folder, name="arm", xml=ARM)


@pytest.fixture
def draws() -> np.ndarray:
    """(400, 4): kt and tip_mass strongly correlated."""
    rng = np.random.default_rng(3)
    z = rng.normal(size=(400, 4))
    z[:, 1] = 0.95 * z[:, 0] + 0.3 * z[:, 1]
    return np.array([1 / 3, 0.2, 0.07, 0.005]) * np.exp(0.1 * z)


@pytest.fixture
def randomization(arm: Simulator, draws: np.ndarray) -> Randomization:
    """A calibration that passed."""
    return Randomization.of(arm, draws, conditions={"supply": 7.4}, provenance={"seed": 0, "timestep": 0.004})


@pytest.fixture
def failed(arm: Simulator, draws: np.ndarray) -> Randomization:
    """The same, after a failed verdict."""
    return Randomization.of(arm, draws, status="fail", reasons=("support: outside -- far",), conditions={"supply": 7.4})
