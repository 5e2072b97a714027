"""The package is light to import, and its names are where the documentation says."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import sbical
from sbical.calibrate import calibrate
from sbical.plan import plan

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
    return contracts["torch-free"]["source_modules"]


def test_import_loads_no_dependency() -> None:
    assert loaded_by("import sbical", (*HEAVY, "mujoco", "dask", "distributed", "xarray", "numpy")) == []


def test_listing_names_loads_no_dependency() -> None:
    assert loaded_by("import sbical; dir(sbical); sbical.SbicalError; sbical.__version__", (*HEAVY, "mujoco", "numpy")) == []


def test_simulating_side_loads_no_torch() -> None:
    modules = torch_free_modules()
    assert {"sbical.fanout", "sbical.simulator", "sbical.recording", "sbical.exports"} <= set(modules)
    assert loaded_by("\n".join(f"import {m}" for m in modules), HEAVY) == []


@pytest.mark.parametrize("name", sbical.__all__)
def test_every_name_resolves(name: str) -> None:
    assert getattr(sbical, name) is not None
    assert name in dir(sbical)


@pytest.mark.parametrize(("name", "verb"), [("calibrate", calibrate), ("plan", plan)])
def test_verbs_are_functions_although_modules_share_their_names(name: str, verb: object) -> None:
    setattr(sbical, name, sys.modules[f"sbical.{name}"])  # what Python does when it first imports a submodule
    assert getattr(sbical, name) is verb


def test_unknown_name_lists_those_that_exist() -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(sbical, "callibrate")  # noqa: B009  (an attribute access would be a type error)
    assert str(caught.value) == (
        "module 'sbical' has no attribute 'callibrate'; it offers Calibration, SbicalError, Simulator, __version__, calibrate, "
        "load_calibration, load_prior, load_simulator, plan, read_recordings"
    )
