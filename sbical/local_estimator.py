"""The estimators of a local calibration: one around each mode, with its summary of the recordings and its share."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sbical.chart import Chart, ChartedEstimator
from sbical.errors import OutputError
from sbical.estimator import from_state, read_state, write_state
from sbical.linear_summary import LinearSummary

#: Layout of a local estimator.pt.
FORMAT = 1


@dataclass(frozen=True, eq=False)
class Part:
    """A mode: its ``summary``, the recordings' summary ``x_o`` (k,), its estimator, and the share of draws it gives."""

    share: float
    summary: LinearSummary
    x_o: np.ndarray
    estimator: ChartedEstimator


@dataclass(frozen=True, eq=False)
class LocalEstimator:
    """A mixture of estimators, each of which knows the recordings through its own summary."""

    parts: tuple[Part, ...]

    def log_prob(self, u: np.ndarray) -> np.ndarray:
        """(n,) log density of unconstrained parameters u (n, d) given the recordings, before the correction."""
        each = [p.estimator.log_prob_pairs(u, np.broadcast_to(p.x_o, (len(u), len(p.x_o)))) + np.log(p.share) for p in self.parts]
        return np.logaddexp.reduce(np.stack(each), axis=0)

    def save(self, path: str | Path) -> None:
        """Plain tensors and values. Raises OutputError if the file cannot be written."""
        parts = []
        for p in self.parts:
            chart = {f.name: torch.tensor(getattr(p.estimator.chart, f.name)) for f in fields(Chart)}
            arrays = {f.name: torch.tensor(getattr(p.summary, f.name)) for f in fields(LinearSummary) if f.name != "labels"}
            parts.append(
                {
                    "share": p.share, "x_o": torch.tensor(p.x_o), "chart": chart, "summary": arrays, "labels": list(p.summary.labels),
                    "estimator": p.estimator.estimator.state(),
                }
            )  # fmt: skip
        write_state({"format": FORMAT, "local": parts}, path)


def load_local_estimator(path: str | Path) -> LocalEstimator:
    """Read back what ``LocalEstimator.save`` wrote. Raises OutputError for anything else."""
    content = read_state(path)
    if "local" in content and content["format"] != FORMAT:
        fix = "calibrate again, or use the version that wrote it"
        raise OutputError(f"{path} has layout {content['format']}, this sbical reads layout {FORMAT}; {fix}")
    try:
        return LocalEstimator(tuple(_part(item, path) for item in content["local"]))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise OutputError(f"{path} is damaged ({type(error).__name__} on rebuilding it); calibrate again") from error


def _part(item: dict[str, Any], path: str | Path) -> Part:
    arrays = {name: value.numpy() for name, value in item["summary"].items()}
    summary = LinearSummary(**arrays, labels=tuple(item["labels"]))
    chart = Chart(**{name: value.numpy() for name, value in item["chart"].items()})
    return Part(item["share"], summary, item["x_o"].numpy(), ChartedEstimator(from_state(item["estimator"], path), chart))
