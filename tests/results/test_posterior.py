from __future__ import annotations

from pathlib import Path

import arviz_plots
import arviz_stats
import numpy as np
import pytest
import xarray as xr

from sbical.errors import OutputError
from sbical.results.posterior import Posterior
from sbical.simulation.replay import Replay, WindowReplay


def predictive(rng: np.random.Generator) -> Replay:
    def window(name: str, start: float, n: int) -> WindowReplay:
        return WindowReplay(name, start, np.arange(n) * 0.01, rng.normal(size=(n, 2)), rng.normal(size=(50, n, 2)))

    return Replay(("position", "torque"), ("rad", "N m"), (window("run1", 0.0, 30), window("run1", 1.5, 20), window("run2", 0.0, 40)))


@pytest.fixture
def posterior() -> Posterior:
    """kp is LogUniform(1, 100) and known to 10 % of its decades; damping is not identified at all."""
    rng = np.random.default_rng(0)
    prior = np.stack([10 ** rng.uniform(0, 2, 5000), rng.uniform(0, 0.5, 5000)], axis=1)
    draws = np.stack([10 ** rng.uniform(0.9, 1.1, 2000), rng.uniform(0, 0.5, 2000)], axis=1)
    attrs = {"timestep": 0.002, "recordings": ["run1", "run2"], "simulator": {"name": "servo"}}
    return Posterior(("kp", "damping"), ("N m/rad", "N m s/rad"), draws, prior, predictive(rng), attrs)


def test_median_interval_and_summary(posterior: Posterior) -> None:
    assert posterior.median() == pytest.approx([10.0, 0.25], rel=0.05)
    low, high = posterior.interval(0.9)
    assert low == pytest.approx([10**0.91, 0.025], rel=0.1)
    assert high == pytest.approx([10**1.09, 0.475], rel=0.1)
    kp, damping = posterior.summary()
    assert (kp.name, kp.unit, damping.name, damping.unit) == ("kp", "N m/rad", "damping", "N m s/rad")
    assert (kp.prior_low, kp.prior_high) == pytest.approx((10**0.1, 10**1.9), rel=0.1)
    assert kp.contraction > 0.95
    assert damping.contraction == pytest.approx(0.0, abs=0.1)


def test_datatree_has_groups_units_and_coordinates(posterior: Posterior) -> None:
    tree = posterior.to_datatree()
    assert set(tree.children) == {"posterior", "prior", "posterior_predictive", "observed_data"}
    assert all("units" in v.attrs for group in tree.children.values() for v in group.data_vars.values())
    assert tree["posterior/kp"].dims == ("chain", "draw")
    assert tree["posterior_predictive/torque"].dims == ("chain", "draw", "observation")
    assert tree["posterior_predictive/torque"].shape == (1, 50, 90)
    assert tree["posterior_predictive/torque"].attrs["units"] == "N m"
    observed = tree["observed_data"].to_dataset()
    second = observed["position"].where(observed["window"] == 1, drop=True)
    assert observed["time"].attrs["units"] == "s"
    assert set(second["recording"].to_numpy()) == {"run1"}
    assert posterior.predictive is not None
    assert np.array_equal(second.to_numpy(), posterior.predictive.windows[1].observed[:, 0])


@pytest.mark.filterwarnings("ignore:Deleting a single level of a MultiIndex:FutureWarning")  # inside plot_ppc_dist of ArviZ 0.8
def test_opens_in_arviz_summary_and_plots(posterior: Posterior) -> None:
    tree = posterior.to_datatree()
    table = arviz_stats.summary(tree, ci_prob=0.9, ci_kind="eti", kind="stats")  # pyright: ignore[reportPrivateImportUsage]
    assert list(table.index) == ["kp", "damping"]
    assert "r_hat" not in table.columns
    assert float(table.loc["kp", "mean"]) == pytest.approx(posterior.draws[:, 0].mean(), abs=0.01)
    arviz_plots.plot_dist(tree, backend="none", ci_prob=0.9)
    arviz_plots.plot_prior_posterior(tree, backend="none")
    arviz_plots.plot_forest(tree, backend="none", ci_probs=(0.5, 0.9))
    arviz_plots.plot_ppc_dist(tree, backend="none", num_samples=10)


def test_netcdf_round_trip(posterior: Posterior, tmp_path: Path) -> None:
    posterior.to_netcdf(tmp_path / "posterior.nc")
    again = Posterior.from_netcdf(tmp_path / "posterior.nc")
    assert (again.names, again.units, dict(again.attrs)) == (posterior.names, posterior.units, dict(posterior.attrs))
    assert np.array_equal(again.draws, posterior.draws)
    assert np.array_equal(again.prior, posterior.prior)
    assert posterior.predictive is not None
    assert again.predictive is not None
    assert (again.predictive.channels, again.predictive.units) == (posterior.predictive.channels, posterior.predictive.units)
    for old, new in zip(posterior.predictive.windows, again.predictive.windows, strict=True):
        assert (new.recording, new.start) == (old.recording, old.start)
        assert np.array_equal(new.time, old.time)
        assert np.array_equal(new.observed, old.observed)
        assert np.array_equal(new.draws, old.draws.astype(np.float32))


def test_without_predictive(posterior: Posterior, tmp_path: Path) -> None:
    bare = Posterior(posterior.names, posterior.units, posterior.draws, posterior.prior)
    bare.to_netcdf(tmp_path / "posterior.nc")
    again = Posterior.from_netcdf(tmp_path / "posterior.nc")
    assert again.predictive is None
    assert set(bare.to_datatree().children) == {"posterior", "prior"}


def test_files_that_are_not_a_posterior(posterior: Posterior, tmp_path: Path) -> None:
    path = tmp_path / "posterior.nc"
    with pytest.raises(OutputError, match=r"no posterior at .*posterior.nc; give a posterior.nc that this version"):
        Posterior.from_netcdf(path)
    path.write_bytes(b"not netcdf at all")
    with pytest.raises(OutputError, match=r"posterior.nc is not a netCDF file"):
        Posterior.from_netcdf(path)
    xr.DataTree.from_dict({"posterior": xr.Dataset({"kp": 1.0})}).to_netcdf(path, engine="h5netcdf")
    with pytest.raises(OutputError, match=r"is not a posterior of sbical: it has no 'sbical_format'"):
        Posterior.from_netcdf(path)
    tree = posterior.to_datatree()
    tree.attrs["sbical_format"] = 99
    tree.to_netcdf(path, engine="h5netcdf")
    with pytest.raises(OutputError, match=r"has posterior format 99, this version reads 1"):
        Posterior.from_netcdf(path)


def test_folder_that_does_not_exist(posterior: Posterior, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot write the posterior to .*; choose another output folder"):
        posterior.to_netcdf(tmp_path / "nowhere" / "posterior.nc")
