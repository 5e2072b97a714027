"""Where a calibration came from: versions, hashes, seeds, counts, times."""

from __future__ import annotations

import datetime
import hashlib
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import mujoco
import numpy as np

import sbical
from sbical.inference.plan import Plan
from sbical.inference.training import Training
from sbical.simulation.runner import Runner

#: Layout of a run's folder; a reader refuses others.
FORMAT = 2

#: Packages whose version decides the numbers of a run, and those that only tell where it came from.
_NUMERIC = ("mujoco", "torch", "sbi", "pyro-ppl", "zuko", "scikit-learn", "numpy", "scipy")
_PACKAGES = (*_NUMERIC, "dask", "zarr", "xarray", "arviz-base", "arviz-stats", "arviz-plots")


def provenance(intended: Plan, runner: Runner) -> dict[str, Any]:
    """Plain data for provenance.json."""
    return {
        "format": FORMAT,
        "sbical": sbical.__version__,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "processor": platform.processor() or platform.machine(),
        "packages": versions(),
        "simulator": intended.simulator.name,
        "simulator_sha256": intended.simulator.digest(),
        "experiment_sha256": intended.experiment.digest(),
        "timestep": intended.simulator.timestep,
        "integrator": mujoco.mjtIntegrator(int(intended.simulator.model.opt.integrator)).name.removeprefix("mjINT_"),
        "seed": intended.seed,
        "method": intended.method,
        "simulations": runner.count,
        "failed_simulations": dict(runner.failures),
        "seconds_per_simulation": intended.seconds_per_simulation,
        "workers": intended.workers,
        "seconds": dict(runner.spent),
        "plan": intended.to_dict(),
    }


def identity(intended: Plan, training: Training | None, start_draws: np.ndarray | None) -> dict[str, Any]:
    """Plain data: all that decides the simulations of a run, so that none is taken for another's."""
    draws = intended.prior.sample(8, 0)
    asked = {"simulations": intended.simulations} if intended.limit is None else {"seconds": intended.limit}
    return {
        "sbical": sbical.__version__,
        "packages": {name: found for name, found in versions().items() if name in _NUMERIC},
        "simulator": intended.simulator.name,
        "simulator_sha256": intended.simulator.digest(),
        "experiment_sha256": intended.experiment.digest(),
        "holdout_sha256": intended.holdout.digest(),
        # a prior may be a function: by its parameters and some of its draws
        "prior_sha256": hashlib.sha256(" ".join(intended.prior.names).encode() + draws.tobytes()).hexdigest(),
        "method": intended.method,
        "seed": intended.seed,
        "training": None if training is None else repr(training),
        "start_sha256": None if start_draws is None else hashlib.sha256(start_draws.tobytes()).hexdigest(),
        **asked,
    }


def versions() -> dict[str, str]:
    """Installed versions of the packages that decide a result."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
