"""Where a calibration came from: versions, hashes, seeds, counts, times."""

from __future__ import annotations

import datetime
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import mujoco

import sbical
from sbical.plan import Plan
from sbical.runner import Runner

#: Layout of a run's folder; a reader refuses others.
FORMAT = 2

_PACKAGES = ("mujoco", "torch", "sbi", "pyro-ppl", "zuko", "dask", "numpy", "scipy", "xarray", "arviz-base", "arviz-stats", "arviz-plots")


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


def versions() -> dict[str, str]:
    """Installed versions of the packages that decide a result."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
