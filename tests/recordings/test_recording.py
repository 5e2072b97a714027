from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sbical.errors import RecordingError
from sbical.recordings.column_map import Column, Columns
from sbical.recordings.recording import Recording, read_recordings

COLUMNS = Columns(
    (
        Column("goal", "command", "goal_position", "rad", "rad", "zoh", enable="torque_enable"),
        Column("position", "measurement", "position", "rad", "rad", resolution=0.001534),
        Column("supply", "condition", "input_volts", "V", "V"),
        Column("kp", "condition", None, "1", "1", pattern=r"kp(\d+)_"),
    )
)
HEADER = "time,goal_position,position,input_volts,torque_enable"
Edit = Callable[[list[list[str]]], None]


def cells(n: int = 50) -> list[list[str]]:
    """A servo log with jitter, as text cells."""
    time = np.arange(n) * 0.005 + 0.0004 * np.sin(np.arange(n))
    return [[repr(float(t)), repr(0.5), repr(float(np.sin(t))), "7.3", "1"] for t in time]


def write(folder: Path, edit: Edit | None = None, name: str = "kp100_run.csv", header: str = HEADER, comments: str = "") -> Path:
    rows = cells()
    if edit is not None:
        edit(rows)
    path = folder / name
    path.write_text(comments + header + "\n" + "\n".join(",".join(row) for row in rows) + "\n")
    return path


def read_one(path: Path, columns: Columns = COLUMNS, **kwargs: object) -> Recording:
    return read_recordings([path], columns, **kwargs)[0]  # pyright: ignore[reportArgumentType]


def test_streams_keep_the_log_as_it_was(tmp_path: Path) -> None:
    recording = read_one(write(tmp_path))
    assert recording.name == "kp100_run"
    assert recording.conditions == {"kp": 100.0}
    assert set(recording.tree.children) == {"goal", "goal_enable", "position", "supply"}
    stream = recording.stream("position")
    assert np.array_equal(stream.time, [float(row[0]) for row in cells()])
    assert np.array_equal(stream.value, [float(row[2]) for row in cells()])
    assert stream.time.dtype == stream.value.dtype == np.float64
    assert recording.tree["position"]["value"].attrs == {"units": "rad", "column": "position"}
    assert recording.tree["position"]["time"].attrs == {"units": "s"}
    assert recording.notes == ()


def test_a_stream_that_is_not_there_is_named(tmp_path: Path) -> None:
    recording = read_one(write(tmp_path))
    assert recording.has("supply")
    assert not recording.has("kp")
    with pytest.raises(RecordingError) as caught:
        recording.stream("speed")
    assert str(caught.value) == "no stream 'speed' in recording 'kp100_run' (valid: goal, goal_enable, position, supply)"


def test_units_and_names_of_another_log(tmp_path: Path) -> None:
    def degrees(rows: list[list[str]]) -> None:
        for row in rows:
            row[0], row[2] = repr(float(row[0]) * 1e3), repr(float(np.degrees(float(row[2]))))

    path = write(tmp_path, degrees, header="stamp,goal_position,joint_pos,input_volts,torque_enable")
    stream = read_one(path, mapping={"time": "stamp:ms", "position": "joint_pos:deg"}).stream("position")
    assert stream.time == pytest.approx([float(row[0]) for row in cells()], abs=1e-15)
    assert stream.value == pytest.approx(np.sin(stream.time), abs=1e-14)


def test_rows_without_a_value_leave_their_stream_only(tmp_path: Path) -> None:
    def edit(rows: list[list[str]]) -> None:
        for i in (3, 10, 11, 12, 13, 14, 20):
            rows[i][2] = "" if i < 14 else "inf"
        rows[7][0] = "nan"

    recording = read_one(write(tmp_path, edit))
    assert len(recording.stream("position").time) == 42
    assert len(recording.stream("goal").time) == 49
    assert recording.notes == (
        "goal, goal_enable, supply: 1 row without a finite value dropped (row 8)",
        "position: 8 rows without a finite value dropped (rows 4, 8, 11, 12, 13 and 3 more)",
    )


