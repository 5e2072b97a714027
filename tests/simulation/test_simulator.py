"""What a draw means in the model, entry by entry; and a simulator that travels."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import mujoco
import numpy as np
import pytest

from sbical.errors import SimulatorError
from sbical.recordings.experiment import Experiment
from sbical.simulation.families.voltage_servo import ERROR_GAIN
from sbical.simulation.parameters import Parameter, ParameterSpace
from sbical.simulation.simulator import Simulator

MakeExperiment = Callable[..., Experiment]
MakeSimulator = Callable[[str, str], Simulator]
Draws = Callable[[int], np.ndarray]


def test_writes_name_fields_objects_and_values(servo: Simulator, servo_theta: Draws) -> None:
    theta = servo_theta(4)
    kt, r, viscous, coulomb, armature = theta[:, :5].T
    # the motor follows conditions that a single number does not stand for
    found = {(w.effect, w.field, w.index, w.op): w for w in servo.writes(theta)}
    assert list(found) == [
        ("viscous", "dof_damping", (0,), "set"), ("coulomb", "dof_frictionloss", (0,), "set"), ("rotor", "dof_armature", (0,), "set")
    ]  # fmt: skip
    for write, values in zip(found.values(), (viscous, coulomb, armature), strict=True):
        assert write.object == "joint hinge"
        np.testing.assert_array_equal(write.values, values)
    told = {(w.field, w.index, w.op): w for w in servo.writes(theta, {"kp": 200.0, "supply": 5.0})}
    np.testing.assert_allclose(told["actuator_gainprm", (0, 0), "set"].values, kt / r * 5 * 200 * ERROR_GAIN)
    np.testing.assert_allclose(told["dof_damping", (0,), "add"].values, kt**2 / r)
    assert told["actuator_gainprm", (0, 0), "set"].object == "actuator servo"
    assert told["actuator_gainprm", (0, 0), "set"].parameters == ("torque_constant", "resistance")


def test_one_draw_is_enough(servo: Simulator, servo_theta: Draws) -> None:
    (first, *_) = servo.writes(servo_theta(1)[0])
    assert first.values.shape == (1,)


def test_calibrated_model_moves_like_the_simulation(servo: Simulator, make_experiment: MakeExperiment, servo_theta: Draws) -> None:
    theta, known = servo_theta(1)[0], {"kp": 200.0, "supply": 5.0}
    # no delay and no bias: what remains lives in the model
    theta[[servo.parameters.index("delay"), servo.parameters.index("bias")]] = 0.0
    grid = np.arange(0, 0.4, servo.timestep)
    experiment = make_experiment(servo, time=grid, constants=known, command=0.5)
    simulated = servo.simulate(theta[None], experiment, np.arange(1), noise=False).values[0][0, :, 0]
    model = servo.calibrated_model(theta, known)
    data = mujoco.MjData(model)
    data.qpos[0], data.ctrl[0] = 0.3, 0.5
    replayed = []
    for _ in grid:
        mujoco.mj_step(model, data)
        replayed.append(data.sensordata[0])
    np.testing.assert_allclose(simulated, replayed, atol=1e-9)
    assert servo.model.dof_frictionloss[0] == 0.0, "the simulator's own model is untouched"


def test_spec_compiles_to_the_same_motion(servo: Simulator) -> None:
    model = servo.spec().compile()
    for field in ("body_mass", "body_inertia", "dof_solref", "actuator_forcerange"):
        np.testing.assert_allclose(getattr(model, field), getattr(servo.model, field))


def test_pickled_simulator_simulates_bitwise_the_same(servo: Simulator, make_experiment: MakeExperiment, servo_theta: Draws) -> None:
    experiment = make_experiment(servo, constants={"kp": 200.0, "supply": 5.0})
    before = servo.simulate(servo_theta(3), experiment, np.arange(3))
    wire = pickle.dumps(servo)
    travelled: Simulator = pickle.loads(wire)  # noqa: S301
    after = travelled.simulate(servo_theta(3), experiment, np.arange(3))
    np.testing.assert_array_equal(before.values[0], after.values[0])
    assert travelled.digest() == servo.digest()
    assert len(wire) < 100_000


def test_digest_sees_the_model_and_the_text(servo: Simulator, make_simulator: MakeSimulator, servo_toml: str, servo_xml: str) -> None:
    assert make_simulator(servo_toml, servo_xml).digest() == servo.digest()
    assert make_simulator(servo_toml, servo_xml.replace('mass="0.49"', 'mass="0.5"')).digest() != servo.digest()
    assert make_simulator(servo_toml.replace('std = "push"', 'std = "shove"'), servo_xml).digest() != servo.digest()


def test_parameters_by_name_and_by_number() -> None:
    space = ParameterSpace((Parameter("a", "N", "real", ("x.a",)), Parameter("b", "m", "positive", ("x.b",))))
    assert len(space) == 2
    assert space.units == ("N", "m")
    np.testing.assert_array_equal(space.vector({"b": 2, "a": 1}), [1.0, 2.0])
    assert space.mapping(np.array([1.0, 2.0])) == {"a": 1.0, "b": 2.0}
    with pytest.raises(SimulatorError, match=r"^no parameter 'c' \(valid: a, b\)$"):
        space.vector({"a": 1, "b": 1, "c": 1})
    with pytest.raises(SimulatorError, match=r"^no value for parameter b; give one for each of a, b$"):
        space.vector({"a": 1})


@pytest.mark.parametrize(("one", "other", "narrower"), [("real", "positive", "positive"), ("positive", "nonnegative", "positive")])
def test_shared_unknown_takes_the_narrower_support(one: str, other: str, narrower: str) -> None:
    a, b = Parameter("a", "m", one, ("x.a",)), Parameter("a", "m", other, ("y.a",))  # type: ignore[arg-type]
    assert a.merged(b).support == b.merged(a).support == narrower
    assert a.merged(b).used_by == ("x.a", "y.a")
