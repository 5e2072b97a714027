"""Simulating is quiet and fast, changes no result, and leaves the process as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mujoco
import numpy as np
import pytest
from threadpoolctl import threadpool_info

from sbical.recordings.experiment import Experiment
from sbical.simulation.process import simulating
from sbical.simulation.simulator import Simulator


def log_settings() -> tuple[bool, bool]:
    config = mujoco.MjLogConfig.get()
    return config.logto_console, config.logto_file


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def timed() -> float:
    """Profiler time that a few steps leave behind; zero where the clock is off."""
    model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><body><joint/><geom size='.1'/></body></worldbody></mujoco>")
    data = mujoco.MjData(model)
    mujoco.mj_step(model, data, nstep=50)
    return float(data.timer.duration[mujoco.mjtTimer.mjTIMER_STEP])


def _fail_while_simulating() -> None:
    with simulating():
        assert log_settings() == (False, False)
        assert blas_threads() == {1}
        assert timed() == 0
        raise ZeroDivisionError


def test_everything_is_put_back_even_after_an_error() -> None:
    before = log_settings(), blas_threads()
    assert timed() > 0
    with pytest.raises(ZeroDivisionError):
        _fail_while_simulating()
    assert (log_settings(), blas_threads()) == before
    assert timed() > 0


def test_clock_may_stay_on() -> None:
    with simulating(profiler_clock=True):
        assert timed() > 0


def test_nested_use_keeps_the_clock_off_until_the_end() -> None:
    with simulating():
        with simulating():
            assert timed() == 0
        assert timed() == 0
    assert timed() > 0


def test_clock_changes_no_result(pendulum: Simulator, make_experiment: Callable[..., Experiment]) -> None:
    experiment, theta = make_experiment(pendulum), np.array([[0.01], [0.1]])
    with simulating():
        off = pendulum.simulate(theta, experiment, np.arange(2))
    with simulating(profiler_clock=True):
        on = pendulum.simulate(theta, experiment, np.arange(2))
    np.testing.assert_array_equal(off.values[0], on.values[0])


def test_divergence_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], pendulum: Simulator,
    make_experiment: Callable[..., Experiment],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    with simulating():
        simulated = pendulum.simulate(np.zeros((2, 1)), make_experiment(pendulum, command=1e20), np.arange(2))
    assert not simulated.ok.any()
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")
