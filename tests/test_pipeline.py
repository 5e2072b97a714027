"""The whole line on the shipped example, at a small budget: what a user gets, and that it survives being saved."""

from __future__ import annotations

import csv
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from arviz_stats.summary import summary
from distributed import Client

import sbical
from sbical.checks import BUILT_IN
from sbical.common import catalog
from sbical.common.progress import Stage
from sbical.errors import ExperimentError, PriorError, RefusedError
from sbical.inference.estimator import Training
from sbical.recordings.experiment import build
from sbical.simulation.process import simulating

SMALL = Training(steps=300)
#: An amortized calibration has no likelihood to correct with.
CHECKS = {c.NAME for c in BUILT_IN} - {"correction"}


class Stages:
    """Collects what a run reports."""

    def __init__(self) -> None:
        self.done: dict[str, int] = {}
        self.totals: dict[str, int | None] = {}

    @contextmanager
    def stage(self, name: str, total: int | None) -> Iterator[Stage]:
        self.totals[name] = total
        collector = self

        class Counting:
            def advance(self, n: int = 1, note: str = "") -> None:
                collector.done[name] = collector.done.get(name, 0) + n

        yield Counting()

    def note(self, text: str) -> None:
        pass


STAGES = Stages()


@pytest.fixture(scope="module")
def calibration(client: Client) -> sbical.Calibration:
    simulator, prior = sbical.load_simulator("servo_pendulum"), sbical.load_prior("hobby_servo")
    recordings = sbical.read_recordings(catalog.examples("servo_pendulum"), simulator.columns)
    return sbical.calibrate(
        simulator, prior, recordings, client=client, method="amortized", simulations=1700, training=SMALL, progress=STAGES
    )


@pytest.fixture(scope="module")
def second_unit() -> list[Path]:
    return sorted((catalog.folder("simulator") / "servo_pendulum" / "example" / "unit2").glob("*.csv"))


@pytest.mark.slow
def test_the_example_is_learned_and_judged(calibration: sbical.Calibration) -> None:
    assert {f.name for f in calibration.verdict.checks} == CHECKS
    assert calibration.holdout_after.rmse()[0] < calibration.holdout_before.rmse()[0]
    low, high = calibration.prior.interval(1 - 1e-9)
    assert (calibration.posterior.draws >= low - 1e-9).all()
    assert (calibration.posterior.draws <= high + 1e-9).all()
    assert {w.recording for w in calibration.holdout.windows} == {"kp400_run3"}
    assert "torque_constant" in calibration.table()


@pytest.mark.slow
def test_every_stage_reports_all_of_its_work(calibration: sbical.Calibration) -> None:
    assert calibration.posterior.names
    assert STAGES.done == STAGES.totals


@pytest.mark.slow
def test_the_tree_opens_in_arviz(calibration: sbical.Calibration) -> None:
    tree = calibration.posterior.to_datatree()
    assert {"posterior", "prior", "posterior_predictive", "observed_data"} <= set(tree.children)
    assert tree["posterior"]["torque_constant"].attrs["units"] == "N m/A"
    table = summary(tree, ci_prob=0.9, kind="stats")
    assert list(table.index) == list(calibration.simulator.parameters.names)


@pytest.mark.slow
def test_another_unit_is_inferred_at_once(calibration: sbical.Calibration, second_unit: list[Path]) -> None:
    recordings = sbical.read_recordings(second_unit, calibration.simulator.columns)
    began = time.perf_counter()
    inference = calibration.infer(recordings)
    assert time.perf_counter() - began < 2.0
    assert inference.posterior.draws.shape == calibration.posterior.draws.shape
    assert not np.allclose(inference.posterior.median(), calibration.posterior.median())
    assert [f.name for f in inference.verdict.checks] == ["support", "prior_edges", "contraction", "identified", "calibration"]
    assert inference.verdict.checks[-1].status == calibration.verdict.status