def test_unsorted_and_repeated_rows_are_put_right_and_named(tmp_path: Path) -> None:
    def edit(rows: list[list[str]]) -> None:
        rows[5], rows[6] = rows[6], rows[5]
        rows[20][0] = rows[19][0]

    stream = (recording := read_one(write(tmp_path, edit))).stream("position")
    assert np.all(np.diff(stream.time) > 0)
    assert len(stream.time) == 49
    assert stream.value[19] == float(cells()[19][2])
    assert recording.notes == (
        "goal, goal_enable, position, supply: 1 row out of order, sorted by time (row 6)",
        "goal, goal_enable, position, supply: 1 row at a time already logged, first kept (row 21)",
    )


def test_one_clock_glitch_names_one_row(tmp_path: Path) -> None:
    recording = read_one(write(tmp_path, lambda rows: rows[4].__setitem__(0, "99.0")))
    assert recording.notes == ("goal, goal_enable, position, supply: 1 row out of order, sorted by time (row 5)",)
    assert recording.stream("position").time[-1] == 99.0


def test_conditions_in_order_of_precedence(tmp_path: Path) -> None:
    path = write(tmp_path, comments="# kp: 300\n")
    assert read_one(path).conditions == {"kp": 300.0}
    assert read_one(path, conditions={"kp": 200}).conditions == {"kp": 200.0}
    assert read_one(path, conditions={"kp": 200, "kp100_run": {"kp": 250}}).conditions == {"kp": 250.0}
    assert read_one(write(tmp_path)).conditions == {"kp": 100.0}
    np.savez(tmp_path / "kp100_n.npz", **{h: np.linspace(0, 1, 50) for h in HEADER.split(",")}, kp=400.0)  # pyright: ignore[reportArgumentType]
    assert read_one(tmp_path / "kp100_n.npz").conditions == {"kp": 400.0}


def test_a_condition_with_a_column_may_be_given_instead(tmp_path: Path) -> None:
    path = write(tmp_path, header=HEADER.replace("input_volts", "other"), comments="# input_volts: 7.1\n")
    recording = read_one(path)
    assert recording.conditions == {"supply": 7.1, "kp": 100.0}
    assert not recording.has("supply")
    millivolts = Columns((*COLUMNS.items[:2], Column("supply", "condition", "input_volts", "mV", "V"), COLUMNS.items[3]))
    assert read_one(path, millivolts, conditions={"supply": 7100}).conditions["supply"] == pytest.approx(7.1)


def test_a_condition_found_nowhere_names_all_ways(tmp_path: Path) -> None:
    with pytest.raises(RecordingError) as caught:
        read_one(write(tmp_path, name="run.csv"))
    assert str(caught.value) == (
        "recording 'run': condition 'kp' [1] is not known; give it with --set kp=VALUE (conditions={'kp': VALUE}), "
        "as a scalar 'kp' in the NPZ, as a line '# kp: VALUE' above the CSV's header, or name the file so that 'kp(\\d+)_' matches"
    )


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ({"kpp": 1.0}, "no condition 'kpp' in this simulator; did you mean 'kp'? (valid: kp, supply)"),
        ({"run9": {"kp": 1.0}}, "no recording 'run9' in the conditions given (valid: kp100_run)"),
        ({"kp": "high"}, "condition 'kp' is given as 'high'; give a finite number [1]"),
    ],
)
def test_conditions_that_mean_nothing(tmp_path: Path, conditions: dict[str, object], message: str) -> None:
    with pytest.raises(RecordingError) as caught:
        read_one(write(tmp_path), conditions=conditions)
    assert str(caught.value) == message


def test_without_its_enable_column_a_motor_counts_as_on(tmp_path: Path) -> None:
    recording = read_one(write(tmp_path, header=HEADER.replace("torque_enable", "flag")))
    assert not recording.has("goal_enable")
    assert recording.notes == ("goal: no column 'torque_enable', taken as always on (another name: --map goal_enable=COLUMN)",)


def _stop(rows: list[list[str]]) -> None:
    for row in rows:
        row[0] = "1.5"


def _restart(rows: list[list[str]]) -> None:
    rows[25:] = [row.copy() for row in rows[:25]]


def _backwards(rows: list[list[str]]) -> None:
    rows.reverse()


def _short(rows: list[list[str]]) -> None:
    del rows[9:]


def _word(rows: list[list[str]]) -> None:
    rows[6][2] = "fault"


