"""What a reader gives: the columns and scalars of one file, as written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np


@dataclass(frozen=True)
class LogTable:
    """The content of one log.

    ``columns`` maps names to arrays (n,), all of one length; a column that is not numeric keeps its text. ``scalars`` are
    values known for the whole run. ``notes`` tell what the reader left out.
    """

    columns: Mapping[str, np.ndarray]
    scalars: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Reader(Protocol):
    """One file format.

    ``suffixes`` are the endings of the file names it reads, with dots, lower case. ``read`` raises RecordingError, naming
    the file and the fix, for a file it cannot read, and never runs code that a file holds (no pickle).
    """

    suffixes: tuple[str, ...]

    def read(self, path: Path) -> LogTable:
        """The content of one file."""
        ...
