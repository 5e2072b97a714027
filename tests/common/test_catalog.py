"""The catalog finds entries by name and by path, and lists them when it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbical.common import catalog
from sbical.errors import CatalogError
from sbical.simulation.simulator_toml import load_simulator


def test_every_simulator_loads_and_has_example_recordings() -> None:
    assert {"double_pendulum", "servo_pendulum"} <= set(catalog.names("simulator"))
    for name in catalog.names("simulator"):
        assert load_simulator(name).name == name
        assert catalog.examples(name)


def test_names_and_paths(tmp_path: Path) -> None:
    (tmp_path / "simulator.toml").touch()
    (tmp_path / "mine.toml").touch()
    assert catalog.find("simulator", tmp_path) == tmp_path / "simulator.toml"
    assert catalog.find("prior", tmp_path / "mine.toml") == tmp_path / "mine.toml"
    assert catalog.find("simulator", "servo_pendulum").is_file()


def test_wrong_name_and_wrong_path() -> None:
    listed = ", ".join(catalog.names("simulator"))
    with pytest.raises(CatalogError) as caught:
        catalog.find("simulator", "servo_pendulm")
    assert str(caught.value) == (
        f"no simulator 'servo_pendulm' in the catalog; did you mean 'servo_pendulum'? (valid: {listed}), or give a path"
    )
    with pytest.raises(CatalogError) as caught:
        catalog.find("prior", "nowhere/prior.toml")
    assert str(caught.value) == (
        f"no prior at 'nowhere/prior.toml'; give a prior's TOML file, or a catalog name: {', '.join(catalog.names('prior'))}"
    )
