"""One truth about the world per family: what a textbook, or the firmware's own law, says the robot does."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from sbical.recordings.experiment import Experiment
from sbical.recordings.held_signal import HeldSignal
from sbical.simulation.families.voltage_servo import ERROR_GAIN
from sbical.simulation.simulator import Simulator

MakeExperiment = Callable[..., Experiment]
MakeSimulator = Callable[[str, str], Simulator]

MASS, COM, INERTIA, STEP = 0.5, 0.1, 1e-3, 0.001
#: About the hinge, by Steiner's theorem.
TOTAL = INERTIA + MASS * COM**2

POSITION = '<position name="drive" joint="hinge" kp="1" forcerange="-50 50"/>'
MOTOR = '<motor name="drive" joint="hinge"/>'


def robot(
    make: MakeSimulator, family: str, target: str, roles: Mapping[str, str | float], *, actuator: str = MOTOR, gravity: float = 0.0
) -> Simulator:
    """An arm on a hinge with one effect; q = 0 hangs down."""
    xml = f"""<mujoco><option timestep="{STEP}" integrator="implicitfast" gravity="0 0 {-gravity}"/>
      <worldbody><body name="arm"><joint name="hinge" axis="0 1 0"/>
      <inertial pos="0 0 {-COM}" mass="{MASS}" diaginertia="{INERTIA} {INERTIA} {INERTIA}"/></body></worldbody>
      <actuator>{actuator}</actuator>
      <sensor><jointpos name="angle" joint="hinge"/><jointvel name="rate" joint="hinge"/></sensor></mujoco>"""
    unit = "N m" if actuator == MOTOR else "rad"
    lines = "".join(f'{role} = "{v}"\n' if isinstance(v, str) else f"{role} = {v}\n" for role, v in roles.items())
    toml = f"""
