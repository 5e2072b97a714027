"""One contract for every family: documented roles, names resolved at binding, writes to fields that exist, an effect that shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from sbical.common.units import compatible
from sbical.errors import SimulatorError
from sbical.recordings.experiment import Experiment
from sbical.simulation.families import families
from sbical.simulation.families.base import Binding, Effect, Family
from sbical.simulation.parameters import BOUNDS
from sbical.simulation.simulator import Simulator

MakeExperiment = Callable[..., Experiment]
MakeSimulator = Callable[[str, str], Simulator]

XML = """
<mujoco>
  <option timestep="0.002" integrator="implicitfast"/>
  <worldbody><body name="arm">
    <joint name="hinge" axis="0 1 0"/>
    <inertial pos="0 0 -0.1" mass="0.5" diaginertia="1e-3 1e-3 1e-3"/>
  </body></worldbody>
  <actuator><position name="drive" joint="hinge" kp="2" forcerange="-0.5 0.5"/></actuator>
  <sensor><jointpos name="angle" joint="hinge"/></sensor>
</mujoco>
"""
TOML = """
model = "model.xml"
[commands.goal]
actuator = "drive"
column = "goal"
unit = "rad"
[measurements.position]
sensor = "angle"
column = "position"
unit = "rad"
resolution = 0.001
[effects.it]
"""


@dataclass(frozen=True)
class Case:
    """Two settings of a family's roles between which the motion, or its measurement, must differ."""

    target: str
    low: dict[str, float]
    high: dict[str, float]
    random: bool = False


CASES = {
    "armature": Case("hinge", {"armature": 0.0}, {"armature": 0.02}),
    "body_mass": Case("arm", {"mass": 0.4}, {"mass": 0.6}),
    "command_delay": Case("goal", {"delay": 0.0}, {"delay": 0.02}),
    "disturbance_torque": Case("hinge", {"std": 0.0}, {"std": 0.1}, random=True),
    "force_limit": Case("drive", {"limit": 0.05}, {"limit": 0.5}),
    "inertia": Case("arm", {"mass": 0.4, "com_distance": 0.1, "inertia": 1e-3}, {"mass": 0.4, "com_distance": 0.12, "inertia": 1e-3}),
    "joint_damping": Case("hinge", {"damping": 0.0}, {"damping": 0.05}),
    "joint_friction": Case("hinge", {"frictionloss": 0.0}, {"frictionloss": 0.1}),
    "load_friction": Case("hinge", {"coulomb": 0.01, "load": 0.0}, {"coulomb": 0.01, "load": 0.3}),
    "position_servo": Case("drive", {"kp": 1.0, "kv": 0.0}, {"kp": 1.0, "kv": 0.1}),
    "sensor_bias": Case("position", {"bias": 0.0}, {"bias": 0.1}),
    "sensor_noise": Case("position", {"std": 0.0}, {"std": 0.01}, random=True),
    "sensor_quantisation": Case("position", {"resolution": 1e-9}, {"resolution": 0.05}, random=True),
    "voltage_servo": Case(
        "drive",
        {"torque_constant": 0.3, "resistance": 3.0, "gain": 200.0, "supply": 5.0},
        {"torque_constant": 0.3, "resistance": 3.0, "gain": 200.0, "supply": 6.0},
    ),
}


@pytest.fixture(params=sorted(families()))
def family(request: pytest.FixtureRequest) -> Family:
    return families()[request.param]


@pytest.fixture
def simulator(family: Family, make_simulator: MakeSimulator) -> Simulator:
    """The arm with one effect whose tested roles are all unknown."""
    case = CASES[family.name]
    roles = "".join(f'{role} = "{role}"\n' for role in case.low)
    return make_simulator(f'{TOML}family = "{family.name}"\ntarget = "{case.target}"\n{roles}', XML)


def test_every_family_has_a_case_and_its_own_name() -> None:
    assert set(CASES) == set(families())
    assert all(name == f.name for name, f in families().items())


