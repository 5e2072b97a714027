"""Reading ``simulator.toml`` and its MJCF into a Simulator, with every name checked against the compiled model."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mujoco

from sbical.common import catalog
from sbical.common.units import conversion
from sbical.errors import SimulatorError, unknown
from sbical.recordings.column_map import Column, Columns
from sbical.simulation.binding import element_names, resolve
from sbical.simulation.effects_toml import (
    check_bound,
    check_conditions,
    check_text,
    condition_units,
    parse_effect,
    resolve_targets,
    role_unit,
)
from sbical.simulation.families import families
from sbical.simulation.families.base import Binding, Effect, Sensor
from sbical.simulation.simulator import Simulator, parameter_space

_TABLES = {"commands", "measurements", "conditions", "effects"}
_TOP = {"model", "prior", "timestep", "integrator", "window", "time", "time_unit", "description", *_TABLES}
_COMMAND = {"actuator", "column", "unit", "hold", "enable"}
_MEASUREMENT = {"sensor", "column", "unit", "resolution"}
_CONDITION = {"column", "unit", "pattern"}
#: Files that an MJCF may include or load.
_ASSETS = {".xml", ".stl", ".obj", ".msh", ".png"}

#: SI unit of an actuator's control and of a sensor's reading, where MuJoCo's type decides it.
_SENSOR_UNITS = {
    mujoco.mjtSensor.mjSENS_JOINTPOS: ("position", "rad", "m"),
    mujoco.mjtSensor.mjSENS_JOINTVEL: ("velocity", "rad/s", "m/s"),
    mujoco.mjtSensor.mjSENS_JOINTACTFRC: ("other", "N m", "N"),
    mujoco.mjtSensor.mjSENS_ACTUATORFRC: ("other", "N m", "N"),
    mujoco.mjtSensor.mjSENS_ACCELEROMETER: ("other", "m/s^2", "m/s^2"),
    mujoco.mjtSensor.mjSENS_GYRO: ("other", "rad/s", "rad/s"),
}


def load_simulator(source: str | Path) -> Simulator:
    """Simulator by catalog name, or from a folder that holds ``simulator.toml``.

    Raises CatalogError if there is none, and SimulatorError for any mistake in its files.
    """
    path = catalog.find("simulator", source)
    text = _read(path)
    return parse(text, path.parent, name=path.parent.name if path.name == "simulator.toml" else path.stem)


def parse(text: str, folder: Path, *, name: str, xml: str | None = None) -> Simulator:
    """Simulator from the text of a ``simulator.toml``; ``xml`` replaces the model file it names."""
    where = f"{name}/simulator.toml"
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise SimulatorError(f"{where} is not valid TOML: {problem}; fix that line") from None
    _known_keys(table, _TOP, where)
    for kind in _TABLES:
        if not isinstance(table.get(kind, {}), dict) or not all(isinstance(v, dict) for v in table.get(kind, {}).values()):
            raise SimulatorError(f"{where}: {kind} must be tables like [{kind}.NAME]")
    if xml is None:
        if "model" not in table:
            raise SimulatorError(f'{where} names no model; add model = "model.xml" at the top')
        xml = _read(folder / str(table["model"]))
    effects = [parse_effect(n, e, where) for n, e in table.get("effects", {}).items()]
    if not effects:
        raise SimulatorError(f"{where} has no effects, so nothing would be inferred; add one, like [effects.friction]")
    model, final_xml = _compile(xml, folder, table, effects, where)
    columns, sensors, commands = _columns(table, model, condition_units(effects), where)
    effects = [resolve_targets(e, model, columns, where) for e in effects]
    check_conditions(effects, columns, where)
    units = {(e.name, r): role_unit(e, r, columns) for e in effects for r in e.roles}
    simulator = Simulator(
        name, model, final_xml, text, columns, tuple(effects), sensors, commands,
        parameter_space(effects, units), _positive(table, "window", where), table.get("prior"),
    )  # fmt: skip
    check_bound(simulator.effects, Binding(model, sensors, commands))
    if not simulator.parameters.parameters:
        raise SimulatorError(f'{where}: every role is a number, so nothing is unknown; name a parameter in one, like damping = "viscous"')
    return simulator


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SimulatorError(f"no file {path}; the model of a simulator lies beside its simulator.toml") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise SimulatorError(f"cannot read {path}: {problem}") from None


def _known_keys(table: Mapping[str, Any], valid: set[str], where: str) -> None:
    for key, value in table.items():
        if key not in valid:
            raise SimulatorError(unknown("key", key, valid, where=where))
        check_text(key, value, where)


def _positive(table: Mapping[str, Any], key: str, where: str, unit: str = "s") -> float | None:
    value = table.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise SimulatorError(f"{where}: {key} = {value!r} must be a positive number [{unit}]")
    return float(value)


def _compile(xml: str, folder: Path, table: Mapping[str, Any], effects: Sequence[Effect], where: str) -> tuple[mujoco.MjModel, str]:
    """Compiled model, with the effects' edits and the declared timestep, and the XML it came from."""
    try:
        assets = {p.name: p.read_bytes() for p in folder.rglob("*") if p.suffix.lower() in _ASSETS} if folder.is_dir() else {}
        spec = mujoco.MjSpec.from_string(xml, assets=assets)
        timestep = _positive(table, "timestep", where)
        if timestep is not None:
            spec.option.timestep = timestep
        if "integrator" in table:
            spec.option.integrator = _integrator(str(table["integrator"]), where)
        for effect in effects:
            edit = families()[effect.family].edit
            if edit is not None:
                edit(spec, effect)
        # visual meshes cost megabytes per worker and do not touch the motion
        spec.discard_visual()
        # the canonical form rounds to six digits; this one reads back into the very same model
        spec.compiler.savecompiled = spec.compiler.savecanonical = False
        return spec.compile(), spec.to_xml()
    except (ValueError, mujoco.FatalError) as problem:
        # MuJoCo's messages have line breaks
        raise SimulatorError(f"the MJCF of {where} does not compile: {' '.join(str(problem).split())}; fix the model file") from None


