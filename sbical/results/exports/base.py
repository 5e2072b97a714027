"""What an export reads, and how it leaves a whole file or none."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import mujoco
import numpy as np

from sbical.errors import OutputError

#: What a failed verdict writes into every file made in spite of it.
FAILED = "FAILED VERDICT: do not use for training"


@dataclass(frozen=True)
class FieldRange:
    """One entry of one MuJoCo model field, and what the table makes of it.

    ``op`` is how ``low``, ``median`` and ``high`` act on the compiled model: set, add or scale. They are read off the
    values that whole rows of the table give this entry, so a product of correlated parameters has its true range.
    """

    parameters: tuple[str, ...]
    effect: str
    field: str
    index: tuple[int, ...]
    object: str
    op: str
    low: float
    median: float
    high: float


@dataclass(frozen=True)
class SignalRole:
    """A role that acts on commands, sensors or forces rather than on a model field; no MJCF attribute holds it.

    ``parameter`` is None for a number; ``median`` is in ``unit``.
    """

    effect: str
    family: str
    role: str
    unit: str
    targets: tuple[str, ...]
    parameter: str | None
    median: float


class ModelSource(Protocol):
    """The part of a simulator that an MJCF is written from."""

    def spec(self) -> mujoco.MjSpec:
        """The specification that the simulator's model was compiled from, effects' edits included."""
        ...

    def calibrated_model(self, theta: np.ndarray, conditions: Mapping[str, float] | None = None) -> mujoco.MjModel:
        """The model with parameters ``theta`` (d,) and the given conditions written into it."""
        ...


class RandomizationTable(Protocol):
    """The randomization as exports see it; ``draws`` (n, d), ``low`` and ``high`` (d,), SI."""

    @property
    def names(self) -> tuple[str, ...]:
        """Parameters, in the order of the columns of ``draws``."""
        ...

    @property
    def units(self) -> tuple[str, ...]:
        """Their SI units."""
        ...

    @property
    def draws(self) -> np.ndarray:
        """(n, d): one row per simulated robot."""
        ...

    @property
    def mass(self) -> float:
        """Probability that each range holds."""
        ...

    @property
    def low(self) -> np.ndarray:
        """(d,): lower ends of the ranges."""
        ...

    @property
    def high(self) -> np.ndarray:
        """(d,): upper ends of the ranges."""
        ...

    @property
    def median(self) -> np.ndarray:
        """(d,): median of each parameter."""
        ...

    @property
    def writes(self) -> Sequence[FieldRange]:
        """What the parameters write into the model."""
        ...

    @property
    def signal_path(self) -> Sequence[SignalRole]:
        """What acts outside the model."""
        ...

    @property
    def status(self) -> str:
        """Status of the verdict: pass, warn or fail."""
        ...

    @property
    def reasons(self) -> tuple[str, ...]:
        """Checks that failed, with their figures."""
        ...

    @property
    def unknown_conditions(self) -> tuple[str, ...]:
        """Conditions whose values the writes need and nobody gave."""
        ...

    @property
    def conditions(self) -> Mapping[str, float]:
        """Known conditions that the writes hold for [SI]."""
        ...

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Where the draws came from; plain data."""
        ...

    @property
    def source(self) -> ModelSource | None:
        """The simulator, where there is one."""
        ...


class Export(Protocol):
    """One format: a module with a name, the suffix of its files, and a writer.

    Other packages add theirs through the entry-point group ``sbical.exports``.
    """

    NAME: str
    SUFFIX: str

    def write(self, table: RandomizationTable, path: Path) -> None:
        """Write the whole file. Raises OutputError where it cannot."""
        ...


def warning(table: RandomizationTable) -> str | None:
    """The text every file of a failed calibration carries, or None."""
    if table.status != "fail":
        return None
    return "; ".join((FAILED, *table.reasons))


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, then move it there: readers see the old file or the new one.

    Raises OutputError, naming the path and the reason, if the folder or disk refuses.
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
        os.close(handle)
        temporary = Path(name)
        temporary.chmod(0o644)  # mkstemp's 0600 would hide the result from the user's group
        write(temporary)
        temporary.replace(path)
        temporary = None
    except OSError as error:
        raise OutputError(
            f"cannot write '{path}': {error.strerror or error}; choose a path in a writable folder with free space"
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
