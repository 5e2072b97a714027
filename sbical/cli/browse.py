"""Commands that look at simulators and priors: list and show. They read TOML and MJCF, never torch."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from tyro.conf import Positional, arg

from sbical.common import catalog
from sbical.errors import CatalogError, PriorError, SbicalError, unknown

if TYPE_CHECKING:
    from sbical.recordings.column_map import Column


@dataclass(frozen=True)
class List:
    """List the simulators and priors that come with sbical."""

    def run(self, console: Console) -> None:
        """Print both kinds."""
        simulators = Table("simulator", "what it is", "example recordings", box=SIMPLE_HEAD)
        for name in catalog.names("simulator"):
            about = str(_toml(catalog.find("simulator", name)).get("description", ""))
            simulators.add_row(name, escape(about), str(len(catalog.examples(name))))
        priors = Table("prior", "parameters", box=SIMPLE_HEAD)
        for name in catalog.names("prior"):
            priors.add_row(name, escape(", ".join(k for k, v in _toml(catalog.find("prior", name)).items() if isinstance(v, dict))))
        console.print(simulators)
        console.print(priors)
        console.print('Details: "sbical show NAME". A path works wherever a name does.', highlight=False)


@dataclass(frozen=True)
class Show:
    """Show a simulator's effects, parameters, units and columns, or a prior's distributions and their sources.

    Example: sbical show servo_pendulum
    """

    name: Annotated[Positional[str], arg(metavar="NAME")]
    """Simulator or prior: a name from "sbical list" or a path."""

    def run(self, console: Console) -> None:
        """Print whichever kinds the name has."""
        path = Path(self.name)
        simulator = (path / "simulator.toml").is_file() or path.name == "simulator.toml" or self.name in catalog.names("simulator")
        prior = self.name in catalog.names("prior") or (path.is_file() and not simulator)
        if not simulator and not prior:
            names = {*catalog.names("simulator"), *catalog.names("prior")}
            raise CatalogError(unknown("simulator or prior", self.name, names, where="the catalog") + ", or give a path")
        if simulator:
            _simulator(console, self.name)
        if prior:
            _prior(console, self.name)


def _simulator(console: Console, name: str) -> None:
    from sbical.simulation.families import families
    from sbical.simulation.families.base import ConditionRef
    from sbical.simulation.simulator_toml import load_simulator

    simulator = load_simulator(name)
    about = str(tomllib.loads(simulator.toml).get("description", ""))
    console.print(f"[bold]simulator {simulator.name}[/]  timestep {1e3 * simulator.timestep:g} ms", highlight=False)
    if about:
        console.print(escape(about), highlight=False)
    effects = Table("effect", "family", "on", "role", "value", "unit", title="effects", title_justify="left", box=SIMPLE_HEAD)
    for effect in simulator.effects:
        if not effect.roles:  # every role is optional and left to what the model or the measurement says
            effects.add_row(*map(escape, (effect.name, effect.family, ", ".join(effect.targets))), "", "as declared", "")
        for i, (role, value) in enumerate(effect.roles.items()):
            first = (effect.name, effect.family, ", ".join(effect.targets)) if i == 0 else ("", "", "")
            shown = (
                f"condition {value.name}"
                if isinstance(value, ConditionRef)
                else f"[bold]{value}[/]"
                if isinstance(value, str)
                else f"{value:g}"
            )
            unit = families()[effect.family].roles[role].unit
            effects.add_row(*map(escape, first), role, shown, simulator.columns.get(effect.targets[0]).si if unit == "sensor" else unit)
    parameters = Table("parameter", "unit", "support", "used by", title="parameters to infer", title_justify="left", box=SIMPLE_HEAD)
    for p in simulator.parameters:
        parameters.add_row(p.name, p.unit, p.support, ", ".join(p.used_by))
    columns = Table(
        "name", "kind", "column", "unit in the log", "SI", title="columns of a recording", title_justify="left", box=SIMPLE_HEAD
    )
    columns.add_row("time", "time", simulator.columns.time, simulator.columns.time_unit, "s")
    for c in simulator.columns.items:
        columns.add_row(c.name, c.kind, escape(_found(c)), c.unit, c.si)
        if c.enable is not None:
            columns.add_row(f"{c.name}_enable", "0 = motor off", escape(c.enable), "1", "1")
    for table in (effects, parameters, columns):
        console.print(table)


def _found(column: Column) -> str:
    """Where a recording holds a column."""
    if column.column is not None:
        return column.column
    pattern = f"file name ({column.pattern}), " if column.pattern else ""
    return f"{pattern}'# {column.name}: VALUE' line, --set {column.name}=VALUE"


def _prior(console: Console, name: str) -> None:
    path = catalog.find("prior", name)
    table = Table("parameter", "distribution", "unit", "source", title=f"prior {path.stem}", title_justify="left", box=SIMPLE_HEAD)
    for parameter, entry in _toml(path).items():
        if not isinstance(entry, dict):
            continue
        given = {k: v for k, v in entry.items() if k not in ("distribution", "unit", "source")}
        law = f"{entry.get('distribution', '?')}({', '.join(f'{k}={v}' for k, v in given.items())})"
        table.add_row(*(escape(str(v)) for v in (parameter, law, entry.get("unit", ""), entry.get("source", ""))))
    console.print(table)


def _toml(path: Path) -> Mapping[str, Any]:
    kind: type[SbicalError] = CatalogError if path.name == "simulator.toml" else PriorError
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise kind(f"{path} is not a readable TOML file: {error}; give a prior or simulator.toml") from error
