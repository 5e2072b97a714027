"""The package is light to import, and its names are where the documentation says."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import sbical

HEAVY = ("torch", "pyro", "sbi", "arviz_base", "sklearn", "matplotlib")


def loaded_by(code: str, candidates: tuple[str, ...]) -> list[str]:
    """Which of the candidates a fresh interpreter has loaded after running ``code``."""
    report = f"{code}\nimport json, sys\nprint(json.dumps([m for m in {candidates!r} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)  # noqa: S603
    return json.loads(done.stdout.splitlines()[-1])


def torch_free_modules() -> list[str]:
    """The modules that a simulating worker may load, as import-linter is told."""
    pyproject = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    contracts = {c["id"]: c for c in pyproject["tool"]["importlinter"]["contracts"]}
    sources = [import_module(name) for name in contracts["torch-free"]["source_modules"]]
    inside = [m.name for s in sources for m in pkgutil.walk_packages(getattr(s, "__path__", []), f"{s.__name__}.")]
    return [*(s.__name__ for s in sources), *inside]


def test_import_loads_no_dependency() -> None:
    assert loaded_by("import sbical", (*HEAVY, "mujoco", "dask", "distributed", "xarray", "numpy")) == []


def test_listing_names_loads_no_dependency() -> None:
    assert loaded_by("import sbical; dir(sbical); sbical.SbicalError; sbical.__version__", (*HEAVY, "mujoco", "numpy")) == []


def test_simulating_side_loads_no_torch() -> None:
    modules = torch_free_modules()
    wanted = {"simulation.fanout", "simulation.simulator", "recordings.recording", "results.exports", "laplace.modes"}
    assert {f"sbical.{name}" for name in wanted} <= set(modules)
    assert loaded_by("\n".join(f"import {m}" for m in modules), HEAVY) == []


@pytest.mark.parametrize("name", sbical.__all__)
def test_every_name_resolves(name: str) -> None:
    assert getattr(sbical, name) is not None
    assert name in dir(sbical)


def test_unknown_name_lists_those_that_exist() -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(sbical, "callibrate")  # noqa: B009  (an attribute access would be a type error)
    assert str(caught.value) == (
        "module 'sbical' has no attribute 'callibrate'; it offers Calibration, SbicalError, Simulator, __version__, calibrate, "
        "load_calibration, load_prior, load_simulator, plan, read_recordings"
    )