[commands.drive]
actuator = "drive"
column = "drive"
unit = "{unit}"
[measurements.position]
sensor = "angle"
column = "position"
unit = "rad"
[measurements.velocity]
sensor = "rate"
column = "velocity"
unit = "rad/s"
[effects.it]
family = "{family}"
target = "{target}"
{lines}"""
    return make(toml, xml)


def moved(
    simulator: Simulator, make: MakeExperiment, theta: Sequence[Sequence[float]], *, noise: bool = False, samples: int = 400, **plan: object
) -> np.ndarray:
    """Position and velocity at every step, (n, samples, 2), with no command unless one is given."""
    experiment = make(simulator, time=np.arange(samples) * STEP, seconds=(samples * STEP,), **{"command": 0.0, **plan})
    simulated = simulator.simulate(np.array(theta), experiment, np.arange(len(theta)), noise=noise)
    assert simulated.ok.all()
    return simulated.values[0]


def swings(q: float, v: float, torque: Callable[[float, float, int], float], inertia: float, damping: float) -> np.ndarray:
    """Positions by hand: velocity first, its damping implicit, then position."""
    out = np.empty(400)
    for k in range(400):
        out[k] = q
        v += STEP * (torque(q, v, k) - damping * v) / (inertia + STEP * damping)
        q += STEP * v
    return out


def test_damping_lets_speed_decay_exponentially(make_simulator: MakeSimulator, make_experiment: MakeExperiment) -> None:
    simulator = robot(make_simulator, "joint_damping", "hinge", {"damping": "d"})
    (path,) = moved(simulator, make_experiment, [[0.02]], start=(0.0, 2.0))
    time = np.arange(400) * STEP
    np.testing.assert_allclose(path[:, 1], 2.0 * np.exp(-0.02 / TOTAL * time), rtol=3e-3)


def test_dry_friction_stops_at_the_distance_that_its_work_allows(make_simulator: MakeSimulator, make_experiment: MakeExperiment) -> None:
    simulator = robot(make_simulator, "joint_friction", "hinge", {"frictionloss": "f"})
    (path,) = moved(simulator, make_experiment, [[0.05]], start=(0.0, 1.0))
    stop = TOTAL * 1.0 / 0.05
    time = np.arange(400) * STEP
    moving = time < 0.8 * stop
    np.testing.assert_allclose(path[moving, 1], 1.0 - 0.05 / TOTAL * time[moving], atol=5e-3)
    assert path[-1, 0] == pytest.approx(TOTAL * 1.0**2 / 2 / 0.05, rel=0.03)
    assert abs(path[-1, 1]) < 1e-3


def test_friction_takes_its_share_of_the_load(make_simulator: MakeSimulator, make_experiment: MakeExperiment) -> None:
    simulator = robot(make_simulator, "load_friction", "hinge", {"coulomb": "c", "load": "share"})
    paths = moved(simulator, make_experiment, [[0.02, 0.0], [0.02, 0.25]], command=0.2, start=(0.0, 0.0))
    expected = [(0.2 * (1 - share) - 0.02) / TOTAL * 399 * STEP for share in (0.0, 0.25)]
    np.testing.assert_allclose(paths[:, -1, 1], expected, rtol=0.01)


def test_a_gear_that_holds_a_weight_carries_it_twice(make_simulator: MakeSimulator, make_experiment: MakeExperiment) -> None:
    """Held still by its motor, the teeth press with the motor's torque against gravity's: so much more it takes to move on."""
    simulator = robot(make_simulator, "load_friction", "hinge", {"coulomb": "c", "load": "share"}, gravity=9.81)
    weight = MASS * 9.81 * COM * math.sin(0.5)
    shares = (0.02, 0.08)
    paths = moved(simulator, make_experiment, [[1e-4, s] for s in shares], command=1.1 * weight, start=(0.5, 0.0), samples=100)
    # 10 % too much torque; friction holds against it where it is more than that of about twice the weight
    assert paths[0, -1, 0] > 0.505
    assert abs(paths[1, -1, 0] - 0.5) < 0.002


def test_stribeck_friction_fades_with_speed(make_simulator: MakeSimulator, make_experiment: MakeExperiment) -> None:
    roles: dict[str, str | float] = {"coulomb": 0.0, "load": 0.0, "stribeck": "s", "stribeck_velocity": "fades"}
    simulator = robot(make_simulator, "load_friction", "hinge", roles)
    (path,) = moved(simulator, make_experiment, [[0.05, 0.5]], start=(0.0, 1.0))
    # I dv/dt = -s exp(-v / fades)
    inside = np.exp(1.0 / 0.5) - 0.05 * np.arange(400) * STEP / (TOTAL * 0.5)
    moving = inside > 1.5
    assert moving.sum() > 100
    np.testing.assert_allclose(path[moving, 1], 0.5 * np.log(inside[moving]), atol=5e-3)


def test_armature_adds_to_the_inertia(make_simulator: MakeSimulator, make_experiment: MakeExperiment) -> None:
    simulator = robot(make_simulator, "armature", "hinge", {"armature": "a"})
    paths = moved(simulator, make_experiment, [[0.0], [0.004], [0.03]], command=0.1, start=(0.0, 0.0))
    expected = [0.1 / (TOTAL + a) * 399 * STEP for a in (0.0, 0.004, 0.03)]
    np.testing.assert_allclose(paths[:, -1, 1], expected, rtol=1e-9)


def test_mass_scales_the_whole_inertia(make_simulator: MakeSimulator, make_experiment: MakeExperiment) -> None:
    simulator = robot(make_simulator, "body_mass", "arm", {"mass": "m"})
    paths = moved(simulator, make_experiment, [[MASS], [2 * MASS]], command=0.1, start=(0.0, 0.0))
    np.testing.assert_allclose(paths[:, -1, 1], [0.1 / TOTAL * 399 * STEP, 0.1 / (2 * TOTAL) * 399 * STEP], rtol=1e-9)


def test_inertia_sets_the_period_of_a_pendulum(make_simulator: MakeSimulator, make_experiment: MakeExperiment) -> None:
    simulator = robot(make_simulator, "inertia", "arm", {"mass": "m", "com_distance": "c", "inertia": "i"}, gravity=9.81)
    for m, c, i in ((0.5, 0.1, 1e-3), (0.8, 0.15, 4e-3), (0.3, 0.06, 5e-3)):
        (path,) = moved(simulator, make_experiment, [[m, c, i]], samples=1200, start=(0.01, 0.0))
        crossings = np.flatnonzero(np.diff(np.sign(path[:, 0])))
        at = crossings + path[crossings, 0] / (path[crossings, 0] - path[crossings + 1, 0])
        assert 2 * (at[1] - at[0]) * STEP == pytest.approx(2 * math.pi * math.sqrt((i + m * c**2) / (m * 9.81 * c)), rel=2e-3)


def test_position_servo_is_a_damped_spring(make_simulator: MakeSimulator, make_experiment: MakeExperiment) -> None:
    simulator = robot(make_simulator, "position_servo", "drive", {"kp": "kp", "kv": "kv"}, actuator=POSITION)
    (path,) = moved(simulator, make_experiment, [[3.0, 0.05]], command=0.8)
    np.testing.assert_allclose(path[:, 0], swings(0.3, 0.0, lambda q, v, k: 3.0 * (0.8 - q), TOTAL, 0.05), atol=1e-10)


def duty(gain: float, goal: float, q: float) -> float:
    return gain * ERROR_GAIN * (goal - q)


@pytest.mark.parametrize("motor", [(0.4, 3.0, 1000.0, 5.0), (0.3, 4.0, 900.0, 7.4)])
@pytest.mark.parametrize("start", [(0.3, 0.0), (-0.5, 3.0)])
def test_voltage_servo_is_the_firmware_law(
    make_simulator: MakeSimulator, make_experiment: MakeExperiment, start: tuple[float, float], motor: tuple[float, float, float, float]
) -> None:
    roles: dict[str, str | float] = {"torque_constant": "kt", "resistance": "r", "gain": "gain", "supply": "supply"}
    simulator = robot(make_simulator, "voltage_servo", "drive", roles, actuator=POSITION, gravity=9.81)
    clock = np.arange(-0.1, 0.5, 0.05)
    goal = HeldSignal(clock, 0.7 * np.sin(10 * clock))
    held = goal.averages(np.arange(401) * STEP)
    (path,) = moved(simulator, make_experiment, [motor], command=goal, start=start)
    kt, r, gain, supply = motor

    def torque(q: float, v: float, k: int) -> float:
        volts = min(max(duty(gain, held[k], q), -1.0), 1.0) * supply
        return kt / r * volts - MASS * 9.81 * COM * math.sin(q)

    # the back-EMF, kt² / R per unit of speed, is integrated implicitly as damping
    np.testing.assert_allclose(path[:, 0], swings(*start, torque, TOTAL, kt**2 / r), atol=1e-9)
    saturated = np.mean(np.abs(duty(gain, 1.0, 0.0) * (held - path[:, 0])) > 1)
    assert 0.1 < saturated < 0.95, "both branches of the clip were visited"


def test_voltage_servo_cannot_outrun_its_supply(make_simulator: MakeSimulator, make_experiment: MakeExperiment) -> None:
    roles: dict[str, str | float] = {"torque_constant": "kt", "resistance": 2.0, "gain": 5000.0, "supply": 6.0}
    simulator = robot(make_simulator, "voltage_servo", "drive", roles, actuator=POSITION)
    (path,) = moved(simulator, make_experiment, [[0.5]], command=1e3, samples=800)
    # no-load speed: the back-EMF equals the supply
    assert path[-1, 1] == pytest.approx(6.0 / 0.5, rel=1e-4)


def test_force_limit_caps_the_acceleration(make_simulator: MakeSimulator, make_experiment: MakeExperiment) -> None:
    simulator = robot(make_simulator, "force_limit", "drive", {"limit": "l"}, actuator=POSITION.replace('kp="1"', 'kp="1000"'))
    paths = moved(simulator, make_experiment, [[0.02], [0.04]], command=9.0, start=(0.0, 0.0), samples=100)
    np.testing.assert_allclose(paths[:, -1, 1], np.array([0.02, 0.04]) / TOTAL * 99 * STEP, rtol=1e-9)


def test_delay_is_continuous_below_the_timestep(make_simulator: MakeSimulator, make_experiment: MakeExperiment) -> None:
    simulator = robot(make_simulator, "command_delay", "drive", {"delay": "delay"})
    clock = np.arange(-0.5, 0.5, 0.01)
    torque = HeldSignal(clock, 0.1 * np.sign(np.sin(25 * clock + 0.4)))
    delays = np.linspace(0.004, 0.008, 41)
    paths = moved(simulator, make_experiment, delays[:, None].tolist(), command=torque)[:, :, 0]
    assert len(np.unique(paths[:, -1])) == 41
    # evenly spaced delays move the end evenly: no staircase
    steps = np.diff(paths[:, -1])
    assert np.abs(steps).max() < 1.5 * np.abs(steps).mean()


def test_delay_of_zero_is_no_delay_and_of_steps_is_a_shift(make_simulator: MakeSimulator, make_experiment: MakeExperiment) -> None:
    delayed = robot(make_simulator, "command_delay", "drive", {"delay": "delay"})
    plain = robot(make_simulator, "joint_damping", "hinge", {"damping": "d"})
    clock = np.arange(-0.5, 0.5, 0.01)
    torque = HeldSignal(clock, 0.1 * np.sin(25 * clock))
    later = HeldSignal(clock + 0.03, torque.value)
    paths = moved(delayed, make_experiment, [[0.0], [0.03]], command=torque)
    np.testing.assert_array_equal(paths[0], moved(plain, make_experiment, [[0.0]], command=torque)[0])
    np.testing.assert_allclose(paths[1], moved(plain, make_experiment, [[0.0]], command=later)[0], atol=1e-9)


def test_bias_shifts_the_reading_and_where_the_arm_really_was(make_simulator: MakeSimulator, make_experiment: MakeExperiment) -> None:
    simulator = robot(make_simulator, "sensor_bias", "position", {"bias": "b"}, gravity=9.81)
    paths = moved(simulator, make_experiment, [[0.0], [0.05]], start=(0.3, 0.0))[:, :, 0]
    np.testing.assert_allclose(paths[:, 0], [0.3, 0.3], atol=1e-12)
    # the second arm truly starts at 0.25 rad and reads 0.05 rad more than it is, all along
    (true,) = moved(simulator, make_experiment, [[0.0]], start=(0.25, 0.0))[:, :, 0]
    np.testing.assert_allclose(paths[1], true + 0.05, atol=1e-12)


def test_noise_is_white_and_gaussian(make_simulator: MakeSimulator, make_experiment: MakeExperiment) -> None:
    simulator = robot(make_simulator, "sensor_noise", "position", {"std": "s"})
    paths = moved(simulator, make_experiment, [[0.01]] * 50, noise=True, start=(0.3, 0.0))
    noise = paths[:, :, 0] - 0.3
    assert noise.std() == pytest.approx(0.01, rel=0.02)
    assert abs((noise[:, 1:] * noise[:, :-1]).mean()) < 0.02 * 0.01**2 * math.sqrt(2)
    assert (noise**4).mean() / noise.var() ** 2 == pytest.approx(3.0, abs=0.15)
    assert np.abs(np.corrcoef(noise[:10]) - np.eye(10)).max() < 0.25, "rows draw from streams of their own"
    np.testing.assert_array_equal(paths[:, :, 1], 0.0)


def test_quantisation_rounds_to_the_resolution(make_simulator: MakeSimulator, make_experiment: MakeExperiment) -> None:
    simulator = robot(make_simulator, "sensor_quantisation", "position", {"resolution": "q"}, gravity=9.81)
    fine, coarse = (moved(simulator, make_experiment, [[0.02]], noise=n)[0, :, 0] for n in (False, True))
    np.testing.assert_allclose(coarse / 0.02, np.round(coarse / 0.02), atol=1e-9)
    assert np.abs(coarse - fine).max() <= 0.01 + 1e-12
    assert len(np.unique(coarse)) > 10


def test_sensor_adds_noise_before_it_rounds(make_simulator: MakeSimulator, make_experiment: MakeExperiment, servo: Simulator) -> None:
    theta = np.zeros((20, len(servo.parameters)))
    for name, value in {"torque_constant": 0.5, "resistance": 3.5, "bias": 0.02, "noise": 0.003}.items():
        theta[:, servo.parameters.index(name)] = value
    experiment = make_experiment(servo, constants={"kp": 200.0, "supply": 5.0})
    read = servo.simulate(theta, experiment, np.arange(20)).values[0]
    np.testing.assert_allclose(read / 0.001534, np.round(read / 0.001534), atol=1e-9)
    assert read[:, 0].std() > 0.002


def test_disturbance_has_its_spread_and_its_correlation_time(make_simulator: MakeSimulator, make_experiment: MakeExperiment) -> None:
    simulator = robot(make_simulator, "disturbance_torque", "hinge", {"std": "s", "correlation_time": "t"})
    paths = moved(simulator, make_experiment, [[0.02, 0.05]] * 100, noise=True, samples=1200, start=(0.0, 0.0))
    # without gravity or friction the arm's own acceleration is the torque that acted
    torque = np.diff(paths[:, :, 1], axis=1) / STEP * TOTAL
    assert torque.std() == pytest.approx(0.02, rel=0.05)
    # stationary from the first step on: no ramp from zero
    assert torque[:, 0].std() == pytest.approx(0.02, rel=0.2)
    for lag in (0.025, 0.05, 0.1):
        k = round(lag / STEP)
        correlation = (torque[:, k:] * torque[:, :-k]).mean() / (torque**2).mean()
        assert correlation == pytest.approx(math.exp(-lag / 0.05), abs=0.06)
    assert moved(simulator, make_experiment, [[0.0, 0.05]], noise=True, start=(0.0, 0.0)).max() == 0.0


def test_disturbance_does_not_disturb_the_command(make_simulator: MakeSimulator, make_experiment: MakeExperiment) -> None:
    simulator = robot(make_simulator, "disturbance_torque", "hinge", {"std": "s"})
    paths = moved(simulator, make_experiment, [[0.001]] * 200, noise=True, command=0.05, start=(0.0, 0.0))
    assert paths[:, -1, 1].mean() == pytest.approx(0.05 / TOTAL * 399 * STEP, rel=0.01)
