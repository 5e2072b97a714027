"""Another robot that repeated the protocol is read on the calibration's own time grid; anything else is named."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sbical.errors import ExperimentError
from sbical.recordings.experiment import Experiment, build
from sbical.recordings.protocol import experiment_on_protocol
from sbical.recordings.recording import Recording
from sbical.simulation.simulator import Simulator

MakeRecording = Callable[..., Recording]


def run(
    make: MakeRecording, name: str, *, seconds: float = 2.0, origin: float = 0.0, step: float = 0.01, rate: float = 3.0, scale: float = 1.0,
    kp: float = 200.0, supply: float = 5.0,
) -> Recording:  # fmt: skip
    """A servo told a sine of ``rate`` that follows it by ``scale``."""
    clock = np.arange(0.0, seconds + 1e-9, step)
    goal = np.sin(rate * clock)
    time = origin + clock
    return make(name, {"goal": (time, goal), "position": (time, scale * goal), "supply": (time, np.full(len(time), supply))}, {"kp": kp})


@pytest.fixture
def experiment(servo: Simulator, make_recording: MakeRecording) -> Experiment:
    recordings = [run(make_recording, "slow"), run(make_recording, "fast", rate=6.0, kp=100.0)]
    return build(recordings, servo.columns, servo.layout, window=1.0)


def test_another_robot_is_read_on_the_same_grid(servo: Simulator, make_recording: MakeRecording, experiment: Experiment) -> None:
    # another clock, another rate, another order
    others = [
        run(make_recording, "b", rate=6.0, kp=100.0, scale=0.8, origin=100.0, step=0.008),
        run(make_recording, "a", scale=0.9, origin=-3.0, supply=4.9),
    ]
    found = experiment_on_protocol(experiment, others, servo.columns)
    assert [w.recording for w in found.windows] == ["a", "a", "b", "b"]
    for mine, theirs, scale in zip(experiment.windows, found.windows, (0.9, 0.9, 0.8, 0.8), strict=True):
        np.testing.assert_array_equal(theirs.time, mine.time)
        np.testing.assert_allclose(theirs.observed, scale * mine.observed, atol=3e-4)
        np.testing.assert_allclose(theirs.initial.mean, scale * mine.initial.mean, atol=0.03)
        assert theirs.opens == mine.opens


def test_its_own_recordings_come_back_bitwise(servo: Simulator, make_recording: MakeRecording, experiment: Experiment) -> None:
    again = experiment_on_protocol(
        experiment, [run(make_recording, "slow"), run(make_recording, "fast", rate=6.0, kp=100.0)], servo.columns
    )
    for mine, theirs in zip(experiment.windows, again.windows, strict=True):
        np.testing.assert_array_equal(theirs.observed, mine.observed)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kp": 120.0}, "kp = 120 instead of 200"),
        ({"supply": 6.0}, r"its supply differs by 1 V rms \(tolerance 0\.25\)"),
        ({"rate": 3.3}, r"its goal differs by 0\.13 rad rms \(tolerance 0\.04\)"),
        ({"seconds": 1.2}, r"too short for the window at 1\.00 s that lasts 1\.00 s"),
    ],
)
def test_difference_is_named(
    servo: Simulator, make_recording: MakeRecording, experiment: Experiment, change: dict[str, float], reason: str
) -> None:
    others = [run(make_recording, "a", **change), run(make_recording, "b", rate=6.0, kp=100.0)]
    message = rf"^no recording ran the protocol of 'slow' \(a: {reason}; b: .*calibrate this robot on its own$"
    with pytest.raises(ExperimentError, match=message):
        experiment_on_protocol(experiment, others, servo.columns)


def test_window_in_which_the_command_rests_tolerates_its_rounding(servo: Simulator, make_recording: MakeRecording) -> None:
    clock = np.arange(0.0, 2.001, 0.01)
    goal = np.where(clock < 1.0, np.sin(6 * clock), 0.5)

    def step(shift: float) -> Recording:
        return make_recording("step", {"goal": (clock, goal + shift), "position": (clock, goal)}, {"kp": 200.0, "supply": 5.0})

    experiment = build([step(0.0)], servo.columns, servo.layout, window=0.5)
    assert len(experiment_on_protocol(experiment, [step(1e-3)], servo.columns).windows) == 4
    with pytest.raises(ExperimentError, match=r"its goal differs by 0\.1 rad rms"):
        experiment_on_protocol(experiment, [step(0.1)], servo.columns)


def test_condition_logged_per_sample_is_not_a_constant(servo: Simulator, make_recording: MakeRecording, experiment: Experiment) -> None:
    other = run(make_recording, "a")
    clock = other.stream("goal").time
    logged = make_recording("a", {**{n: (clock, other.stream(n).value) for n in ("goal", "position")}, "kp": (clock, 0 * clock + 200.0)})
    with pytest.raises(ExperimentError, match=r"\(a: its kp is logged per sample instead of 200 throughout\)"):
        experiment_on_protocol(experiment, [logged], servo.columns)


def test_each_recording_serves_once(servo: Simulator, make_recording: MakeRecording, experiment: Experiment) -> None:
    with pytest.raises(ExperimentError) as caught:
        experiment_on_protocol(experiment, [run(make_recording, "a")], servo.columns)
    assert str(caught.value) == (
        "no recording ran the protocol of 'fast' (none is left for it); an amortized calibration serves robots that repeat its "
        "commands and conditions. Record the same motions, or calibrate this robot on its own"
    )
