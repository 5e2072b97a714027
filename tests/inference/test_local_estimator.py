"""Charts and local estimators: what they say of a Gaussian that is known, and that files keep it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch

from sbical.errors import OutputError
from sbical.inference import mode_estimator
from sbical.inference.estimator import fit
from sbical.inference.local_estimator import LocalEstimator, ModePart, load_local_estimator
from sbical.inference.mode_estimator import ModeEstimator, RegressionCoordinates
from sbical.inference.training import Training
from sbical.laplace.linear_summary import LinearSummary
from sbical.laplace.ridge import Ridge
from sbical.laplace.truncated_box import Box

#: its stubs do not know frozen distributions
stats: Any = scipy.stats
TINY = Training(members=1, trunk=(16,), head=16, steps=150)
ORIGIN, SPREAD = np.array([3.0, -20.0]), np.array([0.1, 2.0])
BOX = Box.around(ORIGIN, np.array([[0.01, 0.05], [0.05, 4.25]]), np.array([2.9, -19.0]), SPREAD, 4.0)
FACTOR = BOX.factor
#: whitened parameters z ~ N(0, I), summaries x = z + N(0, 0.5^2 I): the posterior is N(0.8 x, 0.2 I)
NOISE = 0.5


def simulated(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 2))
    return ORIGIN + z @ FACTOR.T, z + NOISE * rng.normal(size=(n, 2))


def summary() -> LinearSummary:
    rng = np.random.default_rng(1)
    d = 8
    return LinearSummary(
        clean=rng.normal(size=d), gain=rng.normal(size=(2, d)), reduced=rng.normal(size=(d, 2)), by_error=rng.normal(size=(d, 1)),
        error_gain=rng.normal(size=(d, 1)), bends=np.empty((0, d)), straight=np.empty((d, 0)), window=np.zeros(d, int),
        group=np.zeros(d, int), level=np.zeros(1), labels=("shift 0 (a)", "shift 1 (b)", "residual position"),
    )  # fmt: skip


@pytest.fixture(scope="module")
def around_mode() -> ModeEstimator:
    return mode_estimator.fit(*simulated(2000), BOX, seed=0, training=TINY)


@pytest.fixture(scope="module")
def local(around_mode: ModeEstimator) -> LocalEstimator:
    parts = [ModePart(share, summary(), np.array(x_o), around_mode) for share, x_o in ((0.3, [0.4, -0.2]), (0.7, [-1.0, 0.5]))]
    return LocalEstimator(tuple(parts))


def test_chart_is_the_regression_and_its_inverse() -> None:
    u, x = simulated(4000)
    found = RegressionCoordinates.fit(u, x, BOX)
    np.testing.assert_allclose(found.slope, 0.8 * np.eye(2), atol=0.03)
    np.testing.assert_allclose(found.intercept, 0.0, atol=0.03)
    z, log_scale = found.residuals(u, x)
    np.testing.assert_allclose(z.std(0), np.sqrt(0.2), rtol=0.05)
    np.testing.assert_allclose(found.parameters(z, x), u, rtol=1e-10)
    np.testing.assert_allclose(log_scale, 0.5 * np.log(0.01 * 4.25 - 0.05**2))


def test_density_and_draws_are_the_posteriors(around_mode: ModeEstimator) -> None:
    x_o = np.array([0.4, -0.2])
    exact = stats.multivariate_normal(ORIGIN + FACTOR @ (0.8 * x_o), 0.2 * FACTOR @ FACTOR.T)
    draws = around_mode.sample_many(x_o[None], 4000, 0)[0]
    scored = np.linalg.solve(FACTOR, (draws - exact.mean).T).T / np.sqrt(0.2)
    np.testing.assert_allclose(scored.mean(0), 0.0, atol=0.15)
    np.testing.assert_allclose(scored.std(0), 1.0, atol=0.15)
    gap = around_mode.log_prob_pairs(draws, np.broadcast_to(x_o, draws.shape)) - exact.logpdf(draws)
    assert abs(gap.mean()) < 0.1  # KL(q || posterior) [nats]


def test_density_is_a_mixture(local: LocalEstimator, around_mode: ModeEstimator) -> None:
    u, _ = simulated(20, seed=3)
    each = [np.exp(around_mode.log_prob_pairs(u, np.broadcast_to(p.x_o, u.shape))) for p in local.parts]
    np.testing.assert_allclose(local.log_prob(u), np.log(0.3 * each[0] + 0.7 * each[1]))


def test_a_saved_estimator_reads_back_the_same(local: LocalEstimator, tmp_path: Path) -> None:
    local.save(tmp_path / "estimator.pt")
    again = load_local_estimator(tmp_path / "estimator.pt")
    u, _ = simulated(50, seed=4)
    np.testing.assert_array_equal(again.log_prob(u), local.log_prob(u))
    for a, b in zip(again.parts, local.parts, strict=True):
        assert a.share == b.share
        assert a.summary.labels == b.summary.labels
        x = np.random.default_rng(5).normal(size=8)
        np.testing.assert_array_equal(a.summary.row(x), b.summary.row(x))
        np.testing.assert_array_equal(a.estimator.sample_many(a.x_o[None], 10, 0), b.estimator.sample_many(b.x_o[None], 10, 0))


def test_a_saved_ridge_reads_back_the_same(around_mode: ModeEstimator, tmp_path: Path) -> None:
    ridge = Ridge(1, np.arange(-2.0, 3.0), np.stack([[s**2, 0.0] for s in range(-2, 3)]), np.repeat(np.eye(2)[None], 5, 0))
    bent = ModeEstimator(around_mode.estimator, replace(around_mode.coordinates, box=replace(BOX, ridges=(ridge,))))
    local = LocalEstimator((ModePart(1.0, summary(), np.array([0.4, -0.2]), bent),))
    local.save(tmp_path / "estimator.pt")
    u, _ = simulated(50, seed=4)
    np.testing.assert_array_equal(load_local_estimator(tmp_path / "estimator.pt").log_prob(u), local.log_prob(u))


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "estimator.pt"
    with pytest.raises(OutputError, match="there is no estimator"):
        load_local_estimator(path)
    path.write_text("hello")
    with pytest.raises(OutputError, match="not an estimator that sbical saved"):
        load_local_estimator(path)
    fit(*simulated(200), seed=0, training=Training(members=1, trunk=(8,), head=8, steps=5)).save(path)
    with pytest.raises(OutputError, match="damaged"):
        load_local_estimator(path)  # an amortized one


def test_damaged_files_are_refused(local: LocalEstimator, tmp_path: Path) -> None:
    path = tmp_path / "estimator.pt"
    local.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(OutputError, match="not an estimator"):
        load_local_estimator(path)

    def without(*keys: str) -> None:
        path.write_bytes(whole)
        content: dict[str, Any] = torch.load(path, weights_only=True)
        item: dict[str, Any] = content["local"][0]
        for key in keys[:-1]:
            item = item[key]
        del item[keys[-1]]
        torch.save(content, path)

    for keys in (("x_o",), ("share",), ("chart", "slope"), ("summary", "gain"), ("estimator", "members"), ("estimator", "format")):
        without(*keys)
        with pytest.raises(OutputError, match="damaged"):
            load_local_estimator(path)


def test_another_layout_is_named(local: LocalEstimator, tmp_path: Path) -> None:
    path = tmp_path / "estimator.pt"
    local.save(path)
    content = torch.load(path, weights_only=True)
    torch.save({**content, "format": 99}, path)
    with pytest.raises(OutputError, match=r"has layout 99, this sbical reads layout 2"):
        load_local_estimator(path)


def test_a_folder_that_cannot_be_written(local: LocalEstimator, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot write the estimator"):
        local.save(tmp_path / "missing" / "estimator.pt")
