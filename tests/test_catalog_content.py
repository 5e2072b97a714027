"""The shipped catalog: models compile, every unknown has a sourced prior, and example recordings are what they say."""

from __future__ import annotations

import importlib.util
import math
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import mujoco
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
PRIOR_OF = {"servo_pendulum": "hobby_servo", "geared_servo": "geared_servo", "double_pendulum": "double_pendulum"}
NOT_ROLES = {"family", "target"}

# published fits of real units, which each prior must contain: github.com/Rhoban/bam/params, DFKI's double_pendulum
PUBLISHED: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "hobby_servo": {
        "torque_constant": (0.3029, 0.3232, 0.3867, 1.2116, 1.6225, 2.1914),
        "resistance": (2.375, 3.368, 4.017, 4.764, 2.676, 3.949),
        "viscous": (0.0033, 0.0037, 0.0105, 0.0117, 0.0352, 0.0591),
        "coulomb": (0.0070, 0.0128, 0.0206, 0.0275, 0.0524, 0.0904, 0.1035),
        "armature": (0.0011, 0.0016, 0.0018, 0.0120, 0.0266, 0.0284),
        "encoder_bias": (0.0309, 0.0180, -0.0512, -0.0208, -0.0655),
        "command_delay": (0.0, 0.025),
    },
    "geared_servo": {"load_friction": (0.28, 0.32), "coulomb": (0.0070, 0.1035), "torque_constant": (0.3029, 2.1914)},
    "double_pendulum": {
        "link1_com": (0.1987, 0.2089),
        "link1_inertia": (0.0172, 0.0179),
        "link2_com": (0.1494, 0.1587),
        "link2_inertia": (0.0063, 0.0096),
        "armature": (0.0022, 0.0028, 0.0036),
        "viscous1": (0.001, 0.081),
        "viscous2": (0.001,),
        "coulomb1": (0.146,),
        "coulomb2": (0.123, 0.292),
    },
}


def toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def description(simulator: str) -> dict[str, Any]:
    return toml(ROOT / "simulators" / simulator / "simulator.toml")


def model_of(simulator: str) -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_path(str(ROOT / "simulators" / simulator / description(simulator)["model"]))


def parameters(simulator: str) -> set[str]:
    effects = description(simulator)["effects"].values()
    return {v for effect in effects for role, v in effect.items() if role not in NOT_ROLES and isinstance(v, str)}


