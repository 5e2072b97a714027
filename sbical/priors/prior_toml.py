"""Priors as TOML: a table per parameter, read into Pyro sites.

A table ``[torque_constant]`` holds ``distribution`` (a name in ``distributions.DISTRIBUTIONS``), its arguments under their own
names (``low = 0.1``), their ``unit`` (converted to the parameter's) and the ``source`` of the range, as text.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyro

from sbical.errors import PriorError
from sbical.priors.distributions import build
from sbical.simulation.parameters import Parameter

Entries = Mapping[str, Mapping[str, object]]

#: Key of the file that stands for a prior written in Python.
FUNCTION = "function"
_OWN_KEYS = ("distribution", "unit", "source")


def read(path: Path) -> Entries:
    """The entries of a prior's TOML file, by parameter.

    Raises PriorError if the file is not TOML, is empty, or stands for a prior written in Python.
    """
    try:
        content = tomllib.loads(path.read_bytes().decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PriorError(f"{path} is not valid TOML: {error}") from error
    except OSError as error:
        raise PriorError(f"cannot read the prior {path}: {error.strerror}") from error
    if FUNCTION in content:
        raise PriorError(f"{path} stands for the Pyro model function {content[FUNCTION]}, which no file holds; pass that function again")
    if not content:
        raise PriorError(f"{path} has no entry; write a table per parameter, [name] with distribution, its arguments, unit and source")
    for name, entry in content.items():
        if not isinstance(entry, dict):
            raise PriorError(f"{path}: '{name}' stands outside any entry; put it below the [parameter] it belongs to")
    return content


def model(entries: Entries, *, where: str) -> Callable[[], None]:
    """The Pyro model of independent sites that the entries describe; ``where`` names the prior in messages.

    Raises PriorError for an entry without distribution, unit or source, and for what ``distributions.build`` rejects.
    """
    sites: dict[str, tuple[Any, Any]] = {}
    for name, entry in entries.items():
        place = f"{where}, entry '{name}'"
        for key in _OWN_KEYS:
            if not isinstance(entry.get(key), str) or not str(entry[key]).strip():
                raise PriorError(f"{place}: {key} is missing; give {', '.join(_OWN_KEYS)} as text, and the distribution's arguments")
        given = {k: v for k, v in entry.items() if k not in _OWN_KEYS}
        sites[name] = (build(str(entry["distribution"]), given, where=place), {"unit": entry["unit"], "source": entry["source"]})

    def sample() -> None:
        for name, (distribution, about) in sites.items():
            infer: Any = dict(about)
            pyro.sample(name, distribution, infer=infer)

    return sample


def write(entries: Entries) -> str:
    """TOML text that ``read`` turns into the same entries."""
    blocks = []
    for name, entry in entries.items():
        lines = [f"{key} = {_value(value)}" for key, value in entry.items()]
        blocks.append("\n".join([f"[{_key(name)}]", *lines]))
    return "\n\n".join(blocks) + "\n"


def function(model: Callable[[], object]) -> str:
    """TOML that stands for a prior written in Python."""
    name = f"{getattr(model, '__module__', '?')}.{getattr(model, '__qualname__', '?')}"
    return f"{FUNCTION} = {_value(name)}\n"


def describe(entry: Mapping[str, object]) -> str:
    """An entry on one line: ``LogUniform(low=0.1, high=2.0) [N m/A]``."""
    given = ", ".join(f"{k}={v}" for k, v in entry.items() if k not in _OWN_KEYS)
    return f"{entry['distribution']}({given}) [{entry['unit']}]"


def snippet(parameters: Sequence[Parameter]) -> str:
    """Entries to paste for parameters that have none; every ``?`` is for the user to fill in."""
    blocks = []
    for parameter in parameters:
        distribution, names = {
            "real": ("Normal", ("loc", "scale")),
            "unit_interval": ("Uniform", ("low", "high")),
        }.get(parameter.support, ("LogUniform", ("low", "high")))
        values = "\n".join(f"{a} = ?" for a in names)
        unit, source = _value(parameter.unit), '"why this range"'
        blocks.append(f'[{_key(parameter.name)}]\ndistribution = "{distribution}"\n{values}\nunit = {unit}\nsource = {source}')
    return "\n\n".join(blocks)


def _key(name: str) -> str:
    return name if name.isascii() and name.replace("_", "").replace("-", "").isalnum() else _value(name)


def _value(value: object) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped) + '"'
    return repr(value)