def test_roles_are_documented(family: Family) -> None:
    assert family.equation
    for name, role in family.roles.items():
        assert name.isidentifier()
        assert role.meaning
        assert role.support in BOUNDS
        assert role.unit == "sensor" or compatible(role.unit, role.unit)
        assert role.default is None or not role.optional, "a role with a default is never absent"
        if role.default is not None:
            assert BOUNDS[role.support][0] <= role.default <= BOUNDS[role.support][1]
    assert {r for r in family.roles if not family.roles[r].optional and family.roles[r].default is None} <= set(CASES[family.name].low)


def test_unit_and_support_reach_the_parameters(family: Family, simulator: Simulator) -> None:
    for parameter in simulator.parameters:
        role = family.roles[parameter.name]
        assert parameter.unit == ("rad" if role.unit == "sensor" else role.unit)
        assert parameter.support == role.support
        assert parameter.used_by == (f"it.{parameter.name}",)


def test_hooks_fit_the_kind_of_target(family: Family, simulator: Simulator) -> None:
    (bound,) = simulator.engine.effects
    hooks = bound.hooks
    if family.target == "measurement":
        assert hooks.measure is not None
        assert hooks.write is hooks.command is hooks.force is None
    elif family.target == "command":
        assert hooks.command is not None
        assert hooks.write is hooks.measure is hooks.force is None
    else:
        assert hooks.write is not None or hooks.force is not None
        assert hooks.command is hooks.measure is None
    assert family.latent == (hooks.force is not None)


def test_writes_go_to_fields_that_exist(family: Family, simulator: Simulator) -> None:
    case = CASES[family.name]
    theta = np.array([list(case.low.values()), list(case.high.values())])
    for write in simulator.writes(theta):
        field = np.asarray(getattr(simulator.model, write.field))
        assert len(write.index) == field.ndim
        assert all(0 <= i < n for i, n in zip(write.index, field.shape, strict=True))
        assert write.values.shape == (2,)
        assert np.isfinite(write.values).all()
        assert case.target in write.object or write.object == "joint hinge"


def test_effect_shows(family: Family, simulator: Simulator, make_experiment: MakeExperiment) -> None:
    case, experiment = CASES[family.name], make_experiment(simulator, spread=(0.0, 0.0))
    theta, seeds = np.array([list(case.low.values()), list(case.high.values())]), np.zeros(2, int)
    clean = simulator.simulate(theta, experiment, seeds, noise=False).values[0]
    noisy = simulator.simulate(theta, experiment, seeds).values[0]
    assert np.array_equal(clean, noisy) is not case.random
    changed = noisy if case.random else clean
    assert np.abs(changed[0] - changed[1]).max() > 1e-3
    if case.random:
        assert np.array_equal(clean[0], clean[1]), "what is random is left out of a noise-free simulation"


def test_rows_are_independent(family: Family, simulator: Simulator, make_experiment: MakeExperiment) -> None:
    case, experiment = CASES[family.name], make_experiment(simulator)
    theta = np.linspace(list(case.low.values()), list(case.high.values()), 5)
    together = simulator.simulate(theta, experiment, np.arange(5)).values[0]
    for k in range(5):
        np.testing.assert_array_equal(simulator.simulate(theta[k : k + 1], experiment, np.array([k])).values[0][0], together[k])


def test_numbers_equal_parameters(
    family: Family, simulator: Simulator, make_simulator: MakeSimulator, make_experiment: MakeExperiment
) -> None:
    case = CASES[family.name]
    roles = "".join(f"{role} = {value}\n" for role, value in case.high.items())
    other = '[effects.other]\nfamily = "sensor_bias"\ntarget = "position"\nbias = "unknown"\n'
    if family.name == "sensor_bias":
        other = other.replace("sensor_bias", "sensor_noise").replace("bias =", "std =")
    fixed = make_simulator(f'{TOML}family = "{family.name}"\ntarget = "{case.target}"\n{roles}{other}', XML)
    a = simulator.simulate(np.array([list(case.high.values())]), make_experiment(simulator), np.arange(1), noise=False)
    b = fixed.simulate(np.zeros((1, 1)), make_experiment(fixed), np.arange(1), noise=False)
    np.testing.assert_array_equal(a.values[0], b.values[0])


