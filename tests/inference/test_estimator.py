"""The estimator against posteriors that are known: Gaussian, two modes, and flat where the data say nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sbical.errors import ExperimentError, OutputError, SimulationError
from sbical.inference.estimator import Estimator, fit, load_estimator
from sbical.inference.training import Training

SMALL = Training(members=2, trunk=(64, 64), head=32)
TINY = Training(members=1, trunk=(32,), head=16, steps=300)
#: Summaries of the linear Gaussian toy: parameter 1 is seen five times as sharply as parameter 0, parameter 2 not at all.
DESIGN = np.array([[1.0, 0.0, 0.0], [0.5, 4.0, 0.0], [0.0, -3.0, 0.0], [0.3, 0.0, 0.0], [0.0, 0.0, 0.0]])


def linear(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """theta_u (n, 3) from a standard normal prior and x = DESIGN theta + standard normal noise (n, 5)."""
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal((n, 3))
    return theta, theta @ DESIGN.T + rng.standard_normal((n, 5))


def exact(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean (m, 3) and covariance (3, 3) of the toy's posterior."""
    covariance = np.linalg.inv(np.eye(3) + DESIGN.T @ DESIGN)
    return x @ DESIGN @ covariance, covariance


@pytest.fixture(scope="module")
def trained() -> Estimator:
    return fit(*linear(2000, seed=0), seed=0, training=SMALL)


def test_gaussian_posterior_is_recovered(trained: Estimator) -> None:
    _, x = linear(40, seed=1)
    mean, covariance = exact(x)
    draws = trained.sample_many(x, 500, seed=0)
    sd = np.sqrt(np.diag(covariance))
    assert np.sqrt(np.mean(((draws.mean(1) - mean) / sd) ** 2, axis=0)).max() < 0.3
    np.testing.assert_allclose(draws.std(1).mean(0), sd, rtol=0.15)


def test_loss_is_near_the_entropy_of_the_exact_posterior(trained: Estimator) -> None:
    theta, x = linear(4000, seed=2)
    best = 0.5 * np.linalg.slogdet(2 * np.pi * np.e * exact(x)[1])[1]
    reached = -trained.log_prob_pairs(theta, x).mean()
    assert best - 0.1 < reached < best + 0.15
    assert trained.losses == pytest.approx([reached] * 2, abs=0.25)


def test_density_is_the_density_of_the_draws(trained: Estimator) -> None:
    """E[1/q over a normal that covers it] is one: the mixture's density is normalised where its draws are."""
    density = trained.condition(linear(1, seed=3)[1][0])
    draws = density.sample(4000, seed=0)
    cover_mean, cover_sd = draws.mean(0), 1.5 * draws.std(0)
    cover = np.random.default_rng(0).normal(cover_mean, cover_sd, (4000, 3))
    log_cover = (-0.5 * ((cover - cover_mean) / cover_sd) ** 2 - np.log(cover_sd * np.sqrt(2 * np.pi))).sum(1)
    assert np.exp(density.log_prob(cover) - log_cover).mean() == pytest.approx(1.0, abs=0.1)
    pairs = trained.log_prob_pairs(draws[:5], np.tile(density.x_o, (5, 1)))
    np.testing.assert_allclose(density.log_prob(draws[:5]), pairs)


def test_first_draws_are_as_good_a_mixture_as_all(trained: Estimator) -> None:
    density = trained.condition(linear(1, seed=4)[1][0])
    draws = density.sample(2000, seed=0)
    assert np.abs(draws[:500].mean(0) - draws.mean(0)).max() < 0.2
    assert len(np.unique(draws[:, 0])) == 2000
    assert density.sample(1, seed=0).shape == (1, 3)
    assert density.sample(0, seed=0).shape == (0, 3)


def test_training_and_draws_are_bitwise_repeatable(trained: Estimator) -> None:
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    theta, x = linear(300, seed=0)
    short = Training(members=2, trunk=(8,), head=8, epochs=2, steps=10)
    one, two, other = (fit(theta, x, seed=seed, training=short) for seed in (5, 5, 6))
    assert one.losses == two.losses != other.losses
    assert np.array_equal(one.condition(x[0]).sample(50, seed=1), two.condition(x[0]).sample(50, seed=1))
    assert not np.array_equal(trained.condition(x[0]).sample(50, seed=1), trained.condition(x[0]).sample(50, seed=2))
    assert torch.equal(state, torch.random.get_rng_state())
    assert torch.get_num_threads() == threads


def test_members_differ(trained: Estimator) -> None:
    weights = [torch.cat([p.flatten() for p in m.parameters()]) for m in trained.members]
    assert not torch.equal(*weights)


def test_several_measurements_of_each_simulation_teach_more() -> None:
    """Few simulations, so that one measurement of each is learned by heart; what was not trained on tells."""
    theta, x = linear(300, seed=4)
    again = np.stack([x, *(x + noise for noise in again_measured(x, theta))], 1)
    unseen = linear(2000, seed=5)
    long = replace(TINY, steps=1500)
    once, often = (fit(theta, given, seed=0, training=long).log_prob_pairs(*unseen).mean() for given in (x, again))
    assert often > once + 0.1
    with pytest.raises(SimulationError, match="not finite"):
        fit(theta, np.where(np.arange(9)[None, :, None] == 8, np.nan, again), seed=0, training=TINY)