@pytest.mark.slow
def test_the_local_method_begins_where_an_amortized_answer_is(
    calibration: sbical.Calibration, second_unit: list[Path], client: Client
) -> None:
    recordings, stages = sbical.read_recordings(second_unit, calibration.simulator.columns), Stages()
    sharper = sbical.calibrate(
        calibration.simulator, calibration.prior, recordings, client=client, start=calibration, simulations=1300, training=SMALL,
        progress=stages,
    )  # fmt: skip
    assert not any("prior" in name for name in stages.done)
    assert any("region" in note for note in sharper.notes)
    assert any("began where an amortized calibration" in note for note in sharper.notes)
    first = calibration.infer(recordings).posterior
    inside = sharper.prior.to_unconstrained(sharper.posterior.draws).std(0)
    assert np.median(inside / sharper.prior.to_unconstrained(first.draws).std(0)) < 1


@pytest.mark.slow
def test_a_start_that_cannot_serve_is_refused(calibration: sbical.Calibration, second_unit: list[Path], client: Client) -> None:
    recordings = sbical.read_recordings(second_unit, calibration.simulator.columns)
    simulator, prior = calibration.simulator, calibration.prior
    renamed: Any = types.SimpleNamespace(names=("a", *prior.names[1:]))
    other = replace(calibration, prior=renamed)
    with pytest.raises(ExperimentError, match="serves the local method only"):
        sbical.calibrate(simulator, prior, recordings, client=client, start=calibration, method="amortized")
    with pytest.raises(ExperimentError, match=r"start \(--start\) has the unknowns a, "):
        sbical.calibrate(simulator, prior, recordings, client=client, start=other)
    with pytest.raises(ExperimentError, match="no recording ran the protocol"):
        sbical.calibrate(simulator, prior, recordings[:1], client=client, start=calibration)


@pytest.mark.slow
def test_another_protocol_is_refused_by_name(calibration: sbical.Calibration) -> None:
    other = sbical.read_recordings(catalog.examples("servo_pendulum")[2:], calibration.simulator.columns)
    with pytest.raises(ExperimentError, match=r"no recording ran the protocol of 'kp100_run1' \(kp400_run3: kp = 400 instead of 100\)"):
        calibration.infer(other)


@pytest.mark.slow
def test_a_saved_run_reads_back_the_same(calibration: sbical.Calibration, second_unit: list[Path], tmp_path: Path) -> None:
    calibration.save(tmp_path / "run")
    again = sbical.load_calibration(tmp_path / "run")
    assert np.array_equal(again.posterior.draws, calibration.posterior.draws)
    assert again.verdict == calibration.verdict
    assert again.simulator.digest() == calibration.simulator.digest()
    assert again.experiment.digest() == calibration.experiment.digest()
    recordings = sbical.read_recordings(second_unit, again.simulator.columns)
    assert np.array_equal(again.infer(recordings).posterior.draws, calibration.infer(recordings).posterior.draws)
    names = {p.name for p in (tmp_path / "run").iterdir()}
    assert names >= {
        "posterior.nc",
        "estimator.pt",
        "randomization.npz",
        "randomization.json",
        "verdict.json",
        "report.html",
        "provenance.json",
    }
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


@pytest.mark.slow
def test_a_failed_calibration_is_not_exported(calibration: sbical.Calibration, second_unit: list[Path], tmp_path: Path) -> None:
    first = replace(calibration.verdict.checks[0], status="fail", remedy="record again")
    failed = replace(calibration, verdict=replace(calibration.verdict, checks=(first,)))
    recordings = sbical.read_recordings(second_unit, calibration.simulator.columns)
    assert not failed.infer(recordings).verdict.trustworthy
    with pytest.raises(RefusedError, match="the verdict of this calibration is fail"):
        failed.randomization().export("mjcf", tmp_path / "model.xml")
    assert not (tmp_path / "model.xml").exists()
    failed.randomization().export("mjcf", tmp_path / "model.xml", force=True)
    assert "FAILED VERDICT" in (tmp_path / "model.xml").read_text()


