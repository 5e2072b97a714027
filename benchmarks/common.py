"""What every benchmark shares: its options, and one JSON object as the last line."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def options(doc: str | None, *, data: bool = False) -> argparse.ArgumentParser:
    """``--json``, ``--quick`` and, for real recordings, ``--data``."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--quick", action="store_true", help="the same path at a small budget; its figures mean little")
    if data:
        folder = Path(__file__).resolve().parents[1].parent / "shared" / "data"
        parser.add_argument("--data", type=Path, default=folder, help="folder of the real recordings (default: ../shared/data)")
    return parser


def need(folder: Path) -> None:
    """End with a plain message where the real recordings are missing."""
    if not folder.is_dir():
        sys.exit(f"the real recordings are missing: no folder {folder}; pass the folder that holds them with --data")


class Timer:
    """Wall time since it was made [s]."""

    def __init__(self) -> None:
        self.began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds since it was made."""
        return round(time.perf_counter() - self.began, 2)


def finish(name: str, figures: Mapping[str, Any], seeds: Sequence[int], timer: Timer, *, as_json: bool) -> None:
    """The last line: one JSON object, also without ``--json`` in a readable form."""
    result = {"benchmark": name, "figures": figures, "seeds": list(seeds), "seconds": timer.seconds}
    print(json.dumps(result) if as_json else json.dumps(result, indent=2))