@cache
def standins() -> ModuleType:
    spec = importlib.util.spec_from_file_location("standins", ROOT / "benchmarks" / "standins.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # its dataclasses look their own module up by name
    sys.modules["standins"] = module
    spec.loader.exec_module(module)
    return module


@cache
def remade() -> dict[str, str]:
    return standins().recordings()


def table(text: str) -> tuple[list[str], np.ndarray]:
    rows = [line for line in text.splitlines() if not line.startswith("#")]
    return rows[0].split(","), np.array([[float(cell) for cell in row.split(",")] for row in rows[1:]])


def shipped() -> list[str]:
    return sorted(str(p.relative_to(ROOT / "simulators").as_posix()) for p in (ROOT / "simulators").glob("*/example/**/*") if p.is_file())


def test_every_simulator_is_checked_here_and_every_prior_used() -> None:
    assert sorted(PRIOR_OF) == sorted(p.parent.name for p in (ROOT / "simulators").glob("*/simulator.toml"))
    assert sorted(PRIOR_OF.values()) == sorted(p.stem for p in (ROOT / "priors").glob("*.toml"))


@pytest.mark.parametrize("simulator", sorted(PRIOR_OF))
def test_the_model_compiles_without_meshes_and_moves_under_its_command(simulator: str) -> None:
    model = model_of(simulator)
    assert model.nmesh == 0
    assert model.opt.timestep == description(simulator)["timestep"] == 0.002
    # hanging at rest is an equilibrium; a command moves every joint
    data = mujoco.MjData(model)
    mujoco.mj_step(model, data, nstep=200)
    np.testing.assert_allclose(data.qpos, 0.0, atol=1e-9)
    data.ctrl[:] = 0.5
    mujoco.mj_step(model, data, nstep=200)
    assert np.all(np.abs(data.qpos) > 0.01)


@pytest.mark.parametrize("simulator", sorted(PRIOR_OF))
def test_names_in_the_description_exist_in_the_model_and_in_the_examples(simulator: str) -> None:
    about, model = description(simulator), model_of(simulator)
    for command in about["commands"].values():
        assert model.actuator(command["actuator"]).id >= 0
    for measurement in about["measurements"].values():
        assert model.sensor(measurement["sensor"]).id >= 0
    wanted = {
        c[key]
        for kind in ("commands", "measurements", "conditions")
        for c in about.get(kind, {}).values()
        for key in ("column", "enable")
        if key in c
    }
    for name, text in remade().items():
        if name.startswith(f"{simulator}/"):
            assert wanted <= set(table(text)[0]), name


@pytest.mark.parametrize("simulator", sorted(PRIOR_OF))
def test_every_parameter_has_a_prior_with_unit_and_source(simulator: str) -> None:
    prior = toml(ROOT / "priors" / f"{PRIOR_OF[simulator]}.toml")
    assert parameters(simulator) == set(prior)
    for name, entry in prior.items():
        assert entry["source"].strip(), name
        assert entry["unit"], name
        assert entry["low"] < entry["high"], name
        assert entry["distribution"] != "LogUniform" or entry["low"] > 0, name


@pytest.mark.parametrize("prior", sorted(PUBLISHED))
def test_priors_contain_the_published_values(prior: str) -> None:
    entries = toml(ROOT / "priors" / f"{prior}.toml")
    for name, values in PUBLISHED[prior].items():
        low, high = entries[name]["low"], entries[name]["high"]
        assert all(low <= v <= high / 1.1 for v in values), (name, low, high)


def test_the_encoder_steps_are_those_of_the_hardware() -> None:
    assert description("servo_pendulum")["measurements"]["position"]["resolution"] == 2 * math.pi / 4096
    for angle in description("double_pendulum")["measurements"].values():
        assert angle["resolution"] == 25 / 65535


def test_example_recordings_are_labelled_small_and_exactly_those_of_the_standins() -> None:
    assert shipped() == sorted(remade())
    for simulator in PRIOR_OF:
        files = [p for p in (ROOT / "simulators" / simulator / "example").rglob("*") if p.is_file()]
        assert len([p for p in files if p.parent.name == "example"]) == 3
        assert sum(p.stat().st_size for p in files) < 400_000
        for path in files:
            assert path.read_text(encoding="utf-8").startswith("# SIMULATED STAND-IN, not a real robot"), path.name


@pytest.mark.parametrize("name", shipped())
def test_example_recordings_are_reproducible(name: str) -> None:
    header, stored = table((ROOT / "simulators" / name).read_text(encoding="utf-8"))
    header_again, again = table(remade()[name])
    assert header_again == header
    assert again.shape == stored.shape
    # another processor may round a last bit, and with it one reading in a thousand by one step of its sensor
    assert (np.abs(again - stored) > 1e-9).mean() < 1e-3
    assert np.abs(again - stored)[:, :3].max() <= 2 * math.pi / 4096 + 1e-9


def test_units_share_a_protocol_and_differ_in_motion() -> None:
    for run, kp in enumerate((100, 200, 400), 1):
        _, one = table(remade()[f"servo_pendulum/example/kp{kp}_run{run}.csv"])
        _, two = table(remade()[f"servo_pendulum/example/unit2/unit2_kp{kp}_run{run}.csv"])
        grid = np.arange(0.05, 2.4, 0.005)
        goals = [np.interp(grid, t[:, 0], t[:, 1]) for t in (one, two)]
        positions = [np.interp(grid, t[:, 0], t[:, 2]) for t in (one, two)]
        assert np.abs(goals[0] - goals[1]).max() < 1e-3
        assert np.sqrt(((positions[0] - positions[1]) ** 2).mean()) > 0.02


def test_the_standins_lie_outside_the_model_class() -> None:
    friction = standins().UNIT1.friction.torque
    # dry friction of these two models depends on neither speed nor load
    assert friction(0.0, 0.3) > 1.2 * friction(3.0, 0.3)
    assert friction(3.0, 0.3) > 1.2 * friction(3.0, 0.0)
    for xml, simulator in ((standins().SERVO_XML, "servo_pendulum"), (standins().LINKS_XML, "double_pendulum")):
        theirs, ours = mujoco.MjModel.from_xml_string(xml), model_of(simulator)
        assert theirs.opt.timestep < ours.opt.timestep
        assert theirs.opt.integrator != ours.opt.integrator
