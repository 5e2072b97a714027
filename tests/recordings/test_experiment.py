"""The plan of what is replayed: where windows lie, what they know, and what a change of any of it does to the digest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from sbical.errors import ExperimentError
from sbical.recordings.experiment import Experiment, Window, build
from sbical.recordings.held_signal import HeldSignal
from sbical.recordings.initial_state import InitialState
from sbical.recordings.recording import Recording
from sbical.simulation.simulator import Simulator

MakeRecording = Callable[..., Recording]


def swing(make_recording: MakeRecording, clock: np.ndarray, name: str = "run") -> Recording:
    """A pendulum's log: torque, position, velocity."""
    angle = np.sin(3 * clock)
    return make_recording(name, {"torque": (clock, 0.1 * clock), "position": (clock, angle), "velocity": (clock, 3 * np.cos(3 * clock))})


def spans(experiment: Experiment) -> list[tuple[float, float]]:
    return [(round(w.start, 6), round(w.start + w.duration, 6)) for w in experiment.windows]


def test_whole_stretch_keeps_every_sample(pendulum: Simulator, make_recording: MakeRecording) -> None:
    clock = 5.0 + np.arange(0, 2.0, 0.01)
    experiment = build([swing(make_recording, clock)], pendulum.columns, pendulum.layout)
    (window,) = experiment.windows
    assert (experiment.channels, experiment.units) == (("position", "velocity"), ("rad", "rad/s"))
    np.testing.assert_array_equal(window.time, clock - clock[0])
    np.testing.assert_array_equal(window.observed, np.stack([np.sin(3 * clock), 3 * np.cos(3 * clock)], 1))
    # a spline misses a little of a sine
    np.testing.assert_allclose(window.initial.mean, [np.sin(15), 3 * np.cos(15)], atol=0.01)
    assert experiment.seconds == pytest.approx(1.99)


def test_windows_are_cut_end_to_end(pendulum: Simulator, make_recording: MakeRecording) -> None:
    recording = swing(make_recording, np.arange(0, 2.001, 0.01))
    experiment = build([recording], pendulum.columns, pendulum.layout, window=0.5)
    assert spans(experiment) == [(0.0, 0.5), (0.5, 1.0), (1.0, 1.5), (1.5, 2.0)]
    assert [w.opens for w in experiment.windows] == [True, False, False, False]
    for window in experiment.windows:
        np.testing.assert_allclose(window.initial.mean[0], np.sin(3 * window.start), atol=1e-3)


def test_fast_log_is_thinned(pendulum: Simulator, make_recording: MakeRecording) -> None:
    experiment = build([swing(make_recording, np.arange(0, 1.0, 0.001))], pendulum.columns, pendulum.layout)
    np.testing.assert_allclose(np.diff(experiment.windows[0].time), 0.004)


def test_gap_splits_and_the_start_state_ignores_what_lies_before_it(pendulum: Simulator, make_recording: MakeRecording) -> None:
    clock = np.concatenate([np.arange(0, 1.0, 0.01), np.arange(1.5, 2.5, 0.01)])
    streams = {
        name: (clock, value) for name, value in (("torque", clock), ("position", np.sin(3 * clock)), ("velocity", 3 * np.cos(3 * clock)))
    }
    streams["position"][1][:100] = 100.0
    recording = make_recording("run", streams)
    experiment = build([recording], pendulum.columns, pendulum.layout)
    assert spans(experiment) == [(0.0, 0.99), (1.5, 2.49)]
    assert [w.opens for w in experiment.windows] == [True, False]
    np.testing.assert_allclose(experiment.windows[1].initial.mean[0], np.sin(4.5), atol=1e-3)
    assert experiment.notes == ("run: no sample of torque, position, velocity from 0.990 to 1.500 s (gap of 0.510 s)",)


def test_before_and_after_share_the_usable_time(pendulum: Simulator, make_recording: MakeRecording) -> None:
    recording = swing(make_recording, np.arange(0, 4.001, 0.01))
    kept = build([recording], pendulum.columns, pendulum.layout, before=0.75)
    held = build([recording], pendulum.columns, pendulum.layout, after=0.75)
    assert spans(kept) == [(0.0, 3.0)]
    assert spans(held) == [(3.0, 4.0)]
    assert [w.opens for w in held.windows] == [False]


