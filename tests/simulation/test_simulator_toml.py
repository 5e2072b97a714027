"""Reading simulator.toml: what it becomes, and one exact message for every mistake."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from sbical.errors import CatalogError, SimulatorError
from sbical.simulation.families import families
from sbical.simulation.families.base import ConditionRef
from sbical.simulation.simulator import Simulator
from sbical.simulation.simulator_toml import load_simulator

MakeSimulator = Callable[[str, str], Simulator]

#: Replacement in the servo's TOML, and the message that answers it.
MISTAKES: dict[str, tuple[str, str, str]] = {
    "family": (
        'family = "armature"',
        'family = "armatur"',
        f"no family 'armatur' in effects.rotor of tiny/simulator.toml; did you mean 'armature'? (valid: {', '.join(sorted(families()))})",
    ),
    "no family": (
        'family = "armature"\n',
        "",
        f"effects.rotor of tiny/simulator.toml has no family; valid: {', '.join(sorted(families()))}",
    ),
    "role": (
        'damping = "viscous"',
        'dampng = "viscous"',
        "no role 'dampng' in effects.viscous of tiny/simulator.toml (family joint_damping); did you mean 'damping'? (valid: damping)",
    ),
    "role missing": (
        'damping = "viscous"\n',
        "",
        (
            "effects.viscous of tiny/simulator.toml has no damping (viscous friction coefficient [N m s/rad]); "
            'add damping = "PARAMETER_NAME" or a number'
        ),
    ),
    "role of another type": (
        'damping = "viscous"',
        'damping = "1.5 of it"',
        (
            "effects.viscous of tiny/simulator.toml: damping = '1.5 of it' is none of a parameter name (letters, digits, _), a number, "
            '{ condition = "NAME" }'
        ),
    ),
    "role out of range": (
        'damping = "viscous"',
        "damping = -1",
        (
            "effects.viscous of tiny/simulator.toml: damping = -1 is out of range; "
            "give a finite nonnegative number (viscous friction coefficient [N m s/rad])"
        ),
    ),
    "zero where positive": (
        'resistance = "resistance"',
        "resistance = 0",
        "effects.motor of tiny/simulator.toml: resistance = 0 is out of range; give a finite positive number (winding resistance R [ohm])",
    ),
    "joint": (
        'target = "hinge"\ndamping',
        'target = "hing"\ndamping',
        "no joint 'hing' in effects.viscous of tiny/simulator.toml; did you mean 'hinge'? (valid: hinge)",
    ),
    "glob that matches nothing": (
        'target = "hinge"\ndamping',
        'target = "leg_*"\ndamping',
        "no joint 'leg_*' in effects.viscous of tiny/simulator.toml (valid: hinge)",
    ),
    "no target": (
        'target = "hinge"\ndamping',
        "damping",
        'effects.viscous of tiny/simulator.toml needs target = "NAME" (a joint, or a list of them)',
    ),
    "measurement": (
        'target = "position"\nstd',
        'target = "positon"\nstd',
        "no measurement 'positon' in effects.noise of tiny/simulator.toml; did you mean 'position'? (valid: position)",
    ),
    "command": (
        'target = "goal"',
        'target = "aim"',
        "no command 'aim' in effects.latency of tiny/simulator.toml (valid: goal)",
    ),
    "actuator": (
        'actuator = "servo"',
        'actuator = "sevro"',
        "no actuator 'sevro' in commands.goal of tiny/simulator.toml; did you mean 'servo'? (valid: servo)",
    ),
    "sensor": (
        'sensor = "angle"\n',
        "",
        'measurements.position of tiny/simulator.toml names no sensor; add sensor = "NAME" (sensors: angle)',
    ),
    "sensor of several values": (
        'sensor = "angle"',
        'sensor = "turn"',
        "measurements.position of tiny/simulator.toml: sensor 'turn' has 3 values; measure one that has a single value, like jointpos",
    ),
    "no column": (
        'column = "position"\n',
        "",
        'measurements.position of tiny/simulator.toml names no column of the log; add column = "…"',
    ),
    "unit": (
        'column = "position"\nunit = "rad"',
        'column = "position"\nunit = "radd"',
        (
            "measurements.position of tiny/simulator.toml: no unit 'radd'; write units like rad, deg, deg/s, ms, N m, N m s/rad, kg m^2, "
            "%, or 1 for a plain number"
        ),
    ),
    "unit of another quantity": (
        'column = "goal_position"\nunit = "rad"',
        'column = "goal_position"\nunit = "N m"',
        "commands.goal of tiny/simulator.toml: [N m] cannot become [rad]: another quantity; declare the unit that the values have",
    ),
    "resolution": (
        "resolution = 0.001534",
        "resolution = 0",
        "measurements.position of tiny/simulator.toml: resolution = 0 must be a positive number [rad]",
    ),
    "condition": (
        'gain = { condition = "kp" }',
        'gain = { condition = "kpp" }',
        "no condition 'kpp' in effects.motor.gain of tiny/simulator.toml; did you mean 'kp'? (valid: kp, supply)",
    ),
    "key": (
        "[conditions.kp]\nunit",
        "[conditions.kp]\nunits",
        "no key 'units' in conditions.kp of tiny/simulator.toml; did you mean 'unit'? (valid: column, pattern, unit)",
    ),
    "top key": (
        'model = "model.xml"',
        'model = "model.xml"\ntime_step = 0.002',
        (
            "no key 'time_step' in tiny/simulator.toml; did you mean 'timestep'? "
            "(valid: commands, conditions, description, effects, integrator, measurements, model, prior, time, time_unit, timestep, window)"
        ),
    ),
    "timestep": (
        'model = "model.xml"',
        'model = "model.xml"\ntimestep = 0',
        "tiny/simulator.toml: timestep = 0 must be a positive number [s]",
    ),
    "two effects that set the same entry": (
        '[effects.push]\nfamily = "disturbance_torque"\ntarget = "hinge"\nstd = "push"',
        '[effects.again]\nfamily = "joint_damping"\ntarget = "*"\ndamping = "viscous"',
        "effects.viscous and effects.again both set dof_damping[0]; remove one of them or narrow its target",
    ),
    "two effects that limit one motor": (
        '[effects.push]\nfamily = "disturbance_torque"\ntarget = "hinge"\nstd = "push"',
        '[effects.limit]\nfamily = "force_limit"\ntarget = "servo"\nlimit = "limit"',
        "effects.motor and effects.limit both set actuator_forcerange[0, 0]; remove one of them or narrow its target",
    ),
    "one name for two quantities": (
        'damping = "viscous"',
        'damping = "armature"',
        "parameter 'armature' is [N m s/rad] in viscous.damping but [kg m^2] in rotor.armature; give the two uses different names",
    ),
    "not TOML": (
        'model = "model.xml"',
        "model = model.xml",
        "tiny/simulator.toml is not valid TOML: Invalid value (at line 2, column 9); fix that line",
    ),
    "no tables": (
        'model = "model.xml"',
        'model = "model.xml"\ncommands.goal2 = 3',
        "tiny/simulator.toml: commands must be tables like [commands.NAME]",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistake_is_answered_by_one_message(make_simulator: MakeSimulator, servo_toml: str, servo_xml: str, case: str) -> None:
    before, after, message = MISTAKES[case]
    assert servo_toml.count(before) == 1
    several = '<sensor><framelinvel name="turn" objtype="body" objname="arm"/>'
    xml = servo_xml.replace("<sensor>", several) if "turn" in after else servo_xml
    with pytest.raises(SimulatorError) as caught:
        make_simulator(servo_toml.replace(before, after), xml)
    assert str(caught.value) == message


def test_mistake_in_the_model_names_its_line(make_simulator: MakeSimulator, servo_toml: str, servo_xml: str) -> None:
    with pytest.raises(SimulatorError) as caught:
        make_simulator(servo_toml, servo_xml.replace('joint="hinge" kp', 'joint="elbow" kp'))
    assert str(caught.value) == (
        "the MJCF of tiny/simulator.toml does not compile: Error: unknown transmission target 'elbow' for actuator id = 0 "
        "Element name 'servo', id 0, line 8; fix the model file"
    )
    with pytest.raises(SimulatorError, match=r"^the MJCF of tiny/simulator\.toml does not compile: .*; fix the model file$"):
        make_simulator(servo_toml, "<mujoco><worldbody>")


def test_integrator_is_one_of_mujocos(make_simulator: MakeSimulator, servo_toml: str, servo_xml: str) -> None:
    message = r"^no integrator 'rk5' in tiny/simulator\.toml; did you mean 'rk4'\? \(valid: .*euler, implicit, implicitfast, rk4\)$"
    with pytest.raises(SimulatorError, match=message):
        make_simulator(f'integrator = "rk5"\n{servo_toml}', servo_xml)


def test_mixed_units_under_one_number(make_simulator: MakeSimulator, pendulum_toml: str, pendulum_xml: str) -> None:
    noise = '[effects.noise]\nfamily = "sensor_noise"\ntarget = "*"\nstd = "noise"\n'
    with pytest.raises(SimulatorError) as caught:
        make_simulator(pendulum_toml + noise, pendulum_xml)
    assert str(caught.value) == (
        "effects.noise: std cannot be one number for position [rad] and velocity [rad/s]; write one effect for each unit"
    )


def test_condition_of_a_sensor_must_be_in_the_sensors_unit(make_simulator: MakeSimulator, pendulum_toml: str, pendulum_xml: str) -> None:
    bias = '[conditions.offset]\nunit = "deg"\n'
    bias += '[effects.bias]\nfamily = "sensor_bias"\ntarget = "position"\nbias = { condition = "offset" }\n'
    with pytest.raises(SimulatorError) as caught:
        make_simulator(pendulum_toml + bias, pendulum_xml)
    assert str(caught.value) == "effects.bias.bias of tiny/simulator.toml: condition 'offset' is [deg]; declare it in [rad]"


def test_nothing_unknown(make_simulator: MakeSimulator, pendulum_toml: str, pendulum_xml: str) -> None:
    with pytest.raises(SimulatorError) as caught:
        make_simulator(pendulum_toml.replace('"viscous"', "0.01"), pendulum_xml)
    assert str(caught.value) == (
        'tiny/simulator.toml: every role is a number, so nothing is unknown; name a parameter in one, like damping = "viscous"'
    )


def test_nothing_to_infer_or_to_compare(make_simulator: MakeSimulator, pendulum_toml: str, pendulum_xml: str) -> None:
    with pytest.raises(SimulatorError) as caught:
        make_simulator(pendulum_toml[: pendulum_toml.index("[effects")], pendulum_xml)
    assert str(caught.value) == "tiny/simulator.toml has no effects, so nothing would be inferred; add one, like [effects.friction]"
    blind = pendulum_toml[: pendulum_toml.index("[measurements")] + pendulum_toml[pendulum_toml.index("[effects") :]
    with pytest.raises(SimulatorError) as caught:
        make_simulator(blind, pendulum_xml)
    assert str(caught.value) == "tiny/simulator.toml measures nothing; add [measurements.NAME] with a sensor (sensors: angle, rate)"


def test_missing_files(tmp_path: Path, pendulum_toml: str) -> None:
    message = r"^no simulator at '.*/nowhere'; give simulator\.toml, or a folder that holds one, or a catalog name: "
    with pytest.raises(CatalogError, match=message):
        load_simulator(tmp_path / "nowhere")
    (tmp_path / "simulator.toml").write_text(pendulum_toml)
    with pytest.raises(SimulatorError) as caught:
        load_simulator(tmp_path)
    assert str(caught.value) == f"no file {tmp_path / 'model.xml'}; the model of a simulator lies beside its simulator.toml"
    (tmp_path / "model.xml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SimulatorError, match=r"^cannot read .*model\.xml: 'utf-8' codec"):
        load_simulator(tmp_path)


def test_folder_and_file_load_the_same(tmp_path: Path, servo_toml: str, servo_xml: str) -> None:
    folder = tmp_path / "arm"
    folder.mkdir()
    (folder / "simulator.toml").write_text(servo_toml)
    (folder / "model.xml").write_text(servo_xml)
    a, b = load_simulator(folder), load_simulator(folder / "simulator.toml")
    assert a.name == b.name == "arm"
    assert a.digest() == b.digest()


def test_what_a_servo_becomes(servo: Simulator) -> None:
    space = servo.parameters
    assert space.names == ("torque_constant", "resistance", "viscous", "coulomb", "armature", "delay", "bias", "noise", "push")
    assert space.units == ("N m/A", "ohm", "N m s/rad", "N m", "kg m^2", "s", "rad", "rad", "N m")
    assert [p.support for p in space][:3] == ["positive", "positive", "nonnegative"]
    motor = servo.effects[0]
    assert motor.roles["gain"] == ConditionRef("kp")
    # the default of the family, without being asked for
    assert motor.roles["error_gain"] == pytest.approx(4096 / (2 * math.pi) / (256 * 885))
    goal, position = servo.columns.get("goal"), servo.columns.get("position")
    assert (goal.kind, goal.si, goal.hold) == ("command", "rad", "zoh")
    assert (position.kind, position.si, position.resolution) == ("measurement", "rad", 0.001534)
    assert servo.columns.get("supply").si == "V"
    assert servo.latent


def test_units_follow_the_model(make_simulator: MakeSimulator, pendulum_toml: str, pendulum_xml: str) -> None:
    degrees = pendulum_toml.replace('column = "position"\nunit = "rad"', 'column = "position"\nunit = "deg"\nresolution = 0.5')
    simulator = make_simulator(degrees, pendulum_xml)
    assert simulator.columns.get("torque").si == "N m"
    assert (simulator.columns.get("velocity").unit, simulator.columns.get("velocity").si) == ("rad/s", "rad/s")
    assert simulator.columns.get("position").resolution == pytest.approx(math.radians(0.5))
    assert not simulator.latent
    sliding = make_simulator(
        pendulum_toml.replace('"N m"', '"N"').replace('unit = "rad"', 'unit = "cm"').replace('unit = "rad/s"', 'unit = "m/s"'),
        pendulum_xml.replace('name="hinge" axis', 'name="hinge" type="slide" axis'),
    )
    assert [c.si for c in sliding.columns.items] == ["N", "m", "m/s"]


def test_timestep_and_integrator_override_the_model(make_simulator: MakeSimulator, pendulum_toml: str, pendulum_xml: str) -> None:
    simulator = make_simulator(f'timestep = 0.0005\nintegrator = "Euler"\n{pendulum_toml}', pendulum_xml)
    assert simulator.timestep == 0.0005
    assert int(simulator.model.opt.integrator) == 0


def test_globs_and_lists_name_several_targets(make_simulator: MakeSimulator, pendulum_toml: str) -> None:
    xml = """<mujoco><worldbody>
      <body><joint name="left_hip"/><geom size=".1"/></body> <body><joint name="left_knee"/><geom size=".1"/></body>
      <body><joint name="right[1]"/><geom size=".1"/></body></worldbody>
      <actuator><motor name="motor" joint="left_hip"/></actuator>
      <sensor><jointpos name="angle" joint="left_hip"/><jointvel name="rate" joint="left_hip"/></sensor></mujoco>"""
    for target, found in (
        ('"left_*"', ("left_hip", "left_knee")),
        ('["right[1]", "*_hip", "left_hip"]', ("right[1]", "left_hip")),
    ):
        simulator = make_simulator(pendulum_toml.replace('target = "hinge"', f"target = {target}"), xml)
        assert simulator.effects[0].targets == found


def test_one_name_in_two_roles_is_one_unknown(make_simulator: MakeSimulator, pendulum_toml: str, pendulum_xml: str) -> None:
    twice = pendulum_toml + '[effects.a]\nfamily = "joint_friction"\ntarget = "hinge"\nfrictionloss = "coulomb"\n'
    twice += '[effects.b]\nfamily = "disturbance_torque"\ntarget = "hinge"\nstd = "coulomb"\n'
    space = make_simulator(twice, pendulum_xml).parameters
    assert space.names == ("viscous", "coulomb")
    assert space.parameters[1].used_by == ("a.frictionloss", "b.std")
