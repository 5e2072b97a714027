"""Arrays on disk come back bitwise, and anything else is refused without being unpickled."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sbical.errors import OutputError
from sbical.inference.summary import fit_summary
from sbical.recordings.experiment import Experiment
from sbical.recordings.held_signal import HeldSignal
from sbical.results import npz_files
from sbical.simulation.fanout import SimulationSet
from sbical.simulation.replay import Replay, WindowReplay
from sbical.simulation.rollout import Trajectories
from sbical.simulation.simulator import Simulator

MakeExperiment = Callable[..., Experiment]
LOADERS = (npz_files.load_experiment, npz_files.load_summary, npz_files.load_simulations, npz_files.load_replays)


@pytest.fixture(scope="module")
def experiment(servo: Simulator, make_experiment: MakeExperiment) -> Experiment:
    supply = {"supply": HeldSignal(np.array([0.0, 0.1]), np.array([5.0, 4.9]), "linear")}
    made = make_experiment(servo, seconds=(0.4, 0.3), constants={"kp": 200.0}, signals=supply, spread=(0.01, 0.1))
    return replace(made, notes=("run0: a gap",))


def replays() -> dict[str, Replay]:
    rng = np.random.default_rng(0)
    window = WindowReplay("run0", 1.5, np.arange(5) * 0.01, rng.normal(size=(5, 2)), rng.normal(size=(3, 5, 2)))
    return {"before": Replay(("a", "b"), ("rad", "rad/s"), (window, window)), "after": Replay(("a", "b"), ("rad", "rad/s"), (window,))}


def test_experiment_comes_back(tmp_path: Path, servo: Simulator, experiment: Experiment) -> None:
    npz_files.save_experiment(tmp_path / "experiment.npz", experiment)
    back = npz_files.load_experiment(tmp_path / "experiment.npz")
    assert back.digest() == experiment.digest()
    assert (back.channels, back.units, back.notes) == (experiment.channels, experiment.units, experiment.notes)
    assert [w.opens for w in back.windows] == [w.opens for w in experiment.windows]
    assert back.layout.sensors == experiment.layout.sensors
    theta = np.full((2, len(servo.parameters)), 0.01)
    a, b = (servo.simulate(theta, e, np.arange(2)) for e in (experiment, back))
    np.testing.assert_array_equal(a.values[1], b.values[1])


def test_summary_comes_back(tmp_path: Path, pendulum: Simulator, make_experiment: MakeExperiment) -> None:
    plan = make_experiment(pendulum, spread=(0.01, 0.1))
    pilot = pendulum.simulate(np.linspace(0, 0.1, 40)[:, None], plan, np.arange(40))
    summary = fit_summary(pilot, plan)
    npz_files.save_summary(tmp_path / "summary.npz", summary)
    back = npz_files.load_summary(tmp_path / "summary.npz")
    np.testing.assert_array_equal(back(pilot), summary(pilot))
    assert back.labels == summary.labels


def test_simulations_come_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    seeds = rng.integers(0, 2**64, 6, dtype=np.uint64)
    made = SimulationSet(rng.normal(size=(6, 2)), seeds, np.zeros((6, 1), np.int8), x=rng.normal(size=(6, 3)), seconds_per_simulation=0.25)
    made.x[2] = np.nan  # type: ignore[index]
    npz_files.save_simulations(tmp_path / "simulations.npz", made, {"simulator": "servo"})
    back = npz_files.load_simulations(tmp_path / "simulations.npz")
    for name in ("theta", "seeds", "status", "x"):
        np.testing.assert_array_equal(getattr(back, name), getattr(made, name))
        assert getattr(back, name).dtype == getattr(made, name).dtype
    assert back.seconds_per_simulation == 0.25
    _, header = npz_files.read(tmp_path / "simulations.npz")
    assert header["simulator"] == "servo"


def test_trajectories_are_not_stored(tmp_path: Path) -> None:
    made = SimulationSet(np.zeros((1, 1)), np.zeros(1), np.zeros((1, 1)), trajectories=Trajectories((), np.zeros((1, 1))))
    with pytest.raises(OutputError, match=r"^only summarised simulations are stored; simulate with a summary$"):
        npz_files.save_simulations(tmp_path / "simulations.npz", made, {})


def test_replays_come_back(tmp_path: Path) -> None:
    npz_files.save_replays(tmp_path / "holdout.npz", replays())
    back = npz_files.load_replays(tmp_path / "holdout.npz")
    assert list(back) == ["before", "after"]
    for name, made in replays().items():
        assert (back[name].channels, back[name].units) == (made.channels, made.units)
        for a, b in zip(made.windows, back[name].windows, strict=True):
            assert (b.recording, b.start) == (a.recording, a.start)
            np.testing.assert_array_equal(b.observed, a.observed)
            np.testing.assert_array_equal(b.draws, a.draws.astype(np.float32))


def damaged(path: Path, kind: str, whole: bytes) -> None:
    if kind == "empty":
        path.write_bytes(b"")
    elif kind == "truncated":
        path.write_bytes(whole[: len(whole) // 2])
    elif kind == "flipped":
        middle = len(whole) // 2
        path.write_bytes(whole[:middle] + bytes(255 - b for b in whole[middle : middle + 40]) + whole[middle + 40 :])
    elif kind == "text":
        path.write_text("time,position\n0,1\n")
    elif kind == "one array":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    elif kind == "other arrays":
        np.savez(path, a=np.zeros(3))
    elif kind == "objects":
        np.savez(path, header=np.array([Trap()], dtype=object))
    elif kind == "pickle":
        path.write_bytes(pickle.dumps(Trap()))
    else:
        np.savez(path, header=np.array("[1, 2]"))


class Trap:
    """Fails the test if anything unpickles it."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return _sprung, ("unpickled",)


def _sprung(text: str) -> None:
    raise AssertionError(text)


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(
    "kind", ["empty", "truncated", "flipped", "text", "one array", "other arrays", "objects", "pickle", "other header"]
)
def test_damaged_and_foreign_files_are_refused(tmp_path: Path, experiment: Experiment, kind: str, loader: Callable[[Path], object]) -> None:
    path = tmp_path / "file.npz"
    npz_files.save_experiment(path, experiment)
    damaged(path, kind, path.read_bytes())
    with pytest.raises(OutputError, match=rf"^{path} is not what sbical left there \((?s:.*)\); calibrate again$"):
        loader(path)


@pytest.mark.parametrize("loader", LOADERS)
def test_one_file_is_not_another(tmp_path: Path, experiment: Experiment, loader: Callable[[Path], object]) -> None:
    npz_files.save_replays(tmp_path / "a.npz", replays())
    npz_files.save_experiment(tmp_path / "b.npz", experiment)
    other = tmp_path / ("a.npz" if loader is npz_files.load_experiment else "b.npz")
    with pytest.raises(OutputError, match=r"is not what sbical left there"):
        loader(other)


@pytest.mark.parametrize("loader", LOADERS)
def test_missing_file_is_named(tmp_path: Path, loader: Callable[[Path], object]) -> None:
    with pytest.raises(OutputError) as caught:
        loader(tmp_path / "gone.npz")
    assert str(caught.value) == f"{tmp_path / 'gone.npz'} is missing; the calibration is incomplete: calibrate again"