def again_measured(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """(8, n, 5): what turns the first measurements into others of the same simulations."""
    rng = np.random.default_rng(6)
    return theta @ DESIGN.T + rng.standard_normal((8, *x.shape)) - x


def test_progress_counts_epochs_of_all_members() -> None:
    seen: list[tuple[int, int]] = []
    training = Training(members=2, trunk=(8,), head=8, epochs=3, steps=1)
    fit(*linear(200, seed=0), seed=0, training=training, progress=lambda done, total, _: seen.append((done, total)))
    assert seen == [(i, 6) for i in range(1, 7)]


def test_saved_estimator_is_the_same(trained: Estimator, tmp_path: Path) -> None:
    path = tmp_path / "estimator.pt"
    trained.save(path)
    again = load_estimator(path)
    _, x = linear(3, seed=0)
    assert np.array_equal(again.sample_many(x, 20, seed=0), trained.sample_many(x, 20, seed=0))
    assert (again.training, again.losses) == (trained.training, trained.losses)


def test_foreign_files_are_refused(trained: Estimator, tmp_path: Path) -> None:
    path = tmp_path / "estimator.pt"
    with pytest.raises(OutputError, match="there is no estimator at "):
        load_estimator(path)
    for content in (b"", b"PK\x03\x04 truncated", b"\x80\x04N."):
        path.write_bytes(content)
        with pytest.raises(
            OutputError, match=r"estimator\.pt is not an estimator that sbical saved; give the estimator\.pt of a calibration"
        ):
            load_estimator(path)
    torch.save([1, 2], path)
    with pytest.raises(OutputError, match="is not an estimator that sbical saved"):
        load_estimator(path)
    trained.save(path)
    content = torch.load(path, weights_only=True)
    torch.save({**content, "format": 0}, path)
    with pytest.raises(OutputError, match="has layout 0, this sbical reads layout 2; calibrate again, or use the version that wrote it"):
        load_estimator(path)
    torch.save({**content, "training": {**content["training"], "trunk": (16,)}}, path)
    with pytest.raises(OutputError, match=r"is damaged \(RuntimeError on rebuilding it\); calibrate again$"):
        load_estimator(path)
    with pytest.raises(OutputError, match="cannot write the estimator to "):
        trained.save(tmp_path / "no such folder" / "estimator.pt")


def test_unusable_training_sets_are_named() -> None:
    theta, x = linear(200, seed=0)
    with pytest.raises(SimulationError, match="50 simulations are too few to train on; simulate at least 100"):
        fit(theta[:50], x[:50], seed=0)
    with pytest.raises(SimulationError, match=r"of the same simulations; got \(200, 3\) and \(199, 5\)"):
        fit(theta, x[1:], seed=0)
    x[[3, 7], 0] = np.nan
    with pytest.raises(SimulationError, match=r"2 of 200 simulations are not finite \(rows 3, 7\)"):
        fit(theta, x, seed=0)
    with pytest.raises(SimulationError, match="training needs learning_rate above 0, got -1"):
        Training(learning_rate=-1)
    with pytest.raises(SimulationError, match=r"training needs trunk above 0, got \(\)"):
        Training(trunk=())
    with pytest.raises(SimulationError, match="training needs holdout below 1, got 1"):
        Training(holdout=1.0)


def test_unusable_observations_are_named(trained: Estimator) -> None:
    with pytest.raises(ExperimentError, match=r"was trained on 5 summaries; got an array of shape \(1, 4\)"):
        trained.condition(np.zeros(4))
    with pytest.raises(ExperimentError, match="summaries 1, 4 are not finite"):
        trained.condition(np.array([0.0, np.nan, 0.0, 0.0, np.inf]))


@pytest.mark.slow
def test_wild_and_constant_summaries_do_no_harm() -> None:
    """Some prior draws give summaries thousands of times the usual, one summary never changes, one is nearly always 0."""
    theta, x = linear(2000, seed=0)
    rng = np.random.default_rng(1)
    wild = np.where(rng.random(len(x)) < 0.02, 1e6 * rng.standard_normal(len(x)), 0.0)
    x = np.column_stack([x[:, :4] + wild[:, None], np.full(len(x), 3.0), wild])
    estimator = fit(theta, x, seed=0, training=SMALL)
    test_theta, test_x = linear(30, seed=9)
    test_x = np.column_stack([test_x[:, :4], np.full(30, 3.1), np.zeros(30)])
    mean, covariance = exact(np.column_stack([test_x[:, :4], np.zeros(30)]))
    error = (estimator.sample_many(test_x, 300, seed=0).mean(1) - mean) / np.sqrt(np.diag(covariance))
    assert np.sqrt((error**2).mean(0)).max() < 0.5
    assert np.isfinite(estimator.log_prob_pairs(test_theta, test_x)).all()


@pytest.mark.slow
def test_two_modes_are_both_found() -> None:
    """x sees only |theta|: the posterior has two equal modes; a second parameter lies on a curved ridge."""
    rng = np.random.default_rng(0)
    theta = rng.standard_normal((4000, 2))
    x = np.column_stack([np.abs(theta[:, 0]), theta[:, 1] + theta[:, 0] ** 2, theta[:, 1]]) + 0.1 * rng.standard_normal((4000, 3))
    density = fit(theta, x, seed=0, training=Training(members=2, trunk=(64, 64))).condition(np.array([1.0, 1.0, 0.0]))
    draws = density.sample(2000, seed=0)
    assert (draws[:, 0] > 0).mean() == pytest.approx(0.5, abs=0.12)
    assert np.median(np.abs(draws[:, 0])) == pytest.approx(1.0, abs=0.05)
    assert (np.abs(draws[:, 0]) < 0.5).mean() < 0.03


def test_one_parameter_is_enough() -> None:
    rng = np.random.default_rng(0)
    theta = rng.standard_normal((1000, 1))
    x = theta + 0.5 * rng.standard_normal((1000, 1))
    draws = fit(theta, x, seed=0, training=TINY).condition(np.array([1.0])).sample(2000, seed=0)
    assert draws.mean() == pytest.approx(0.8, abs=0.12)
    assert draws.std() == pytest.approx(np.sqrt(0.2), rel=0.15)
