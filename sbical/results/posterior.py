"""The posterior: named draws with units, and the ArviZ tree made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask.config
import numpy as np
import xarray as xr

from sbical.common.statistics import central_interval, contraction
from sbical.errors import OutputError
from sbical.simulation.replay import Replay, WindowReplay

FORMAT = 1


@dataclass(frozen=True)
class ParameterRow:
    """One line of the parameter table; all but ``contraction`` in ``unit``, ranges central."""

    name: str
    unit: str
    prior_low: float
    prior_high: float
    median: float
    low: float
    high: float
    contraction: float


@dataclass(frozen=True, eq=False)
class Posterior:
    """Joint draws of all parameters given the recordings.

    ``draws`` (n, d) and ``prior`` (N, d) in SI units, columns in the order of ``names``; ``predictive`` replays the
    calibration windows with posterior draws, noise included; ``attrs`` is plain data (JSON) that travels with the file;
    ``statistics`` (n,) per draw are ArviZ's ``sample_stats``, such as the log weight that a draw had before it was resampled.
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    draws: np.ndarray
    prior: np.ndarray
    predictive: Replay | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    statistics: Mapping[str, np.ndarray] = field(default_factory=dict)

    def median(self) -> np.ndarray:
        """(d,): median of each parameter [SI]."""
        return np.median(self.draws, axis=0)

    def interval(self, mass: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """(d,), (d,): central range of each parameter that holds ``mass`` of its draws [SI]."""
        return central_interval(self.draws, mass)

    def prior_interval(self, mass: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """(d,), (d,): the same range of the prior [SI]."""
        return central_interval(self.prior, mass)

    def contraction(self) -> np.ndarray:
        """(d,): see ``contraction``."""
        return contraction(self.prior, self.draws)

    def summary(self, mass: float = 0.9) -> list[ParameterRow]:
        """The parameter table, one row per parameter."""
        low, high = self.interval(mass)
        columns = (*self.prior_interval(mass), self.median(), low, high, self.contraction())
        values = np.stack(columns, axis=1).tolist()
        return [ParameterRow(n, u, *row) for n, u, row in zip(self.names, self.units, values, strict=True)]

    def to_datatree(self) -> xr.DataTree:
        """ArviZ tree: groups posterior, prior and, with a predictive replay, posterior_predictive and observed_data.

        Parameters have dims (chain, draw) with one chain: draws are independent, so r_hat has no meaning. Channels have
        dims (chain, draw, observation), observed values (observation); ``time`` [s since the window's start], ``window``, ``start``
        [s] and ``recording`` are coordinates of ``observation`` (ArviZ keeps "sample" for itself). Every variable carries ``units``.
        """
        groups = {"posterior": self._parameters(self.draws), "prior": self._parameters(self.prior)}
        if self.statistics:
            groups["sample_stats"] = self._columns({n: (v, "nats") for n, v in self.statistics.items()})
        if self.predictive is not None:
            groups["posterior_predictive"] = _predictive(self.predictive)
            groups["observed_data"] = _observed(self.predictive)
        tree = xr.DataTree.from_dict(groups)
        tree.attrs.update(sbical_format=FORMAT, sbical_attrs=json.dumps(dict(self.attrs)))
        return tree

    def to_netcdf(self, path: str | Path) -> None:
        """Write the tree. Raises OutputError if the file cannot be written.

        Predictive draws are stored in single precision: they are pictures, and the bulk of the file.
        """
        tree = self.to_datatree()
        encoding = {}
        if self.predictive is not None:
            encoding["/posterior_predictive"] = {c: {"dtype": "float32"} for c in self.predictive.channels}
        # HDF5 crashes the process on a full disk, so it writes into memory; with an open Dask client, xarray would lock through that
        with dask.config.set(scheduler="synchronous"):
            content = tree.to_netcdf(engine="h5netcdf", encoding=encoding)
        try:
            Path(path).write_bytes(content)
        except OSError as error:
            raise OutputError(f"cannot write the posterior to {path}: {error.strerror or error}; choose another output folder") from error

    @classmethod
    def from_netcdf(cls, path: str | Path) -> Posterior:
        """Read what ``to_netcdf`` wrote. Raises OutputError for a file that is missing, foreign or of another version."""
        fix = "give a posterior.nc that this version of sbical wrote, or calibrate again"
        if not Path(path).is_file():
            raise OutputError(f"no posterior at {path}; {fix}")
        try:
            with xr.open_datatree(path, engine="h5netcdf") as opened:
                tree = opened.load()
        except (OSError, ValueError) as error:
            raise OutputError(f"{path} is not a netCDF file: {error}; {fix}") from error
        found = tree.attrs.get("sbical_format")
        if found is None:
            raise OutputError(f"{path} is not a posterior of sbical: it has no 'sbical_format'; {fix}")
        if str(found) != str(FORMAT):
            raise OutputError(f"{path} has posterior format {found}, this version reads {FORMAT}; {fix}")
        missing = [g for g in ("posterior", "prior") if g not in tree.children]
        if missing:
            raise OutputError(f"{path} has no group {', '.join(missing)}; {fix}")
        try:
            return cls._from_datatree(tree)
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise OutputError(f"{path} was changed or damaged ({error!r}); {fix}") from error

    @classmethod
    def _from_datatree(cls, tree: xr.DataTree) -> Posterior:
        posterior = tree["posterior"].to_dataset()
        names = tuple(str(n) for n in posterior.data_vars)
        units = tuple(str(posterior[n].attrs["units"]) for n in names)
        draws, prior = (_matrix(tree[group].to_dataset(), names) for group in ("posterior", "prior"))
        stats = tree["sample_stats"].to_dataset() if "sample_stats" in tree.children else {}
        statistics = {str(name): stats[name].to_numpy().reshape(-1) for name in stats}
        return cls(names, units, draws, prior, _replay(tree), json.loads(tree.attrs["sbical_attrs"]), statistics)

    def _parameters(self, values: np.ndarray) -> xr.Dataset:
        return self._columns({n: (values[:, i], self.units[i]) for i, n in enumerate(self.names)})

    def _columns(self, columns: Mapping[str, tuple[np.ndarray, str]]) -> xr.Dataset:
        """Values (n,) with their units, by name."""
        variables = {name: (("chain", "draw"), values[None], {"units": unit}) for name, (values, unit) in columns.items()}
        n = len(next(iter(columns.values()))[0])
        return xr.Dataset(variables, coords={"chain": [0], "draw": np.arange(n)}, attrs={"sample_dims": ["chain", "draw"]})


def _matrix(dataset: xr.Dataset, names: tuple[str, ...]) -> np.ndarray:
    """(n, d): the columns of a parameter group."""
    return np.stack([dataset[n].to_numpy().reshape(-1) for n in names], axis=1)


def _samples(replay: Replay) -> dict[str, Any]:
    """Coordinates of the observation dimension: all windows end to end."""
    windows = replay.windows
    lengths = [len(w.time) for w in windows]
    return {
        "observation": np.arange(sum(lengths)),
        "time": ("observation", np.concatenate([w.time for w in windows]), {"units": "s"}),
        "start": ("observation", np.repeat([w.start for w in windows], lengths), {"units": "s"}),
        "window": ("observation", np.repeat(np.arange(len(windows)), lengths)),
        "recording": ("observation", np.repeat([w.recording for w in windows], lengths)),
    }


def _predictive(replay: Replay) -> xr.Dataset:
    values = np.concatenate([w.draws for w in replay.windows], axis=1)
    dims = ("chain", "draw", "observation")
    variables = {c: (dims, values[None, :, :, i], {"units": replay.units[i]}) for i, c in enumerate(replay.channels)}
    return xr.Dataset(variables, coords={"chain": [0], "draw": np.arange(len(values)), **_samples(replay)})


def _observed(replay: Replay) -> xr.Dataset:
    values = np.concatenate([w.observed for w in replay.windows], axis=0)
    variables = {c: (("observation",), values[:, i], {"units": replay.units[i]}) for i, c in enumerate(replay.channels)}
    return xr.Dataset(variables, coords=_samples(replay))


def _replay(tree: xr.DataTree) -> Replay | None:
    """The predictive replay back from its two groups."""
    if "posterior_predictive" not in tree.children or "observed_data" not in tree.children:
        return None
    draws, observed = tree["posterior_predictive"].to_dataset(), tree["observed_data"].to_dataset()
    channels = tuple(str(c) for c in draws.data_vars)
    values = np.stack([draws[c].to_numpy()[0] for c in channels], axis=-1).astype(np.float64)
    seen = np.stack([observed[c].to_numpy() for c in channels], axis=-1)
    window, time = draws["window"].to_numpy(), draws["time"].to_numpy()
    windows = []
    for k in range(int(window.max()) + 1):
        rows = np.flatnonzero(window == k)
        name, start = str(draws["recording"].to_numpy()[rows[0]]), float(draws["start"].to_numpy()[rows[0]])
        windows.append(WindowReplay(name, start, time[rows], seen[rows], values[:, rows]))
    return Replay(channels, tuple(str(draws[c].attrs["units"]) for c in channels), tuple(windows))
