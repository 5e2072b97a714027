"""The exported MJCF is the calibrated model, to the last digit."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

import mujoco
import numpy as np
import pytest

from sbical.errors import OutputError
from sbical.results.exports import mjcf
from sbical.results.randomization import Randomization
from sbical.simulation.families.voltage_servo import ERROR_GAIN
from sbical.simulation.simulator import Simulator


def test_loaded_file_equals_the_calibrated_model(tmp_path: Path, randomization: Randomization) -> None:
    path = tmp_path / "calibrated.xml"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        randomization.export("mjcf", path)
        loaded = mujoco.MjModel.from_xml_path(str(path))
    assert randomization.source is not None
    expected = randomization.source.calibrated_model(randomization.median, {"supply": 7.4})
    for field in ("actuator_gainprm", "actuator_biasprm", "dof_damping", "body_mass", "body_ipos", "body_quat", "dof_invweight0"):
        np.testing.assert_allclose(getattr(loaded, field), getattr(expected, field), rtol=0, atol=1e-12, err_msg=field)
    kt = randomization.median[0]
    assert loaded.actuator_gainprm[0, 0] == pytest.approx(kt / 2 * 100 * ERROR_GAIN * 7.4, abs=1e-12)
    assert loaded.actuator_forcerange[0, 1] == pytest.approx(kt / 2 * 7.4, abs=1e-12)
    assert loaded.dof_damping[0] == pytest.approx(0.123456789 + kt**2 / 2, abs=1e-12)
    assert loaded.opt.timestep == 0.004


def test_trajectories_of_file_and_model_are_equal(tmp_path: Path, randomization: Randomization) -> None:
    path = randomization.export("mjcf", tmp_path / "calibrated.xml")
    assert randomization.source is not None
    models = (mujoco.MjModel.from_xml_path(str(path)), randomization.source.calibrated_model(randomization.median, {"supply": 7.4}))
    ends = []
    for model in models:
        data = mujoco.MjData(model)
        data.ctrl[0] = 0.5
        mujoco.mj_step(model, data, nstep=500)
        ends.append(np.array(data.qpos))
    np.testing.assert_allclose(ends[0], ends[1], rtol=0, atol=1e-10)


def test_model_that_travelled_is_exported_alike(tmp_path: Path, randomization: Randomization) -> None:
    travelled = replace(randomization, source=pickle.loads(pickle.dumps(randomization.source)))  # noqa: S301  our own bytes
    texts = [r.export("mjcf", tmp_path / f"{i}.xml").read_text() for i, r in enumerate((randomization, travelled))]
    assert texts[0] == texts[1]


def test_signal_path_becomes_custom_numerics(tmp_path: Path, randomization: Randomization) -> None:
    model = mujoco.MjModel.from_xml_path(str(randomization.export("mjcf", tmp_path / "calibrated.xml")))
    assert float(model.numeric("sbical_lag_delay").data[0]) == pytest.approx(randomization.median[3], abs=1e-12)
    assert float(model.numeric("sbical_push_std").data[0]) == 0.01
    assert model.nnumeric == 3


def test_header_names_values_conditions_and_failure(tmp_path: Path, failed: Randomization) -> None:
    text = failed.export("mjcf", tmp_path / "calibrated.xml", force=True).read_text()
    header = text[: text.index("-->")].splitlines()
    assert header[0] == "<!--"
    assert header[1] == "FAILED VERDICT: do not use for training; support: outside - - far"
    assert header[2] == "sbical: posterior median, verdict fail"
    assert header[3].startswith("kt = 0.33")
    assert "N m/A (90 % range 0.2" in header[3]
    assert "for supply = 7.4" in header
    assert '<text name="sbical_verdict" data="fail"/>' in text


def test_values_mujoco_cannot_express_are_an_error(tmp_path: Path, randomization: Randomization) -> None:
    impossible = replace(randomization, draws=randomization.draws * np.array([1.0, 0.0, 1.0, 1.0]))
    with pytest.raises(OutputError) as caught:
        impossible.export("mjcf", tmp_path / "calibrated.xml")
    assert str(caught.value) == (
        "MJCF cannot hold the posterior median: mass and inertia of moving bodies must be larger than mjMINVAL Element name 'lower', "
        "id 2, line 16; change what it names in model.xml or the prior"
    )
    assert not list(tmp_path.iterdir())


def test_file_that_does_not_compile_to_the_model_is_an_error(tmp_path: Path, randomization: Randomization) -> None:
    class Stale(Simulator):
        """A simulator that changes a mass without letting MuJoCo recompute what follows from it."""

        def calibrated_model(self, theta: np.ndarray, conditions: Mapping[str, float] | None = None) -> mujoco.MjModel:
            model = self.spec().compile()
            model.body_mass[2] = theta[1]
            return model

    assert randomization.source is not None
    stale = Stale(**{f.name: getattr(randomization.source, f.name) for f in fields(Simulator)})
    with pytest.raises(OutputError, match=r"compiles to other values in .*body_subtreemass.*: the simulator's model is not what"):
        replace(randomization, source=stale).export("mjcf", tmp_path / "calibrated.xml")
    assert not list(tmp_path.iterdir())


def test_missing_condition_is_asked_for(tmp_path: Path, arm: Simulator, draws: np.ndarray) -> None:
    bare = Randomization.of(arm, draws)
    assert not [w for w in bare.writes if w.effect == "motor"]
    with pytest.raises(OutputError) as caught:
        bare.export("mjcf", tmp_path / "calibrated.xml")
    assert str(caught.value) == "an MJCF holds one value of condition supply, and none is known; give it: --set supply=VALUE"
    path = bare.under({"supply": 5.0}).export("mjcf", tmp_path / "calibrated.xml")
    limit = mujoco.MjModel.from_xml_path(str(path)).actuator_forcerange[0, 1]
    assert limit == pytest.approx(bare.median[0] / 2 * 5.0, abs=1e-12)


def test_bare_table_cannot_become_an_mjcf(tmp_path: Path, randomization: Randomization) -> None:
    with pytest.raises(OutputError) as caught:
        replace(randomization, source=None).export("mjcf", tmp_path / "calibrated.xml")
    assert str(caught.value) == (
        "an MJCF needs the simulator it calibrates; export from a calibration (load_calibration), not from a bare table"
    )


def test_differences_names_the_field(randomization: Randomization) -> None:
    assert randomization.source is not None
    a = randomization.source.calibrated_model(randomization.median, {"supply": 7.4})
    b = randomization.source.calibrated_model(randomization.median, {"supply": 7.4})
    assert mjcf.differences(a, b) == []
    b.dof_damping[1] += 1e-8
    b.opt.timestep = 0.002
    assert mjcf.differences(a, b) == ["dof_damping", "opt.timestep"]
