"""The table keeps every draw and needs numpy alone to be read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from sbical.results.randomization import Randomization


def test_columns_are_the_draws_bitwise(tmp_path: Path, randomization: Randomization) -> None:
    path = randomization.export("npz", tmp_path / "table.npz")
    with np.load(path, allow_pickle=False) as archive:
        assert archive.files == ["kt", "tip_mass", "reach", "lag", "sbical_meta"]
        for i, name in enumerate(randomization.names):
            np.testing.assert_array_equal(archive[name], randomization.draws[:, i])
        meta = json.loads(str(archive["sbical_meta"]))
    assert meta == {
        "format": 1,
        "names": ["kt", "tip_mass", "reach", "lag"],
        "units": {"kt": "N m/A", "tip_mass": "kg", "reach": "m", "lag": "s"},
        "verdict": "pass",
        "warning": None,
        "conditions": {"supply": 7.4},
        "provenance": {"seed": 0, "timestep": 0.004},
    }