def test_commands_reach_back_before_the_window(pendulum: Simulator, make_recording: MakeRecording) -> None:
    recording = swing(make_recording, np.arange(0, 3.0, 0.01))
    window = build([recording], pendulum.columns, pendulum.layout, window=1.0).windows[1]
    command = window.commands["torque"]
    assert command.time[0] <= -0.5
    assert command.time[-1] >= 1.0
    # held torque 0.1 t, sampled every 10 ms: at 30 ms before the window (recording time 0.97 s) it is 0.097
    np.testing.assert_allclose(command.averages(np.array([-0.029, -0.021])), [0.097])


def test_conditions_are_constants_or_signals(servo: Simulator, make_recording: MakeRecording) -> None:
    clock = np.arange(0, 1.0, 0.01)
    streams = {"goal": (clock, clock), "position": (clock, clock)}
    logged = make_recording("logged", {**streams, "supply": (clock, 5 - clock)}, {"kp": 200.0})
    known = make_recording("known", streams, {"kp": 100.0, "supply": 5.0})
    a, b = build([logged, known], servo.columns, servo.layout).windows
    assert (dict(a.constants), list(a.signals)) == ({"kp": 200.0}, ["supply"])
    assert (dict(b.constants), list(b.signals)) == ({"kp": 100.0, "supply": 5.0}, [])
    np.testing.assert_allclose(a.signals["supply"].averages(np.array([0.4, 0.6])), [4.5], atol=1e-9)


def test_spread_widens_only_where_a_recording_opens(pendulum: Simulator, make_recording: MakeRecording) -> None:
    recording = swing(make_recording, np.arange(0, 2.001, 0.01))
    experiment = build([recording], pendulum.columns, pendulum.layout, window=1.0)
    first, second = experiment.spread().windows
    added = first.initial.factor @ first.initial.factor.T - np.linalg.multi_dot([(f := experiment.windows[0].initial.factor), f.T])
    np.testing.assert_allclose(np.diag(added), [0.01**2, 0.05**2], rtol=1e-6)
    assert second is experiment.windows[1]


def test_no_window_is_an_error(pendulum: Simulator, make_recording: MakeRecording) -> None:
    short, sparse = swing(make_recording, np.arange(0, 1.0, 0.01), "short"), swing(make_recording, np.arange(0, 4.0, 0.2), "sparse")
    for recording, window, wanted in ((short, 2.0, "2 s"), (sparse, 0.5, "0.5 s")):
        with pytest.raises(ExperimentError) as caught:
            build([recording], pendulum.columns, pendulum.layout, window=window)
        assert str(caught.value) == (
            f"no usable window of at least {wanted} in {recording.name}; log longer motions, with at least 5 samples in every window, "
            "or pass another --window"
        )


def test_sparse_window_is_dropped_with_a_note(pendulum: Simulator, make_recording: MakeRecording) -> None:
    recordings = [swing(make_recording, np.arange(0, 1.0, 0.01), "dense"), swing(make_recording, np.arange(0, 1.01, 0.2), "sparse")]
    experiment = build(recordings, pendulum.columns, pendulum.layout, window=0.5)
    assert [w.recording for w in experiment.windows] == ["dense"]
    assert experiment.notes[0] == "sparse: window from 0.000 to 0.500 s dropped: only 3 samples"


def test_digest_is_the_same_for_the_same_plan(pendulum: Simulator, make_recording: MakeRecording) -> None:
    plans = [build([swing(make_recording, np.arange(0, 1.0, 0.01))], pendulum.columns, pendulum.layout) for _ in range(2)]
    assert plans[0].digest() == plans[1].digest()


def _hold(w: Window) -> Window:
    return replace(w, commands={n: replace(s, hold="linear") for n, s in w.commands.items()})


@pytest.mark.parametrize(
    "change",
    [
        lambda w: replace(w, start=w.start + 1),
        lambda w: replace(w, time=w.time * 1.001),
        lambda w: replace(w, observed=w.observed + 1e-9),
        lambda w: replace(w, constants={"kp": 1.0}),
        lambda w: replace(w, commands={n: HeldSignal(s.time, s.value + 1e-9, s.hold) for n, s in w.commands.items()}),
        lambda w: replace(w, signals={"supply": HeldSignal(np.zeros(1), np.ones(1))}),
        lambda w: replace(w, initial=InitialState(w.initial.mean, 2 * w.initial.factor)),
        _hold,
    ],
    ids=["start", "time", "observed", "constants", "command", "signal", "initial", "hold"],
)
def test_digest_sees_every_change(pendulum: Simulator, make_recording: MakeRecording, change: Callable[[Window], Window]) -> None:
    experiment = build([swing(make_recording, np.arange(0, 1.0, 0.01))], pendulum.columns, pendulum.layout)
    changed = replace(experiment, windows=(change(experiment.windows[0]),))
    assert changed.digest() != experiment.digest()