@pytest.mark.slow
def test_a_robot_inside_the_model_class_is_found(client: Client, tmp_path: Path) -> None:
    """Recordings simulated by the model itself: the truth lies within the posterior, which is much narrower than the prior."""
    simulator, prior = sbical.load_simulator("servo_pendulum"), sbical.load_prior("hobby_servo")
    truth = {
        "torque_constant": 0.6, "resistance": 3.5, "command_delay": 0.012, "viscous": 0.01, "coulomb": 0.03, "armature": 0.004,
        "push_std": 0.01, "encoder_bias": 0.03, "encoder_noise": 0.001,
    }  # fmt: skip
    files = [_simulated(simulator, path, truth, tmp_path) for path in catalog.examples("servo_pendulum")]
    recordings = sbical.read_recordings(files, simulator.columns)
    found = sbical.calibrate(simulator, prior, recordings, client=client, simulations=2500, seed=1)
    low, high = found.posterior.interval(0.998)
    theta = simulator.parameters.vector(truth)
    assert ((theta > low) & (theta < high)).all(), dict(zip(simulator.parameters.names, zip(low, theta, high, strict=True), strict=True))
    rows = {r.name: r for r in found.posterior.summary()}
    assert rows["encoder_bias"].contraction > 0.9
    assert rows["coulomb"].contraction > 0.5
    assert found.verdict.trustworthy, str(found.verdict)


def _simulated(simulator: sbical.Simulator, example: Path, truth: dict[str, float], folder: Path) -> Path:
    """A copy of an example recording whose positions come from the simulator under known parameters."""
    recordings = sbical.read_recordings([example], simulator.columns)
    experiment = build(recordings, simulator.columns, simulator.layout)
    with simulating():
        outcome = simulator.simulate(simulator.parameters.vector(truth)[None], experiment, np.array([7]))
    lines = [line for line in example.read_text().splitlines() if not line.startswith("#")]
    rows = list(csv.DictReader(lines))
    (window,) = experiment.windows
    at = np.array([float(r["time"]) for r in rows]) - window.start
    position = np.interp(at, window.time, outcome.values[0][0, :, 0])
    path = folder / example.name
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows({**row, "position": f"{p:.9f}"} for row, p in zip(rows, position, strict=True))
    return path


@pytest.mark.slow
def test_a_function_prior_is_passed_again(client: Client, tmp_path: Path) -> None:
    """A Pyro model with values that depend on each other: resistance follows the torque constant."""
    simulator, catalogued = sbical.load_simulator("servo_pendulum"), sbical.load_prior("hobby_servo")
    recordings = sbical.read_recordings(catalog.examples("servo_pendulum")[:1], simulator.columns)
    low, high = catalogued.restricted(simulator.parameters).interval(1 - 1e-9)

    def servo() -> None:
        kt = pyro.sample("torque_constant", dist.LogNormal(-1.0, 0.5))
        pyro.sample("resistance", dist.LogNormal(1.4 + 0.5 * torch.log(kt), 0.3))
        for i, name in enumerate(simulator.parameters.names):
            if name not in ("torque_constant", "resistance"):
                pyro.sample(name, dist.Uniform(float(low[i]), float(high[i])))

    prior = sbical.load_prior(servo)
    found = sbical.calibrate(simulator, prior, recordings, client=client, simulations=1000, training=Training(members=2, steps=60))
    found.save(tmp_path / "run")
    with pytest.raises(PriorError, match="pass that function again"):
        sbical.load_calibration(tmp_path / "run")
    again = sbical.load_calibration(tmp_path / "run", prior=prior)
    assert again.prior.names == simulator.parameters.names
    assert np.array_equal(again.posterior.draws, found.posterior.draws)
