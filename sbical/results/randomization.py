"""Domain randomization: correlated posterior draws, their central ranges, and the MuJoCo fields they are written to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from sbical.common.statistics import central_interval
from sbical.errors import OutputError, RefusedError
from sbical.results import exports
from sbical.results.exports import ranges, table
from sbical.results.exports.base import FieldRange, SignalRole
from sbical.simulation.families.base import ConditionRef
from sbical.simulation.simulator import NamedWrite, Simulator


@dataclass(frozen=True, eq=False)
class Randomization:
    """Draws of all parameters together, and central ranges that hold ``mass`` of each.

    ``draws`` (n, d) in SI units, one row per simulated robot: sample rows to keep the correlations; ``low`` and ``high``
    (d,) are a box, which drops them. ``writes`` and ``signal_path`` say where each parameter acts, for models under
    ``conditions`` (what was known rather than inferred, such as a gain). ``status`` and ``reasons`` come from the verdict.
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    draws: np.ndarray
    mass: float = 0.9
    writes: tuple[FieldRange, ...] = ()
    signal_path: tuple[SignalRole, ...] = ()
    status: str = "pass"
    reasons: tuple[str, ...] = ()
    conditions: Mapping[str, float] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    source: Simulator | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not 0 < self.mass < 1:
            raise OutputError(f"a range cannot hold a mass of {self.mass:g}; give a number between 0 and 1, for example 0.9")

    @classmethod
    def of(
        cls,
        simulator: Simulator,
        draws: np.ndarray,
        *,
        mass: float = 0.9,
        status: str = "pass",
        reasons: tuple[str, ...] = (),
        conditions: Mapping[str, float] | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> Randomization:
        """The randomization of a simulator by posterior draws (n, d). Raises OutputError for a mass outside (0, 1)."""
        bare = cls(
            names=simulator.parameters.names,
            units=simulator.parameters.units,
            draws=draws,
            mass=mass,
            status=status,
            reasons=reasons,
            provenance=dict(provenance or {}),
            source=simulator,
        )
        return bare.under(conditions or {})

    def under(self, conditions: Mapping[str, float]) -> Randomization:
        """The same parameters for other conditions [SI], such as another gain: what they write follows, they do not change.

        Raises OutputError for a table that came without its simulator.
        """
        if self.source is None:
            raise OutputError("a bare table knows no conditions; take the randomization of a calibration (load_calibration)")
        known = {**self.conditions, **conditions}
        writes = self.source.writes(self.draws, known)
        return replace(
            self,
            writes=tuple(_field_range(w, self.mass) for w in writes if w.parameters),
            signal_path=_signal_path(self.source, self.draws),
            conditions=known,
        )

    @property
    def unknown_conditions(self) -> tuple[str, ...]:
        """Conditions that the simulator's effects follow and nobody gave; their writes are missing."""
        effects = self.source.effects if self.source is not None else ()
        used = [v.name for e in effects for v in e.roles.values() if isinstance(v, ConditionRef)]
        return tuple(dict.fromkeys(n for n in used if n not in self.conditions))

    @property
    def low(self) -> np.ndarray:
        """(d,): lower ends of the central ranges [SI]."""
        return central_interval(self.draws, self.mass)[0]

    @property
    def high(self) -> np.ndarray:
        """(d,): upper ends of the central ranges [SI]."""
        return central_interval(self.draws, self.mass)[1]

    @property
    def median(self) -> np.ndarray:
        """(d,): median of each parameter [SI]."""
        return np.median(self.draws, axis=0)

    def sample(self, n: int, seed: int) -> np.ndarray:
        """(n, d): rows of the table in random order; every row is used once before any is used again."""
        rng = np.random.default_rng(seed)
        rounds = -(-n // len(self.draws))
        rows = np.concatenate([rng.permutation(len(self.draws)) for _ in range(rounds)]) if rounds else np.zeros(0, dtype=int)
        return self.draws[rows[:n]]

    def save(self, folder: str | Path) -> None:
        """Write ``randomization.npz`` and ``randomization.json``, marked inside where the verdict failed.

        Raises OutputError if the folder cannot be written.
        """
        table.write(self, Path(folder) / "randomization.npz")
        ranges.write(self, Path(folder) / "randomization.json")

    def export(self, kind: str, path: str | Path, *, force: bool = False) -> Path:
        """Write one of the registered formats (mjcf, json, npz) and return its path.

        Raises RefusedError after a failed verdict unless ``force``, which marks the file as failed inside; OutputError
        for an unknown kind or a file that cannot be written.
        """
        export = exports.find(kind)
        if self.status == "fail" and not force:
            why = f" ({'; '.join(self.reasons)})" if self.reasons else ""
            raise RefusedError(
                f"the verdict of this calibration is fail{why}: its ranges must not be trained on; follow the remedies in its "
                "report, or export all the same with --force (force=True), which marks the file as failed"
            )
        export.write(self, Path(path))
        return Path(path)


def _field_range(write: NamedWrite, mass: float) -> FieldRange:
    low, high = central_interval(write.values, mass)
    return FieldRange(
        parameters=write.parameters,
        effect=write.effect,
        field=write.field,
        index=tuple(int(i) for i in write.index),
        object=write.object,
        op=write.op,
        low=float(low),
        median=float(np.median(write.values)),
        high=float(high),
    )


def _signal_path(simulator: Simulator, draws: np.ndarray) -> tuple[SignalRole, ...]:
    """The roles of every effect that acts beside the model's fields; those that follow a condition differ between recordings."""
    found = []
    for bound in simulator.engine.effects:
        if bound.hooks.write is not None and bound.hooks.step is None:
            continue
        effect = bound.effect
        for role, value in effect.roles.items():
            if isinstance(value, ConditionRef):
                continue
            unit = bound.family.roles[role].unit
            if unit == "sensor":
                unit = simulator.columns.get(effect.targets[0]).si
            parameter = value if isinstance(value, str) else None
            median = float(np.median(draws[:, simulator.parameters.index(value)])) if isinstance(value, str) else float(value)
            found.append(SignalRole(effect.name, effect.family, role, unit, effect.targets, parameter, median))
    return tuple(found)
