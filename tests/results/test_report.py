from __future__ import annotations

import re
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sbical.checks import Finding, Verdict
from sbical.errors import OutputError
from sbical.results.posterior import Posterior
from sbical.results.report import figures, number, write_report
from sbical.simulation.replay import Replay, Replays, WindowReplay

NAMES = ("torque_constant", "resistance", "gain", "damping", "frictionloss", "armature", "delay", "push_std")
UNITS = ("N m/A", "ohm", "1", "N m s/rad", "N m", "kg m^2", "s", "N m")


def replays(n: int, windows: int, noise: float = 0.1) -> Replay:
    rng = np.random.default_rng(0)
    t = np.arange(300) * 0.01

    def window(k: int) -> WindowReplay:
        base = np.stack([np.sin(3 * t), np.cos(3 * t)], axis=-1)
        return WindowReplay(
            f"run{k}", 3.0 * k, t, base + 0.1 * rng.normal(size=base.shape), base + noise * rng.normal(size=(n, *base.shape))
        )

    return Replay(("position", "velocity"), ("rad", "rad/s"), tuple(window(k) for k in range(windows)))


@pytest.fixture(scope="module")
def posterior() -> Posterior:
    rng = np.random.default_rng(1)
    prior, draws = np.exp(rng.normal(size=(3000, 8))), np.exp(0.3 * rng.normal(size=(2000, 8)))
    return Posterior(NAMES, UNITS, draws, prior, replays(60, 8))


WARN = Verdict(
    (Finding("support", "pass", "all good", "limit", "paper"), Finding("sbc", "warn", "p = 0.01", "p < 0.05", "Talts", "train <longer>"))
)
FAIL = Verdict((Finding("sbc", "fail", "p = 0.0001", "p < 0.001", "Talts", "train longer"),))


RANGES: dict[str, Any] = {
    "mass": 0.9,
    "verdict": "warn",
    "parameters": {
        "gain": {
            "unit": "1",
            "low": 0.5,
            "median": 1.0,
            "high": 1.5,
            "writes": [{"field": "dof_damping", "index": [0], "object": "joint q1", "op": "set", "low": 0.25, "high": 0.75}],
            "signal_path": [{"effect": "lag", "family": "command_delay", "role": "delay", "targets": ["goal"]}],
        }
    },
    "rank_correlations": [{"pair": ["gain", "delay"], "rho": -0.71}],
}


class Tags(HTMLParser):
    """Every tag with its attributes, and that the nesting is right."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def report(posterior: Posterior, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    start = time.perf_counter()
    write_report(
        path,
        title="servo & pendulum",
        posterior=posterior,
        verdict=WARN,
        replays=Replays(replays(60, 2), replays(60, 2), replays(1, 2, 0.5), replays(1, 2, 0.0)),
        provenance={"seed": 0, "versions": {"mujoco": "4.0.0"}},
        randomization=RANGES,
        notes=["run1: 2 rows dropped"],
    )
    assert time.perf_counter() - start < 30  # 5 s on one core; a wide margin for a busy machine
    return path.read_text(encoding="utf-8")


def test_nothing_is_requested_from_anywhere(report: str) -> None:
    tags = Tags()
    tags.feed(report)
    assert tags.open == []
    assert not {"script", "link", "iframe", "object", "embed"} & {tag for tag, _ in tags.seen}
    references = [v for _, attrs in tags.seen for k, v in attrs.items() if k in {"src", "href", "xlink:href"} and v]
    assert all(r.startswith(("#", "data:image/png;base64,")) for r in references)
    assert "http" not in re.sub(r"base64,[^\"]*", "", report)
    assert "@import" not in report


def test_ids_are_unique_and_references_resolve(report: str) -> None:
    tags = Tags()
    tags.feed(report)
    ids = [attrs["id"] for _, attrs in tags.seen if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"url\(#([^)]*)\)", report)) <= set(ids)


def test_opens_with_the_verdict_then_tables_figures_and_provenance(report: str) -> None:
    order = [
        "! warn</strong>",
        "<h2>Parameters",
        "<h2>Prior and posterior",
        "<h2>Correlations",
        "<h2>Held-out replay",
        "<h2>Predictive",
        "<h2>Provenance",
    ]
    places = [report.index(text) for text in order]
    assert places == sorted(places)
    assert report.count("<svg") == 5
    assert all(
        text in report
        for text in (
            "versions.mujoco",
            "run1: 2 rows dropped",
            "gain, delay: -0.71",
            "dof_damping[0] (joint q1), set 0.250 … 0.750",
            "lag.delay (command_delay) of goal",
        )
    )


def test_text_of_users_is_escaped(report: str) -> None:
    assert "servo &amp; pendulum" in report
    assert "train &lt;longer&gt;" in report


def test_held_out_figures_are_the_replays(report: str) -> None:
    before, after = replays(1, 2, 0.5).rmse(), replays(1, 2, 0.0).rmse()
    for channel in range(2):
        assert f'<td class="n">{number(float(before[channel]))}</td><td class="n"><b>{number(float(after[channel]))}</b></td>' in report


def test_many_windows_are_cut_with_a_note(report: str) -> None:
    assert "6 of 8 windows are shown, evenly spread." in report


def test_failed_verdict_without_holdout_and_with_one_parameter(posterior: Posterior, tmp_path: Path) -> None:
    one = Posterior(("gain",), ("1",), posterior.draws[:, :1], posterior.prior[:, :1])
    write_report(tmp_path / "report.html", title="t", posterior=one, verdict=FAIL, randomization=RANGES)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "do not use: the ranges cannot be trusted" in text
    assert "these ranges must not be used" in text
    assert "No recording was held out" in text
    assert text.count("<svg") == 2


def test_replay_in_which_every_draw_failed_still_makes_a_figure() -> None:
    replay = replays(3, 1)
    failed = replace(replay, windows=(replace(replay.windows[0], draws=np.full_like(replay.windows[0].draws, np.nan)),))
    assert figures.bands(failed).svg.startswith("<svg")


def test_figures_leave_matplotlib_as_it_was(posterior: Posterior) -> None:
    import matplotlib
    from matplotlib import pyplot as plt

    before, numbers = dict(matplotlib.rcParams), plt.get_fignums()
    figures.forest(posterior)
    assert dict(matplotlib.rcParams) == before
    assert plt.get_fignums() == numbers


def test_folder_that_does_not_exist(posterior: Posterior, tmp_path: Path) -> None:
    bare = Posterior(NAMES[:1], UNITS[:1], posterior.draws[:, :1], posterior.prior[:, :1])
    with pytest.raises(OutputError, match=r"cannot write the report to .*: No such file or directory; choose another output folder"):
        write_report(tmp_path / "nowhere" / "report.html", title="t", posterior=bare, verdict=WARN)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0012345, "0.00123"),
        (0.5, "0.500"),
        (123.4, "123"),
        (9e-5, "9.00e-5"),
        (1.0, "1.00"),
        (0.0, "0"),
        (float("inf"), "failed"),
        (3, "3"),
    ],
)
def test_numbers(value: object, text: str) -> None:
    assert number(value) == text
