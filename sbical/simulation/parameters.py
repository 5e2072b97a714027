"""The unknowns: named, with a unit and a support, in a fixed order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sbical.errors import SimulatorError, unknown

Support = Literal["real", "nonnegative", "positive", "unit_interval"]

#: Closed bounds of each support; "positive" excludes zero itself.
BOUNDS: Mapping[str, tuple[float, float]] = {
    "real": (-np.inf, np.inf),
    "nonnegative": (0.0, np.inf),
    "positive": (0.0, np.inf),
    "unit_interval": (0.0, 1.0),
}


@dataclass(frozen=True)
class Parameter:
    """An unknown, named by the effects whose roles it fills.

    ``unit`` is an SI unit string, ``used_by`` lists ``"effect.role"`` of every use.
    """

    name: str
    unit: str
    support: Support
    used_by: tuple[str, ...]

    def merged(self, other: Parameter) -> Parameter:
        """The same unknown used twice: units must agree, the narrower support holds.

        Raises SimulatorError if the two uses have different units.
        """
        if self.unit != other.unit:
            raise SimulatorError(
                f"parameter '{self.name}' is [{self.unit}] in {self.used_by[0]} but [{other.unit}] in "
                f"{other.used_by[0]}; give the two uses different names"
            )
        order = ("unit_interval", "positive", "nonnegative", "real")
        support = min((self.support, other.support), key=order.index)
        return Parameter(self.name, self.unit, support, self.used_by + other.used_by)


@dataclass(frozen=True)
class ParameterSpace:
    """All unknowns of a simulator in order; column i of every ``theta`` is parameter i."""

    parameters: tuple[Parameter, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names in order."""
        return tuple(p.name for p in self.parameters)

    @property
    def units(self) -> tuple[str, ...]:
        """SI units in order."""
        return tuple(p.unit for p in self.parameters)

    def __len__(self) -> int:
        return len(self.parameters)

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.parameters)

    def index(self, name: str) -> int:
        """Column of a parameter. Raises SimulatorError for a name that is not one."""
        if name not in self.names:
            raise SimulatorError(unknown("parameter", name, self.names))
        return self.names.index(name)

    def vector(self, values: Mapping[str, float]) -> np.ndarray:
        """``{name: value}`` in SI units to (d,). Raises SimulatorError for missing or unknown names."""
        for name in values:
            self.index(name)
        missing = [n for n in self.names if n not in values]
        if missing:
            raise SimulatorError(f"no value for parameter {', '.join(missing)}; give one for each of {', '.join(self.names)}")
        return np.array([float(values[n]) for n in self.names])

    def mapping(self, theta: np.ndarray) -> dict[str, float]:
        """(d,) to ``{name: value}`` in SI units."""
        return {n: float(v) for n, v in zip(self.names, theta, strict=True)}
