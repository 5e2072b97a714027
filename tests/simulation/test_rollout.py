"""Simulations equal a plain loop of mj_step bitwise, whatever they are simulated with, and say when they failed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace

import mujoco
import numpy as np
import pytest

from sbical.errors import SimulatorError
from sbical.recordings.experiment import Experiment, Window
from sbical.recordings.held_signal import HeldSignal
from sbical.simulation import rollout
from sbical.simulation.binding import check_writes, element_names, needs_set_const, resolve
from sbical.simulation.families.base import Write
from sbical.simulation.families.voltage_servo import ERROR_GAIN
from sbical.simulation.process import simulating
from sbical.simulation.rollout import STATUS, Trajectories
from sbical.simulation.simulator import Simulator

MakeExperiment = Callable[..., Experiment]
MakeSimulator = Callable[[str, str], Simulator]
Draws = Callable[[int], np.ndarray]

#: A power of two: sample times at its multiples need no interpolation.
STEP = 1 / 512
KNOWN = {"kp": 200.0, "supply": 5.0}


def servo_by_hand(simulator: Simulator, window: Window, theta: Mapping[str, float], supply: np.ndarray) -> np.ndarray:
    """Angle at every step of one draw, fields set one by one; ``supply`` (steps,) [V]."""
    model = copy.copy(simulator.model)
    data = mujoco.MjData(model)
    per_volt = theta["torque_constant"] * (1 / theta["resistance"])
    model.dof_damping[0] = theta["viscous"] + per_volt * theta["torque_constant"]
    model.dof_frictionloss[0] = theta["coulomb"]
    model.dof_armature[0] = theta["armature"]
    mujoco.mj_setConst(model, data)
    data.qpos[0], data.qvel[0] = window.initial.mean[0] - theta["bias"], window.initial.mean[1]
    edges = np.arange(len(supply) + 1) * simulator.timestep - theta["delay"]
    out = np.empty(len(supply))
    for k, u in enumerate(window.commands["goal"].averages(edges)):
        limit = per_volt * supply[k]
        kp = limit * (window.constants["kp"] * ERROR_GAIN)
        model.actuator_gainprm[0, 0], model.actuator_biasprm[0, 1] = kp, -kp
        model.actuator_forcerange[0] = -limit, limit
        data.ctrl[0] = u
        mujoco.mj_step(model, data)
        out[k] = data.sensordata[0] + theta["bias"]
    return out


@pytest.fixture(scope="module")
def exact_servo(make_simulator: MakeSimulator, servo_toml: str, servo_xml: str) -> Simulator:
    return make_simulator(f"timestep = {STEP}\n{servo_toml}", servo_xml)


def test_rows_equal_a_loop_of_mj_step(exact_servo: Simulator, make_experiment: MakeExperiment, servo_theta: Draws) -> None:
    time = np.arange(200) * STEP
    experiment = make_experiment(exact_servo, seconds=(0.4, 0.4), time=time, constants=KNOWN)
    theta = servo_theta(5)
    simulated = exact_servo.simulate(theta, experiment, np.arange(5), noise=False)
    assert simulated.ok.all()
    for w, window in enumerate(experiment.windows):
        for values, draw in zip(simulated.values[w], theta, strict=True):
            expected = servo_by_hand(exact_servo, window, exact_servo.parameters.mapping(draw), np.full(200, 5.0))
            np.testing.assert_array_equal(values[:, 0], expected)
    assert np.ptp(simulated.values[0][:, -1, 0]) > 0.01


def test_condition_that_changes_equals_a_loop_of_mj_step(
    exact_servo: Simulator, make_experiment: MakeExperiment, servo_theta: Draws
) -> None:
    clock = np.arange(0, 0.5, 0.01)
    supply = HeldSignal(clock, 5.0 - 4.0 * clock, "linear")
    experiment = make_experiment(exact_servo, time=np.arange(200) * STEP, constants={"kp": 200.0}, signals={"supply": supply})
    theta = servo_theta(3)
    simulated = exact_servo.simulate(theta, experiment, np.arange(3), noise=False)
    block = round(rollout.BLOCK / STEP)
    edges = np.append(np.arange(0, 208, block), 208) * STEP
    per_step = np.repeat(supply.averages(edges), block)[:200]
    for values, draw in zip(simulated.values[0], theta, strict=True):
        expected = servo_by_hand(exact_servo, experiment.windows[0], exact_servo.parameters.mapping(draw), per_step)
        np.testing.assert_array_equal(values[:, 0], expected)


def test_payload_that_changes_equals_a_loop_of_mj_step(
    make_simulator: MakeSimulator, make_experiment: MakeExperiment, pendulum_toml: str, pendulum_xml: str
) -> None:
    # derived constants must follow in every block without touching the state
    load = '[conditions.load]\nunit = "kg"\ncolumn = "load"\n'
    load += '[effects.load]\nfamily = "body_mass"\ntarget = "arm"\nmass = { condition = "load" }\n'
    simulator = make_simulator(f"timestep = {STEP}\n{pendulum_toml}{load}", pendulum_xml)
    mass = HeldSignal(np.array([0.0, 0.2]), np.array([0.5, 1.0]))
    experiment = make_experiment(simulator, time=np.arange(200) * STEP, command=0.3, signals={"load": mass})
    simulated = simulator.simulate(np.array([[0.01]]), experiment, np.arange(1), noise=False)
    model = copy.copy(simulator.model)
    data = mujoco.MjData(model)
    model.dof_damping[0], data.qpos[0] = 0.01, 0.3
    block, expected = round(rollout.BLOCK / STEP), np.empty((200, 2))
    for k, u in enumerate(experiment.windows[0].commands["torque"].averages(np.arange(201) * STEP)):
        if k % block == 0:
            at = np.array([k, min(k + block, 208)]) * STEP
            model.body_mass[1] = mass.averages(at)[0]
            model.body_inertia[1] = simulator.model.body_inertia[1] * (model.body_mass[1] / 0.5)
            mujoco.mj_setConst(model, mujoco.MjData(model))
        data.ctrl[0] = u
        mujoco.mj_step(model, data)
        expected[k] = data.sensordata
    np.testing.assert_array_equal(simulated.values[0][0], expected)


def test_constant_supply_equals_a_logged_constant(servo: Simulator, make_experiment: MakeExperiment, servo_theta: Draws) -> None:
    flat = {"supply": HeldSignal(np.array([0.0, 1.0]), np.array([5.0, 5.0]))}
    known = make_experiment(servo, seconds=(0.4, 0.4), constants=KNOWN)
    logged = make_experiment(servo, seconds=(0.4, 0.4), constants={"kp": 200.0}, signals=flat)
    mixed = replace(known, windows=(known.windows[0], logged.windows[1]))
    results = [servo.simulate(servo_theta(4), e, np.arange(4)) for e in (known, logged, mixed)]
    for other in results[1:]:
        for a, b in zip(results[0].values, other.values, strict=True):
            np.testing.assert_allclose(a, b, atol=2e-12)


def test_what_is_added_to_a_changing_field_is_kept(
    make_simulator: MakeSimulator, make_experiment: MakeExperiment, servo_theta: Draws, servo_toml: str, servo_xml: str
) -> None:
    # back-EMF adds to a joint damping that follows a logged condition
    told = servo_toml.replace('damping = "viscous"', 'damping = { condition = "viscous" }')
    told += '[conditions.viscous]\nunit = "N m s/rad"\ncolumn = "viscous"\n'
    simulator, theta = make_simulator(told, servo_xml), np.delete(servo_theta(3), 2, axis=1)
    flat = {"viscous": HeldSignal(np.zeros(1), np.array([0.004]))}
    logged = simulator.simulate(theta, make_experiment(simulator, constants=KNOWN, signals=flat), np.arange(3), noise=False)
    known = simulator.simulate(theta, make_experiment(simulator, constants={**KNOWN, "viscous": 0.004}), np.arange(3), noise=False)
    np.testing.assert_allclose(logged.values[0], known.values[0], atol=1e-12)


def test_changing_condition_for_a_signal_effect_is_an_error(
    make_simulator: MakeSimulator, make_experiment: MakeExperiment, servo_theta: Draws, servo_toml: str, servo_xml: str
) -> None:
    told = servo_toml.replace('std = "noise"', 'std = { condition = "grain" }') + '[conditions.grain]\nunit = "rad"\ncolumn = "grain"\n'
    simulator = make_simulator(told, servo_xml)
    experiment = make_experiment(simulator, constants=KNOWN, signals={"grain": HeldSignal(np.zeros(1), np.ones(1))})
    with pytest.raises(SimulatorError) as caught:
        simulator.simulate(np.delete(servo_theta(2), 7, axis=1), experiment, np.arange(2))
    assert str(caught.value) == (
        "effects.noise: std follows the condition 'grain', which changes along a recording, but sensor_noise takes one value per "
        "recording; give one with --set grain=NUMBER"
    )


def equal(a: Trajectories, b: Trajectories) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a.values, b.values, strict=True)) and np.array_equal(a.status, b.status)


@pytest.mark.parametrize("chunk", [1, 7, 50])
def test_chunks_do_not_matter(servo: Simulator, make_experiment: MakeExperiment, servo_theta: Draws, chunk: int) -> None:
    experiment = make_experiment(servo, seconds=(0.4, 0.3, 0.4), constants=KNOWN, spread=(0.01, 0.1))
    theta, seeds = servo_theta(50), np.arange(50) + 1000
    whole = servo.simulate(theta, experiment, seeds)
    parts = [servo.simulate(theta[i : i + chunk], experiment, seeds[i : i + chunk]) for i in range(0, 50, chunk)]
    joined = Trajectories(tuple(np.concatenate([p.values[w] for p in parts]) for w in range(3)), np.concatenate([p.status for p in parts]))
    assert equal(whole, joined)


def test_more_rows_than_a_batch_holds(pendulum: Simulator, make_experiment: MakeExperiment) -> None:
    experiment = make_experiment(pendulum, seconds=(0.1, 0.1, 0.1))
    theta = np.linspace(0.0, 0.1, 100)[:, None]
    whole = pendulum.simulate(theta, experiment, np.arange(100))
    assert len(theta) * 3 > rollout.ROWS
    assert equal(whole, Trajectories(*_reversed(pendulum.simulate(theta[::-1], experiment, np.arange(100)[::-1]))))


def _reversed(t: Trajectories) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    return tuple(v[::-1] for v in t.values), t.status[::-1]


def test_windows_do_not_depend_on_each_other(servo: Simulator, make_experiment: MakeExperiment, servo_theta: Draws) -> None:
    experiment = make_experiment(servo, seconds=(0.4, 0.3), constants=KNOWN)
    both = servo.simulate(servo_theta(3), experiment, np.arange(3), noise=False)
    alone = servo.simulate(servo_theta(3), replace(experiment, windows=experiment.windows[1:]), np.arange(3), noise=False)
    assert np.array_equal(both.values[1], alone.values[0])


def test_random_streams_are_the_seeds_own(servo: Simulator, make_experiment: MakeExperiment, servo_theta: Draws) -> None:
    experiment = make_experiment(servo, seconds=(0.4, 0.4), command=0.0, constants=KNOWN)
    theta = np.repeat(servo_theta(1), 3, axis=0)
    noisy = servo.simulate(theta, experiment, np.array([5, 5, 6]))
    assert np.array_equal(noisy.values[0][0], noisy.values[0][1])
    assert not np.array_equal(noisy.values[0][0], noisy.values[0][2])
    # the two windows are told the same, and differ by their streams alone
    assert not np.array_equal(noisy.values[0][0], noisy.values[1][0])
    clean = servo.simulate(theta, experiment, np.array([5, 5, 6]), noise=False)
    assert np.array_equal(clean.values[0][0], clean.values[0][2])
    assert np.array_equal(clean.values[0], clean.values[1])


def test_initial_error_has_the_windows_covariance(pendulum: Simulator, make_experiment: MakeExperiment) -> None:
    experiment = make_experiment(pendulum, seconds=(0.1,), spread=(0.02, 0.3))
    start = pendulum.simulate(np.full((3000, 1), 0.01), experiment, np.arange(3000)).values[0][:, 0]
    np.testing.assert_allclose(start.mean(0), [0.3, 0.0], atol=0.02)
    np.testing.assert_allclose(start.std(0), [0.02, 0.3], rtol=0.05)
    assert abs(np.corrcoef(start.T)[0, 1]) < 0.07


def test_samples_between_steps_are_interpolated(pendulum: Simulator, make_experiment: MakeExperiment) -> None:
    grid = np.arange(0.0, 0.2, pendulum.timestep)
    between = grid[:-1] + 0.25 * pendulum.timestep
    on, off = (
        pendulum.simulate(np.array([[0.01]]), make_experiment(pendulum, seconds=(0.2,), time=t), np.arange(1)).values[0][0]
        for t in (grid, between)
    )
    np.testing.assert_allclose(off, 0.75 * on[:-1] + 0.25 * on[1:], atol=1e-9)


def test_diverged_simulation_is_masked_and_harms_no_other(
    make_simulator: MakeSimulator, make_experiment: MakeExperiment, pendulum_toml: str, pendulum_xml: str
) -> None:
    # an explicit spring so stiff that the step is far beyond its stability limit
    xml = pendulum_xml.replace('<motor name="motor" joint="hinge"/>', '<position name="motor" joint="hinge" kp="1"/>')
    stiff = '[effects.spring]\nfamily = "position_servo"\ntarget = "motor"\nkp = "kp"\n'
    simulator = make_simulator(pendulum_toml.replace('unit = "N m"', 'unit = "rad"') + stiff, xml)
    experiment = make_experiment(simulator, seconds=(0.4, 1.0))
    theta = np.array([[0.01, 1.0], [0.01, 1e9], [0.01, 2.0]])
    with simulating():
        simulated = simulator.simulate(theta, experiment, np.arange(3))
        healthy = simulator.simulate(theta[[0, 2]], experiment, np.array([0, 2]))
    assert simulated.ok.tolist() == [True, False, True]
    assert [STATUS[s] for s in simulated.status[1]] == ["diverged: MuJoCo warned of a bad state"] * 2
    for values, expected in zip(simulated.values, healthy.values, strict=True):
        assert np.isnan(values[1]).all()
        assert np.array_equal(values[[0, 2]], expected)


def test_divergence_is_seen_while_a_condition_changes(servo: Simulator, make_experiment: MakeExperiment, servo_theta: Draws) -> None:
    theta, supply = servo_theta(3), {"supply": HeldSignal(np.zeros(1), np.array([5.0]))}
    # a firmware gain beyond the step's stability, without the voltage limit that would tame it
    theta[1, servo.parameters.index("resistance")] = 1e-9
    with simulating():
        simulated = servo.simulate(theta, make_experiment(servo, constants={"kp": 1e9}, signals=supply), np.arange(3), noise=False)
    assert simulated.status[:, 0].tolist() == [0, 1, 0]
    assert np.isnan(simulated.values[0][1]).all()


def test_implausible_motion_is_masked(
    make_simulator: MakeSimulator, make_experiment: MakeExperiment, pendulum_toml: str, pendulum_xml: str
) -> None:
    simulator = make_simulator(pendulum_toml, pendulum_xml)
    simulated = simulator.simulate(np.array([[0.0]]), make_experiment(simulator, command=1e7), np.arange(1))
    assert STATUS[int(simulated.status[0, 0])] == "implausible: a state beyond 100000"
    assert np.isnan(simulated.values[0]).all()


def test_two_effects_that_set_one_entry_contradict() -> None:
    one = Write("dof_damping", (0,), "set", np.ones(1))
    check_writes([one, replace(one, op="add"), replace(one, index=(1,))], ["a", "b", "c"])
    with pytest.raises(SimulatorError) as caught:
        check_writes([one, one], ["a", "b"])
    assert str(caught.value) == "effects.a and effects.b both set dof_damping[0]; remove one of them or narrow its target"


@pytest.mark.parametrize(
    ("field", "needed"), [("dof_armature", True), ("body_mass", True), ("dof_damping", False), ("actuator_gainprm", False)]
)
def test_derived_constants_follow_where_they_must(field: str, needed: bool) -> None:
    assert needs_set_const([Write(field, (0,), "set", np.ones(1))]) is needed


def test_unknown_element_lists_those_that_exist(servo: Simulator) -> None:
    with pytest.raises(SimulatorError) as caught:
        resolve("joint", "hinje", servo.model)
    assert str(caught.value) == "no joint 'hinje' in the model; did you mean 'hinge'? (valid: hinge)"
    assert element_names("body", servo.model) == ("arm",)