WHERE = "recording 'kp100_run', goal (column 'goal_position')"
SPLIT = "split the file if it holds several runs, log time with a finer step, or map the right time column"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (_stop, f"{WHERE}: time does not advance, every row is at 1.5 s; map the column that holds the time"),
        (_restart, f"{WHERE}: time is out of order or repeated in 25 of 50 rows, and steps back or stands still at row 26; {SPLIT}"),
        (
            _backwards,
            (
                f"{WHERE}: time is out of order or repeated in 49 of 50 rows, "
                f"and steps back or stands still at rows 2, 3, 4, 5, 6 and 44 more; {SPLIT}"
            ),
        ),
        (_short, f"{WHERE}: only 9 usable samples, at least 10 are needed; log longer, or leave the recording out"),
        (_word, "column 'position' of recording 'kp100_run' is not numeric: row 7 holds 'fault'; log numbers, or map another column"),
    ],
)
def test_logs_that_cannot_be_used(tmp_path: Path, edit: Edit, message: str) -> None:
    with pytest.raises(RecordingError) as caught:
        read_one(write(tmp_path, edit))
    assert str(caught.value) == message


def test_a_missing_column_lists_those_that_exist(tmp_path: Path) -> None:
    with pytest.raises(RecordingError) as caught:
        read_one(write(tmp_path, header=HEADER.replace("position,input", "pos,input")))
    assert str(caught.value) == (
        "no column 'position' in recording 'kp100_run'; did you mean 'goal_position'? "
        "(valid: goal_position, input_volts, pos, time, torque_enable); "
        "it should hold 'position': name the right one with --map position=COLUMN"
    )


def test_patterns_find_sorted_files_once(tmp_path: Path) -> None:
    for name in ("kp200_b.csv", "kp100_a.csv", "kp400_c.csv"):
        write(tmp_path, name=name)
    recordings = read_recordings([tmp_path / "kp200_b.csv", str(tmp_path / "*.csv")], COLUMNS)
    assert [r.name for r in recordings] == ["kp200_b", "kp100_a", "kp400_c"]
    assert [r.name for r in read_recordings(str(tmp_path / "kp[14]*.csv"), COLUMNS)] == ["kp100_a", "kp400_c"]


def test_equal_file_names_get_their_folder(tmp_path: Path) -> None:
    for folder in ("run1", "run2"):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder, name="kp100_log.csv")
    assert [r.name for r in read_recordings(str(tmp_path / "*/*.csv"), COLUMNS)] == ["run1_kp100_log", "run2_kp100_log"]
    write(tmp_path, name="kp7_.csv")
    (tmp_path / "kp7_.csv.gz").write_bytes(b"")
    with pytest.raises(RecordingError, match=r"several recordings are named '.*_kp7_' \(.*\); rename the files so that names differ"):
        read_recordings(str(tmp_path / "kp7_*"), COLUMNS)


def test_paths_that_match_nothing(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(RecordingError) as caught:
        read_recordings(str(tmp_path / "*.npz"), COLUMNS)
    assert str(caught.value) == f"no recording matches '{tmp_path / '*.npz'}'; the folder to look in is '{tmp_path}': check the pattern"
    with pytest.raises(RecordingError) as caught:
        read_recordings(str(tmp_path / "kp100_rum.csv"), COLUMNS)
    assert str(caught.value) == (
        f"no recording 'kp100_rum.csv' in '{tmp_path}'; did you mean 'kp100_run.csv'? "
        "(valid: kp100_run.csv); name a file, or a pattern like '*.csv'"
    )
    with pytest.raises(RecordingError, match="is a folder; name the recordings in it"):
        read_recordings(str(tmp_path), COLUMNS)
    with pytest.raises(RecordingError, match="no recordings given"):
        read_recordings([], COLUMNS)


def test_a_given_condition_says_what_it_replaces(tmp_path: Path) -> None:
    columns = Columns(
        (Column("position", "measurement", "position", "rad", "rad"), Column("kp", "condition", None, "1", "1", pattern="kp(\\d+)_"))
    )
    rows = "\n".join(f"{0.01 * i:.2f},{0.1 * i:.3f}" for i in range(50))
    path = tmp_path / "kp100_run.csv"
    path.write_text(f"time,position\n{rows}\n")
    (quiet,) = read_recordings([path], columns)
    (same,) = read_recordings([path], columns, conditions={"kp": 100})
    (other,) = read_recordings([path], columns, conditions={"kp": 200})
    assert quiet.notes == same.notes == ()
    assert other.notes == ("kp = 200 was given, which replaces 100 from the log or its name",)
    assert other.conditions == {"kp": 200.0}
