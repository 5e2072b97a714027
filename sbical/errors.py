"""Every error a user can cause, and the wording they share.

SbicalError                      the command line turns each into one message and exit code 2
├── CatalogError                 a name that is neither in the catalog nor a path
├── RecordingError               a log that cannot be read or used
├── SimulatorError               simulator.toml, MJCF, effects and their targets
├── PriorError                   prior.toml, distributions, supports
├── ExperimentError              nothing usable to replay, or another protocol
├── SimulationError              simulations that failed where none may
├── ClusterError                 scheduler or workers
├── OutputError                  a folder or file that cannot be written or read back
└── RefusedError                 an action that a failed verdict forbids
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SbicalError(Exception):
    """Base of all errors that name a culprit, the valid options and the fix."""


class SbicalWarning(UserWarning):
    """Something unusual that is nevertheless what was asked for."""


class CatalogError(SbicalError):
    """A simulator or prior that is neither in the catalog nor a path."""


class RecordingError(SbicalError):
    """A recording that cannot be read or used."""


class SimulatorError(SbicalError):
    """A mistake in simulator.toml, its MJCF or its effects."""


class PriorError(SbicalError):
    """A mistake in a prior, or a prior that does not fit its simulator."""


class ExperimentError(SbicalError):
    """Recordings that leave nothing to replay, or that ran another protocol."""


class SimulationError(SbicalError):
    """Too many simulations failed for anything to be learned from the rest."""


class ClusterError(SbicalError):
    """A Dask scheduler that cannot be reached, or workers that cannot simulate."""


class OutputError(SbicalError):
    """A file or folder that cannot be written, or is not what it should be."""


class RefusedError(SbicalError):
    """An action that the verdict forbids."""


def unknown(kind: str, name: str, options: Iterable[str], *, where: str = "") -> str:
    """One message for every wrong name: the culprit, the closest option, all options."""
    names = sorted(options)
    place = f" in {where}" if where else ""
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    listed = ", ".join(names) if names else "none"
    return f"no {kind} '{name}'{place}{hint} (valid: {listed})"
