"""Robots drawn from the prior and simulated by the model that will be calibrated: what the coverage of a posterior is measured on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import xarray as xr

from sbical.recordings.experiment import Experiment
from sbical.recordings.initial_state import InitialState
from sbical.recordings.recording import Recording
from sbical.simulation.process import simulating
from sbical.simulation.simulator import Simulator


def recording(name: str, time: np.ndarray, streams: Mapping[str, np.ndarray]) -> Recording:
    """A log of streams (T,) in SI units, all sampled at ``time`` (T,) [s]."""
    nodes = {"/": xr.Dataset()}
    nodes |= {stream: xr.Dataset({"value": ("time", value)}, coords={"time": time}) for stream, value in streams.items()}
    return Recording(name, xr.DataTree.from_dict(nodes, name=name), (), f"{name}.csv")


def shortened(full: Recording, count: int) -> Recording:
    """The first samples of a recording, as another one; held out where a replay is of no interest but must be cheap."""
    streams = {str(name): node.to_dataset() for name, node in full.tree.children.items()}
    time = next(iter(streams.values()))["time"].to_numpy()[:count]
    return recording(f"{full.name} again", time, {name: data["value"].to_numpy()[:count] for name, data in streams.items()})


def started(experiment: Experiment, position: np.ndarray, spread: tuple[float, float]) -> Experiment:
    """The experiment with every window started at rest at ``position`` (nq,), give or take ``spread`` [rad], [rad/s]."""
    n = len(position)
    state = InitialState(np.concatenate([position, np.zeros(n)]), np.diag(np.repeat(spread, n)))
    return replace(experiment, windows=tuple(replace(w, initial=state) for w in experiment.windows))


def measured(simulator: Simulator, theta: np.ndarray, experiment: Experiment, seed: int) -> tuple[np.ndarray, ...] | None:
    """What a robot with theta (d,) logs in each window, (T_w, m), or None where its simulation fails."""
    with simulating():
        found = simulator.simulate(theta[None], experiment, np.array([seed]))
    return tuple(v[0] for v in found.values) if found.ok[0] else None
