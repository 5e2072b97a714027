from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import xarray as xr

from sbical.recordings.column_map import Column, Columns
from sbical.recordings.plausibility import implausible_columns
from sbical.recordings.recording import Recording

TIME = np.arange(0.0, 10.0, 0.004)


def recording(name: str = "run1", /, time: np.ndarray = TIME, **streams: np.ndarray) -> Recording:
    nodes = {key: xr.Dataset({"value": ("time", value)}, coords={"time": time}) for key, value in streams.items()}
    return Recording(name, xr.DataTree.from_dict(nodes), (), f"{name}.csv")


def arm(command_unit: str) -> Columns:
    pairs = [(f"u{i}", f"q{i}") for i in (1, 2)]
    commands = [Column(u, "command", f"cmd{u}", command_unit, command_unit) for u, _ in pairs]
    return Columns((*commands, *(Column(q, "measurement", f"log_{q}", "rad", "rad") for _, q in pairs)))


POSITION = arm("rad")
TORQUE = arm("N m")


def follow() -> dict[str, np.ndarray]:
    """Two servos that lag their commands by 40 ms."""
    u1, u2 = (lambda t: np.sin(2 * t)), (lambda t: 0.5 * np.sin(3.1 * t + 1.0))
    return {"u1": u1(TIME), "u2": u2(TIME), "q1": u1(TIME - 0.04), "q2": u2(TIME - 0.04)}


@pytest.fixture(scope="module")
def pushed() -> dict[str, np.ndarray]:
    """Two links on a vertical plane, pushed by two torques from rest and brought back: equations of motion of a double pendulum."""
    envelope = np.sin(np.pi * TIME / TIME[-1]) ** 0.5
    torque = envelope[:, None] * np.stack([1.5 * np.sin(2.3 * TIME), 0.8 * np.sin(5.7 * TIME + 0.5)], 1)
    q, v, path = np.zeros(2), np.zeros(2), []
    for tau in torque:
        path.append(q.copy())
        for _ in range(4):
            h, c2, s2 = 0.001, np.cos(q[1]), np.sin(q[1])
            mass = np.array([[0.09 + 0.04 * c2, 0.02 + 0.02 * c2], [0.02 + 0.02 * c2, 0.02]])
            bias = np.array([-0.02 * s2 * (2 * v[0] * v[1] + v[1] ** 2), 0.02 * s2 * v[0] ** 2])
            weight = np.array([2.0 * np.sin(q[0]) + 0.6 * np.sin(q.sum()), 0.6 * np.sin(q.sum())])
            v = v + h * np.linalg.solve(mass, tau - bias - weight - 0.08 * v)
            q = q + h * v
    position = np.array(path)
    return {"u1": torque[:, 0], "u2": torque[:, 1], "q1": position[:, 0], "q2": position[:, 1]}


def changed(streams: Mapping[str, np.ndarray], **new: np.ndarray) -> dict[str, np.ndarray]:
    return {**streams, **new}


def test_what_is_right_raises_no_doubt(pushed: dict[str, np.ndarray]) -> None:
    assert implausible_columns([recording(**follow())], POSITION) == []
    assert implausible_columns([recording(**pushed)], TORQUE) == []


def test_another_sign_is_named_once_for_all_recordings() -> None:
    wrong = changed(follow(), q1=-follow()["q1"])
    assert implausible_columns([recording("a", **wrong), recording("b", **wrong)], POSITION) == [
        (
            "a, b: q1 (column 'log_q1') moves against u1 (column 'cmdu1'): "
            "another sign than the model? turn the joint's axis in the MJCF, or negate one column"
        )
    ]


def test_another_order_of_servos_is_named() -> None:
    right = follow()
    assert implausible_columns([recording(**changed(right, q1=right["q2"], q2=right["q1"]))], POSITION) == [
        "run1: q1 (column 'log_q1') follows u2, not u1: joints in another order? swap columns with --map",
        "run1: q2 (column 'log_q2') follows u1, not u2: joints in another order? swap columns with --map",
    ]
    assert implausible_columns([recording(**changed(right, q1=right["q2"], q2=right["q1"]))], POSITION, {"q1": "u2", "q2": "u1"}) == []


@pytest.mark.parametrize("joint", ["q1", "q2"])
def test_another_sign_under_torque_is_named(pushed: dict[str, np.ndarray], joint: str) -> None:
    doubts = implausible_columns([recording(**changed(pushed, **{joint: -pushed[joint]}))], TORQUE)
    assert len(doubts) == 1
    assert doubts[0].startswith(f"run1: {joint} (column 'log_{joint}') moves against u{joint[1]}")


def test_another_order_under_torque_is_named(pushed: dict[str, np.ndarray]) -> None:
    doubts = implausible_columns([recording(**changed(pushed, q1=pushed["q2"], q2=pushed["q1"]))], TORQUE)
    assert doubts
    assert all("joints in another order? swap columns with --map" in doubt for doubt in doubts)


def test_degrees_taken_for_radians() -> None:
    right = follow()
    far = implausible_columns([recording(**changed(right, q1=np.degrees(right["q1"])))], POSITION)
    assert far == ["run1: q1 (column 'log_q1') moves over more than two turns; if it is in degrees: --map q1=log_q1:deg"]
    near = implausible_columns([recording(**changed(right, q1=30.0 + right["q1"]))], POSITION)
    assert near == ["run1: q1 (column 'log_q1') is far from its command; if it is in degrees: --map q1=log_q1:deg"]


def test_a_dead_sensor_and_a_clock_in_milliseconds() -> None:
    dead = recording(**changed(follow(), q2=np.full_like(TIME, 0.3)))
    assert implausible_columns([dead], POSITION) == [
        "run1: q2 (column 'log_q2') never changes; is the sensor alive, and is it the right column?"
    ]
    slow = implausible_columns([recording(time=TIME * 1000, **follow())], POSITION)
    assert slow[0] == "run1: samples are 4 s apart; if time is not in s: --map time=COLUMN:UNIT, like ms or us"
