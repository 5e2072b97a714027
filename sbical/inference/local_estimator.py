"""Mixture of the mode estimators of one local calibration, each with its own summary; its file format."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sbical.errors import OutputError
from sbical.inference.estimator import from_state, read_state, write_state
from sbical.inference.mode_estimator import ModeEstimator, RegressionCoordinates
from sbical.laplace.linear_summary import LinearSummary
from sbical.laplace.ridge import Ridge
from sbical.laplace.truncated_box import Box

#: Layout of a local estimator.pt.
FORMAT = 2


@dataclass(frozen=True, eq=False)
class ModePart:
    """A mode: its ``summary``, the recordings' summary ``x_o`` (k,), its estimator, and the share of draws it gives."""

    share: float
    summary: LinearSummary
    x_o: np.ndarray
    estimator: ModeEstimator


@dataclass(frozen=True, eq=False)
class LocalEstimator:
    """A mixture of estimators, each of which knows the recordings through its own summary."""

    parts: tuple[ModePart, ...]

    def log_prob(self, u: np.ndarray) -> np.ndarray:
        """(n,) log density of unconstrained parameters u (n, d) given the recordings, before the correction."""
        each = [p.estimator.log_prob_pairs(u, np.broadcast_to(p.x_o, (len(u), len(p.x_o)))) + np.log(p.share) for p in self.parts]
        return np.logaddexp.reduce(np.stack(each), axis=0)

    def save(self, path: str | Path) -> None:
        """Plain tensors and values. Raises OutputError if the file cannot be written."""
        parts = []
        for p in self.parts:
            coordinates = _coordinates_state(p.estimator.coordinates)
            arrays = {f.name: torch.tensor(getattr(p.summary, f.name)) for f in fields(LinearSummary) if f.name != "labels"}
            parts.append(
                {
                    "share": p.share, "x_o": torch.tensor(p.x_o), "chart": coordinates,  # as files have always called them
                    "summary": arrays, "labels": list(p.summary.labels),
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


def _part(item: dict[str, Any], path: str | Path) -> ModePart:
    arrays = {name: value.numpy() for name, value in item["summary"].items()}
    summary = LinearSummary(**arrays, labels=tuple(item["labels"]))
    estimator = ModeEstimator(from_state(item["estimator"], path), _coordinates(item["chart"]))
    return ModePart(item["share"], summary, item["x_o"].numpy(), estimator)


def _coordinates_state(coordinates: RegressionCoordinates) -> dict[str, Any]:
    """Plain tensors."""
    box = {f.name: torch.tensor(getattr(coordinates.box, f.name)) for f in fields(Box) if f.name != "ridges"}
    ridges = [{f.name: torch.tensor(getattr(ridge, f.name)) for f in fields(Ridge)} for ridge in coordinates.box.ridges]
    return {"box": box, "ridges": ridges, "intercept": torch.tensor(coordinates.intercept), "slope": torch.tensor(coordinates.slope)}


def _coordinates(state: dict[str, Any]) -> RegressionCoordinates:
    ridges = tuple(Ridge(int(r["axis"]), *(r[name].numpy() for name in ("knots", "offset", "root"))) for r in state["ridges"])
    box = Box(**{name: value.numpy() for name, value in state["box"].items()}, ridges=ridges)
    return RegressionCoordinates(box, state["intercept"].numpy(), state["slope"].numpy())
