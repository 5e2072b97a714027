"""The whole local route on a pendulum with an explicit likelihood: the truth is found, kept, and the same on any cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arviz_stats.summary import summary
from distributed import Client
from scipy.stats import norm

import sbical
from sbical.common.progress import NullProgress, Stage
from sbical.errors import ExperimentError, OutputError
from sbical.inference.local_estimator import LocalEstimator
from sbical.inference.routes.local import DIFFUSE
from sbical.inference.training import Training
from sbical.laplace.linear_summary import LinearSummary
from sbical.priors.prior import Prior
from sbical.recordings.experiment import Experiment
from sbical.recordings.held_signal import HeldSignal
from sbical.recordings.recording import Recording
from sbical.results.compare import compare
from sbical.simulation import fanout
from sbical.simulation.cluster import cluster
from sbical.simulation.journal import stages
from sbical.simulation.process import simulating
from sbical.simulation.simulator import Simulator

LIMITED = """
[effects.limit]
family = "force_limit"
target = "motor"
limit = "limit"
"""
MEDIANS, SPREAD = {"viscous": 0.02, "grain": 0.003, "hum": 0.03, "limit": 5.0}, 0.7
SMALL = 1000
TRUTH = {"viscous": 0.012, "grain": 0.002, "hum": 0.05, "limit": 3.0}


@dataclass(frozen=True)
class Robot:
    simulator: Simulator
    prior: Prior
    recording: Recording

    def calibrate(self, client: Client, simulations: int = 3000, **options: Any) -> sbical.Calibration:
        return sbical.calibrate(self.simulator, self.prior, [self.recording], client=client, simulations=simulations, **options)

    def within(self, found: sbical.Calibration) -> bool:
        """Whether every truth lies within three posterior standard deviations, in logarithms: few draws tell no more of the tails."""
        logs = np.log(found.posterior.draws)
        truth = np.log([TRUTH[name] for name in self.simulator.parameters.names])
        return bool((np.abs(truth - logs.mean(0)) < 3 * logs.std(0)).all())


MakeRobot = Callable[..., Robot]


@pytest.fixture(scope="module")
def make_robot(
    make_simulator: Callable[[str, str], Simulator], make_experiment: Callable[..., Experiment],
    make_recording: Callable[..., Recording], log_normal: Callable[..., str], pendulum_xml: str, tmp_path_factory: pytest.TempPathFactory,
) -> MakeRobot:  # fmt: skip
    """A robot, its prior, and 3 s of it under a known torque, ``drive`` [N m] high, and the true parameters."""

    def make(toml: str, start: tuple[float, float], xml: str = pendulum_xml, drive: float = 0.2) -> Robot:
        simulator = make_simulator(toml, xml)
        path = tmp_path_factory.mktemp("prior") / "prior.toml"
        path.write_text(log_normal({name: (MEDIANS[name], SPREAD) for name in simulator.parameters.names}))
        time = np.arange(0.0, 3.0, 0.01)
        torque = drive * np.sin(5 * time)
        experiment = make_experiment(simulator, seconds=(3.0,), time=time, command=HeldSignal(time, torque), start=start)
        theta = np.array([[TRUTH[name] for name in simulator.parameters.names]])
        with simulating():
            measured = simulator.simulate(theta, experiment, np.array([3])).values[0][0]
        streams = {c.name: (time, measured[:, i]) for i, c in enumerate(simulator.columns.measurements)}
        return Robot(simulator, sbical.load_prior(path), make_recording("run1", {"torque": (time, torque), **streams}))

    return make


@pytest.fixture(scope="module")
def robot(make_robot: MakeRobot, pendulum_toml: str, noisy_toml: str) -> Robot:
    """A noisy pendulum."""
    return make_robot(pendulum_toml + noisy_toml, (0.2, 0.0))


@pytest.fixture(scope="module")
def found(robot: Robot, client: Client) -> sbical.Calibration:
    return robot.calibrate(client)


@pytest.fixture(scope="module")
def small(robot: Robot, client: Client) -> sbical.Calibration:
    """For what does not depend on how good the posterior is."""
    return robot.calibrate(client, SMALL)


@pytest.mark.slow
def test_the_truth_is_found(robot: Robot, found: sbical.Calibration) -> None:
    assert robot.within(found), found.table()
    assert min(r.contraction for r in found.posterior.summary()) > 0.8
    assert found.verdict.trustworthy, str(found.verdict)


@pytest.mark.slow
def test_the_posterior_is_the_exact_one(robot: Robot, found: sbical.Calibration) -> None:
    """Against a grid over the damping and both noises, the initial state's error integrated out where the motion is linear in it."""
    draws, experiment = found.posterior.draws, found.experiment.diffuse(DIFFUSE)
    axes = [np.linspace(d.mean() - 5 * d.std(), d.mean() + 5 * d.std(), 41) for d in draws.T]
    observed, (_, grain, hum) = experiment.observed[0], draws.mean(0)
    damping = np.stack([axes[0], np.full(41, grain), np.full(41, hum)], 1)

    def clean(errors: np.ndarray) -> np.ndarray:
        with simulating():
            seeds = np.zeros(len(damping), int)
            return robot.simulator.simulate(damping, experiment, seeds, noise=False, errors=errors[:, None]).values[0]

    def around(errors: np.ndarray, h: float = 1e-3) -> tuple[np.ndarray, np.ndarray]:
        """Residual at no error as extrapolated from ``errors`` (41, 2), and the effect (41, T, 2, 2) of errors."""
        effect = np.stack([(clean(errors + step) - clean(errors - step)) / (2 * h) for step in h * np.eye(2)], -1)
        return observed - clean(errors) + np.einsum("ntck,nk->ntc", effect, errors), effect

    def solved(residual: np.ndarray, effect: np.ndarray, stds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Precision (n, 2, 2) of the error and its gradient (n, 2) at no error."""
        inner = np.eye(2) + np.einsum("ntck,ntcl,c->nkl", effect, effect, stds**-2)
        return inner, np.einsum("ntck,ntc,c->nk", effect, residual, stds**-2)

    errors = np.zeros((41, 2))
    for _ in range(3):
        inner, pull = solved(*around(errors), np.array([grain, hum]))
        errors = np.linalg.solve(inner, pull[..., None])[..., 0]
    residual, effect = around(errors)
    log_p = np.zeros((41, 41, 41))
    for i, position in enumerate(axes[1]):
        for j, velocity in enumerate(axes[2]):
            stds = np.array([position, velocity])
            inner, pull = solved(residual, effect, stds)
            made_up = np.einsum("nk,nk->n", pull, np.linalg.solve(inner, pull[..., None])[..., 0])
            square = (residual**2 / stds**2).sum((1, 2)) - made_up
            log_p[:, i, j] = -0.5 * (square + np.linalg.slogdet(inner)[1]) - len(observed) * np.log(stds).sum()
    for k, (axis, median) in enumerate(zip(axes, MEDIANS.values(), strict=False)):
        shape = [-1 if i == k else 1 for i in range(3)]
        log_p += (norm.logpdf(np.log(axis / median), 0, SPREAD) - np.log(axis)).reshape(shape)
    density = np.exp(log_p - log_p.max())
    cells = np.log([a[1] - a[0] for a in axes]).sum() - 0.5 * observed.size * np.log(2 * np.pi)
    figures = next(f for f in found.verdict.checks if f.name == "correction").values
    assert figures["log_evidence"] == pytest.approx(
        log_p.max() + np.log(density.sum()) + cells, abs=0.05 + 3 * figures["log_evidence_error"]
    )
    for k, axis in enumerate(axes):
        marginal = density.sum(tuple(i for i in range(3) if i != k))
        marginal /= marginal.sum()
        mean = (axis * marginal).sum()
        sd = np.sqrt(((axis - mean) ** 2 * marginal).sum())
        assert abs(draws[:, k].mean() - mean) < 0.2 * sd, robot.prior.names[k]
        assert draws[:, k].std() == pytest.approx(sd, rel=0.15), robot.prior.names[k]


@pytest.mark.slow
def test_what_a_local_run_leaves_behind(found: sbical.Calibration) -> None:
    assert found.provenance["method"] == "local"
    checks = {f.name: f for f in found.verdict.checks}
    assert checks["correction"].status == "pass"
    assert checks["correction"].values["efficiency"] > 0.1
    assert "sbc" not in checks  # nothing amortized is left to judge
    assert isinstance(found.summary, LinearSummary)
    assert isinstance(found.estimator, LocalEstimator)
    tree = found.posterior.to_datatree()
    assert {"posterior", "prior", "sample_stats", "posterior_predictive", "observed_data"} <= set(tree.children)
    assert {"log_weight", "log_posterior"} <= set(tree["sample_stats"].data_vars)
    assert len(summary(tree, ci_prob=0.9, kind="stats")) == 3


@pytest.mark.slow
def test_a_local_calibration_serves_no_other_robot(robot: Robot, found: sbical.Calibration) -> None:
    with pytest.raises(ExperimentError, match="method = amortized"):
        found.infer([robot.recording])


@pytest.mark.slow
def test_a_saved_local_run_reads_back_the_same(found: sbical.Calibration, tmp_path: Path) -> None:
    found.save(tmp_path / "run")
    again = sbical.load_calibration(tmp_path / "run")
    np.testing.assert_array_equal(again.posterior.draws, found.posterior.draws)
    assert again.verdict == found.verdict
    assert again.provenance["method"] == "local"
    assert isinstance(again.estimator, LocalEstimator)
    assert isinstance(found.estimator, LocalEstimator)
    u = found.prior.to_unconstrained(found.posterior.draws[:20])
    np.testing.assert_array_equal(again.estimator.log_prob(u), found.estimator.log_prob(u))
    statistics = again.posterior.to_datatree()["sample_stats"]
    np.testing.assert_array_equal(statistics["log_weight"], found.posterior.to_datatree()["sample_stats"]["log_weight"])
    with pytest.raises(ExperimentError, match="method = amortized"):
        again.infer([])


@pytest.mark.slow
def test_the_same_seed_gives_the_same_draws_on_any_cluster(robot: Robot, small: sbical.Calibration) -> None:
    with cluster(None, workers=1) as one:
        again = robot.calibrate(one, SMALL)
    np.testing.assert_array_equal(again.posterior.draws, small.posterior.draws)
    assert replace(again.verdict, checks=()) == replace(small.verdict, checks=())
    np.testing.assert_array_equal(again.simulations.x, small.simulations.x)


class Stopping(NullProgress):
    """Ctrl-C at the ``after``-th chunk of a stage."""

    def __init__(self, name: str, after: int) -> None:
        self.name, self.left = name, after

    @contextmanager
    def stage(self, name: str, total: int | None) -> Iterator[Stage]:
        with super().stage(name, total) as stage:
            yield self if name == self.name else stage

    def advance(self, n: int = 1, note: str = "") -> None:
        self.left -= n > 0
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_a_stopped_run_resumes_to_the_same_result(
    robot: Robot, small: sbical.Calibration, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fanout, "HERE_SECONDS", 0.0)  # what the client does by itself is not kept
    store = tmp_path / "store"
    with pytest.raises(KeyboardInterrupt):
        robot.calibrate(client, SMALL, store=store, progress=Stopping("weigh", 9))
    before = stages(store)
    assert before["weigh"][0] > 0
    assert {"pilot", "modes", "train"} < set(before)
    with pytest.raises(OutputError, match=r"belongs to another run \(simulations was 1000, is 1001\)"):
        robot.calibrate(client, SMALL + 1, store=store, resume=True)
    again = robot.calibrate(client, SMALL, store=store, resume=True)
    np.testing.assert_array_equal(again.posterior.draws, small.posterior.draws)
    np.testing.assert_array_equal(again.holdout.windows[0].draws, small.holdout.windows[0].draws)
    asked = {stage: (kept, asked) for stage, (kept, asked, _) in stages(store).items()}
    assert all(kept == all_of_them for kept, all_of_them in asked.values())
    # every batch that was kept was found again: none of the seeds was asked for twice
    assert all(asked[stage][1] == before[stage][1] for stage in ("pilot", "modes", "train"))


@pytest.mark.slow
def test_an_amortized_answer_is_where_the_exact_one_begins(robot: Robot, found: sbical.Calibration, client: Client) -> None:
    rough = robot.calibrate(client, simulations=1000, method="amortized", training=Training(members=1, steps=200))
    again = robot.calibrate(client, 1500, start=rough)
    draws, exact = (robot.prior.to_unconstrained(c.posterior.draws) for c in (again, found))
    assert (np.abs(draws.mean(0) - exact.mean(0)) < 0.3 * exact.std(0)).all()
    np.testing.assert_allclose(draws.std(0), exact.std(0), rtol=0.2)
    assert again.posterior.attrs["efficiency"] > 0.5


def test_resuming_nothing_is_refused(robot: Robot, client: Client, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="without a store"):
        robot.calibrate(client, resume=True)
    with pytest.raises(OutputError, match="no unfinished run"):
        robot.calibrate(client, resume=True, store=tmp_path / "none")


@pytest.mark.slow
def test_a_robot_whose_start_is_known(
    make_robot: MakeRobot, client: Client, pendulum_toml: str, noisy_toml: str, pendulum_xml: str
) -> None:
    """No sensor reads the joint itself, so it starts where the model says, and no initial error is looked for."""
    tendon = '<tendon><fixed name="belt"><joint joint="hinge" coef="1"/></fixed></tendon>'
    sensors = '<sensor><tendonpos name="angle" tendon="belt"/><tendonvel name="rate" tendon="belt"/></sensor>'
    xml = pendulum_xml[: pendulum_xml.index("<sensor>")] + tendon + sensors + "</mujoco>"
    robot = make_robot(pendulum_toml + noisy_toml, (0.0, 0.0), xml)
    found = robot.calibrate(client, SMALL)
    assert not found.experiment.windows[0].initial.factor.any()
    assert robot.within(found), found.table()


@pytest.mark.slow
def test_only_the_noise_is_unknown(make_robot: MakeRobot, client: Client, pendulum_toml: str, noisy_toml: str) -> None:
    robot = make_robot(pendulum_toml[: pendulum_toml.index("[effects")] + noisy_toml, (0.2, 0.0))
    assert robot.simulator.parameters.names == ("grain", "hum")
    found = robot.calibrate(client, SMALL)
    assert robot.within(found), found.table()


def as_the_prior(found: sbical.Calibration, name: str) -> bool:
    """Whether a parameter came out as wide as its prior, and in its middle."""
    k = found.prior.names.index(name)
    score = (np.log(found.posterior.draws[:, k]) - np.log(MEDIANS[name])) / SPREAD
    return abs(score.mean()) < 0.15 and abs(score.std() - 1) < 0.15


@pytest.mark.slow
def test_a_parameter_without_effect_stays_as_the_prior_has_it(
    make_robot: MakeRobot, client: Client, pendulum_toml: str, noisy_toml: str, pendulum_xml: str
) -> None:
    """No torque comes near the limit."""
    xml = pendulum_xml.replace("<motor ", '<motor forcerange="-9 9" ')
    robot = make_robot(pendulum_toml + noisy_toml + LIMITED, (0.2, 0.0), xml)
    found = robot.calibrate(client, 1500)
    assert as_the_prior(found, "limit"), found.table()
    assert robot.within(found), found.table()
    # the check warns below 0.1, and 2,000 weighted draws may say a little more: another processor's rounding decides
    assert next(r.contraction for r in found.posterior.summary() if r.name == "limit") < 0.25
    assert "limit" in next(f.figure for f in found.verdict.checks if f.name == "contraction")


@pytest.mark.slow
def test_a_robot_that_does_not_move_teaches_its_noise_only(
    make_robot: MakeRobot, client: Client, pendulum_toml: str, noisy_toml: str
) -> None:
    """It hangs still, whatever the friction; only what its start may be off would show some."""
    robot = make_robot(pendulum_toml + noisy_toml, (0.0, 0.0), drive=0.0)
    found = robot.calibrate(client, 1500)
    assert found.posterior.summary()[0].contraction < 0.3, found.table()
    assert robot.within(found), found.table()


@pytest.mark.slow
def test_noise_at_its_bound_is_found_there(
    make_robot: MakeRobot, client: Client, log_normal: Callable[..., str], pendulum_toml: str, noisy_toml: str, tmp_path: Path
) -> None:
    """The prior of one noise ends above the truth."""
    robot = make_robot(pendulum_toml + noisy_toml, (0.2, 0.0))
    bounded = 'distribution = "Uniform"\nlow = 0.0025\nhigh = 0.01\nunit = "rad"\nsource = "made up"'
    rest = log_normal({name: (MEDIANS[name], SPREAD) for name in ("viscous", "hum")})
    (tmp_path / "prior.toml").write_text(f"{rest}\n[grain]\n{bounded}")
    found = replace(robot, prior=sbical.load_prior(tmp_path / "prior.toml")).calibrate(client, 1500)
    grain = found.posterior.draws[:, found.prior.names.index("grain")]
    assert 0.0025 < grain.min() < np.median(grain) < 0.0027
    edges = next(f for f in found.verdict.checks if f.name == "prior_edges")
    assert edges.status != "pass"
    assert "grain" in edges.figure
    assert np.isfinite(found.posterior.attrs["log_evidence"])


@pytest.mark.slow
def test_evidences_are_compared(found: sbical.Calibration) -> None:
    attrs = dict(found.posterior.attrs)
    worse = replace(found, posterior=replace(found.posterior, attrs={**attrs, "log_evidence": attrs["log_evidence"] - 20.0}))
    assert "do not decide" in str(compare(found, found))
    clear = compare(found, worse, ("plain", "other"))
    assert clear.log_factor == pytest.approx(20.0)
    assert clear.error == pytest.approx(np.sqrt(2) * attrs["log_evidence_error"])
    assert str(clear).endswith("the recordings speak very strongly for plain")
    assert str(compare(worse, found, ("plain", "other"))).endswith("very strongly for other")
    without = replace(found, posterior=replace(found.posterior, attrs={}))
    with pytest.raises(OutputError, match="second has no evidence"):
        compare(found, without)
    windows = tuple(replace(w, observed=w.observed + 1.0) for w in found.experiment.windows)
    with pytest.raises(OutputError, match="other recordings"):
        compare(found, replace(found, experiment=replace(found.experiment, windows=windows)))
