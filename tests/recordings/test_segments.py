from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import xarray as xr

from sbical.errors import RecordingError
from sbical.recordings.column_map import Column, Columns
from sbical.recordings.recording import Recording
from sbical.recordings.segments import segments

COLUMNS = Columns(
    (
        Column("goal", "command", "goal_position", "rad", "rad", "zoh", enable="torque_enable"),
        Column("position", "measurement", "position", "rad", "rad"),
    )
)


def recording(streams: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Recording:
    nodes = {name: xr.Dataset({"value": ("time", value)}, coords={"time": time}) for name, (time, value) in streams.items()}
    return Recording("run1", xr.DataTree.from_dict(nodes), (), "run1.csv")


def servo(time: np.ndarray, on: np.ndarray | None = None, position_time: np.ndarray | None = None) -> Recording:
    other = time if position_time is None else position_time
    streams = {"goal": (time, np.sin(time)), "position": (other, np.sin(other))}
    return recording(streams if on is None else {**streams, "goal_enable": (time, on)})


STEADY = np.arange(0, 6001) / 1000.0


def test_a_steady_log_is_one_span() -> None:
    assert segments(servo(STEADY), COLUMNS).spans == ((0.0, 6.0),)
    assert segments(servo(STEADY), COLUMNS).notes == ()


def test_jitter_is_no_gap() -> None:
    time = np.cumsum(np.random.default_rng(0).exponential(0.005, 2000))
    assert len(segments(servo(time), COLUMNS).spans) == 1


def test_a_gap_in_any_signal_splits_and_is_named() -> None:
    lost = STEADY[(STEADY <= 2.0) | (STEADY >= 2.5)]
    found = segments(servo(STEADY, position_time=lost), COLUMNS)
    assert found.spans == ((0.0, 2.0), (2.5, 6.0))
    assert found.notes == ("no sample of position from 2.000 to 2.500 s (gap of 0.500 s)",)
    assert segments(servo(lost), COLUMNS).notes == ("no sample of goal, position from 2.000 to 2.500 s (gap of 0.500 s)",)


def test_a_slow_stream_has_longer_gaps() -> None:
    slow = np.arange(0, 6.01, 0.05)
    assert segments(servo(STEADY, position_time=np.delete(slow, [20, 21, 22])), COLUMNS).spans == ((0.0, 6.0),)


def test_the_motor_off_is_left_out() -> None:
    off = np.where((STEADY > 2.0) & (STEADY < 4.0), 0.0, 1.0)
    found = segments(servo(STEADY, off), COLUMNS)
    assert found.spans == ((0.0, 2.0), (4.0, 6.0))
    assert found.notes == ("motor off (goal_enable = 0) from 2.000 to 4.000 s",)
    tail = segments(servo(STEADY, np.where(STEADY > 2.0, 0.0, 1.0)), COLUMNS)
    assert tail.spans == ((0.0, 2.0),)
    assert tail.notes == ("motor off (goal_enable = 0) from 2.000 to 6.000 s",)
    assert segments(servo(STEADY, np.where(STEADY < 2.0, 0.0, 1.0)), COLUMNS).spans == ((2.0, 6.0),)


def test_spans_too_short_are_dropped_and_named() -> None:
    time = STEADY[(STEADY <= 1.0) | ((STEADY >= 1.2) & (STEADY <= 1.4)) | (STEADY >= 1.6)]
    found = segments(servo(time), COLUMNS)
    assert found.spans == ((0.0, 1.0), (1.6, 6.0))
    assert found.notes[-1] == "span from 1.200 to 1.400 s dropped: shorter than 0.25 s"


def test_many_gaps_are_counted() -> None:
    time = STEADY[(STEADY % 0.5) < 0.35]
    found = segments(servo(time), COLUMNS)
    assert len(found.spans) == 12
    assert found.notes[5] == "and 7 more gaps"


def test_nothing_usable_says_why() -> None:
    with pytest.raises(RecordingError) as caught:
        segments(servo(STEADY, np.zeros_like(STEADY)), COLUMNS)
    assert str(caught.value) == (
        "recording 'run1' has no usable span (motor off (goal_enable = 0) from 0.000 to 6.000 s); "
        "log at least 0.25 s without a gap while the motor is on, or leave the recording out"
    )
    with pytest.raises(RecordingError, match=r"has no usable span \(its signals overlap for 0\.000 s only\)"):
        segments(servo(STEADY, position_time=STEADY + 10.0), COLUMNS)
    with pytest.raises(RecordingError, match="has none of the signals of this simulator"):
        segments(recording({}), COLUMNS)