def _integrator(name: str, where: str) -> int:
    options = {k.removeprefix("mjINT_").lower(): v for k, v in mujoco.mjtIntegrator.__members__.items()}
    if name.lower() not in options:
        raise SimulatorError(unknown("integrator", name, options, where=where))
    return int(options[name.lower()])


def _columns(
    table: Mapping[str, Any], model: mujoco.MjModel, condition_units: Mapping[str, str], where: str
) -> tuple[Columns, dict[str, Sensor], dict[str, int]]:
    items: list[Column] = []
    sensors: dict[str, Sensor] = {}
    commands: dict[str, int] = {}
    for name, t in table.get("commands", {}).items():
        place = f"commands.{name} of {where}"
        _known_keys(t, _COMMAND, place)
        actuator = _named("actuator", t, model, place)
        commands[name] = actuator
        items.append(_column(name, "command", t, _control_unit(model, actuator), place))
    for name, t in table.get("measurements", {}).items():
        place = f"measurements.{name} of {where}"
        _known_keys(t, _MEASUREMENT, place)
        sensor = _named("sensor", t, model, place)
        if model.sensor_dim[sensor] != 1:
            values = f"sensor '{t['sensor']}' has {model.sensor_dim[sensor]} values"
            raise SimulatorError(f"{place}: {values}; measure one that has a single value, like jointpos")
        kind, unit = _sensor_unit(model, sensor, str(t.get("unit", "1")))
        column = _column(name, "measurement", t, unit, place)
        items.append(column)
        attached = kind != "other"
        sensors[name] = Sensor(
            int(model.sensor_adr[sensor]), kind, int(model.sensor_objid[sensor]) if attached else None, column.resolution
        )
    for name, t in table.get("conditions", {}).items():
        place = f"conditions.{name} of {where}"
        _known_keys(t, _CONDITION, place)
        items.append(_column(name, "condition", t, condition_units.get(name, str(t.get("unit", "1"))), place))
    if not sensors:
        raise SimulatorError(f"{where} measures nothing; add [measurements.NAME] with a sensor (sensors: {_listed('sensor', model)})")
    return Columns(tuple(items), str(table.get("time", "time")), str(table.get("time_unit", "s"))), sensors, commands


def _named(kind: str, table: Mapping[str, Any], model: mujoco.MjModel, place: str) -> int:
    if kind not in table:
        raise SimulatorError(f'{place} names no {kind}; add {kind} = "NAME" ({kind}s: {_listed(kind, model)})')
    if table[kind] not in element_names(kind, model):
        raise SimulatorError(unknown(kind, str(table[kind]), element_names(kind, model), where=place))
    return resolve(kind, str(table[kind]), model)


def _listed(kind: str, model: mujoco.MjModel) -> str:
    return ", ".join(element_names(kind, model)) or "none"


def _column(name: str, kind: Any, table: Mapping[str, Any], si: str, place: str) -> Column:
    if kind != "condition" and "column" not in table:
        raise SimulatorError(f'{place} names no column of the log; add column = "…"')
    unit = str(table.get("unit", si))
    scale, _ = conversion(unit, si, where=place, error=SimulatorError)
    resolution = _positive(table, "resolution", place, unit)
    return Column(
        name=name, kind=kind, column=table.get("column"), unit=unit, si=si,
        hold=table.get("hold", "zoh" if kind == "command" else "linear"), enable=table.get("enable"),
        resolution=None if resolution is None else resolution * scale, pattern=table.get("pattern"),
    )  # fmt: skip


def _control_unit(model: mujoco.MjModel, actuator: int) -> str:
    """A position servo is told an angle, a motor a torque."""
    slide = model.actuator_trntype[actuator] == mujoco.mjtTrn.mjTRN_JOINT and (
        model.jnt_type[model.actuator_trnid[actuator, 0]] == mujoco.mjtJoint.mjJNT_SLIDE
    )
    if model.actuator_biastype[actuator] == mujoco.mjtBias.mjBIAS_NONE:
        return "N" if slide else "N m"
    position = model.actuator_biasprm[actuator, 1] != 0
    return {(True, True): "m", (True, False): "rad", (False, True): "m/s", (False, False): "rad/s"}[bool(position), bool(slide)]


def _sensor_unit(model: mujoco.MjModel, sensor: int, declared: str) -> tuple[Any, str]:
    """Kind of a sensor and its SI unit; sensors that MuJoCo does not tie to a quantity keep the declared unit."""
    kind, angular, linear = _SENSOR_UNITS.get(mujoco.mjtSensor(model.sensor_type[sensor]), ("other", declared, declared))
    joint = model.sensor_objtype[sensor] == mujoco.mjtObj.mjOBJ_JOINT
    slide = joint and model.jnt_type[model.sensor_objid[sensor]] == mujoco.mjtJoint.mjJNT_SLIDE
    return kind, linear if slide else angular