UNFIT = {
    "inertia": (
        XML,
        'family = "inertia"\ntarget = "arm"',
        "effects.it changes nothing; give at least one of mass, com_distance, inertia",
    ),
    "inertia without direction": (
        XML.replace('pos="0 0 -0.1"', 'pos="0 0 0"'),
        'family = "inertia"\ntarget = "arm"\ncom_distance = "c"',
        (
            "effects.it: the centre of mass of body 'arm' is at its origin, so com_distance has no direction; "
            'give the body an <inertial pos="…"> away from it'
        ),
    ),
    "body_mass": (
        XML.replace("</worldbody>", '<body name="stand"/></worldbody>'),
        'family = "body_mass"\ntarget = "stand"\nmass = "m"',
        "effects.it: body 'stand' has no mass to scale its inertia with; give it one in the MJCF",
    ),
    "force_limit": (
        XML.replace(' forcerange="-0.5 0.5"', ""),
        'family = "force_limit"\ntarget = "drive"\nlimit = "l"',
        "effects.it: actuator 'drive' has no forcerange, which the limit would set; add forcerange=\"-1 1\" to it in the MJCF",
    ),
    "position_servo": (
        XML.replace('<position name="drive" joint="hinge" kp="2"', '<motor name="drive" joint="hinge"'),
        'family = "position_servo"\ntarget = "drive"\nkp = "kp"',
        "effects.it: actuator 'drive' has no position feedback, which kp would scale; make it a <position> in the MJCF",
    ),
    "voltage_servo": (
        XML.replace(' forcerange="-0.5 0.5"', ""),
        'family = "voltage_servo"\ntarget = "drive"\ntorque_constant = "kt"\nresistance = "r"\ngain = 200\nsupply = 5',
        (
            "effects.it: actuator 'drive' must be a <position> with a forcerange, so that the supply voltage can limit its torque; "
            'for example forcerange="-1 1"'
        ),
    ),
    "sensor_quantisation": (
        XML,
        'family = "sensor_quantisation"\ntarget = "position"',
        "effects.it: give resolution = … here, or the same one to each of the measurements position",
    ),
}


@pytest.mark.parametrize("case", UNFIT)
def test_model_that_does_not_fit_is_explained(make_simulator: MakeSimulator, case: str) -> None:
    xml, effect, message = UNFIT[case]
    toml = TOML.replace("resolution = 0.001\n", "")
    if "<motor" in xml:
        toml = toml.replace('column = "goal"\nunit = "rad"', 'column = "goal"\nunit = "N m"')
    with pytest.raises(SimulatorError) as caught:
        make_simulator(f"{toml}{effect}\n", xml)
    assert str(caught.value) == message


def test_degrees_of_freedom_of_every_joint_type(make_simulator: MakeSimulator) -> None:
    xml = """<mujoco><worldbody>
      <body><freejoint name="base"/><geom size=".1"/><body><joint name="ball" type="ball"/><geom size=".1"/>
      <body><joint name="slide" type="slide"/><geom size=".1"/></body></body></body></worldbody>
      <sensor><jointpos name="angle" joint="slide"/></sensor></mujoco>"""
    toml = '[measurements.position]\nsensor = "angle"\ncolumn = "x"\nunit = "m"\n'
    toml += '[effects.d]\nfamily = "joint_damping"\ntarget = "*"\ndamping = "d"\n'
    simulator = make_simulator(toml, xml)
    binding = Binding(simulator.model, simulator.sensors, simulator.commands)
    assert binding.dofs(["ball", "base", "slide"]) == [6, 7, 8, 0, 1, 2, 3, 4, 5, 9]
    assert [w.object for w in simulator.writes(np.ones(1))] == ["joint base"] * 6 + ["joint ball"] * 3 + ["joint slide"]
    effect = Effect("d", "joint_damping", ("slide",), {"damping": "d"})
    hooks = families()["joint_damping"].bind(binding, effect)
    assert hooks.write is not None
    assert [w.index for w in hooks.write({"damping": np.ones(1)})] == [(9,)]
