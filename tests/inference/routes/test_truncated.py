"""The prior cut down to a region: what lies in it, what is kept of it, and when that is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from sbical.errors import SimulationError
from sbical.inference.routes.base import FreshPosteriors, features, joined, subset
from sbical.inference.routes.truncated import bounding_box, inside, truncated_prior
from sbical.laplace.truncated_box import Box
from sbical.priors.prior import Prior, load_prior
from sbical.simulation.fanout import SimulationSet
from sbical.simulation.runner import check_failures

stats: Any = scipy.stats


@pytest.fixture
def prior(tmp_path: Path) -> Callable[..., Prior]:
    def make(**distributions: str) -> Prior:
        path = tmp_path / "prior.toml"
        path.write_text("\n".join(f'[{name}]\n{text}\nunit = "1"\nsource = "made up"' for name, text in distributions.items()))
        return load_prior(path)

    return make


@pytest.mark.parametrize("d", [1, 3])
def test_a_region_holds_all_draws_and_a_margin(d: int) -> None:
    rng = np.random.default_rng(0)
    held = rng.normal(size=(4000, d)) @ (0.1 * rng.normal(size=(d, d))) + 0.5
    centre, spread = np.full(d, 0.2), np.full(d, 2.0)
    box = bounding_box(held, centre, spread)
    assert np.isfinite(box.log_prob(held)).all()
    whitened = box.whitened(held)
    np.testing.assert_allclose(whitened.mean(0), 0.0, atol=1e-9)
    np.testing.assert_allclose(np.cov(whitened.T), np.eye(d) if d > 1 else 1.0, atol=1e-8)
    middle = box.axes.T @ box.mode
    np.testing.assert_allclose((box.low - middle) / box.scale, whitened.min(0) - 0.5)
    np.testing.assert_allclose((box.high - middle) / box.scale, whitened.max(0) + 0.5)


def boxed(low: list[float], high: list[float], centre: np.ndarray, spread: np.ndarray) -> Box:
    """Axes as they are."""
    d = len(low)
    return Box(centre, spread, np.zeros(d), np.eye(d), np.ones(d), np.array(low), np.array(high))


def test_a_prior_with_quantiles_is_cut_exactly(prior: Callable[..., Prior]) -> None:
    made = prior(a='distribution = "Uniform"\nlow = 2\nhigh = 6', b='distribution = "Normal"\nloc = 1\nscale = 3')
    box = boxed([-1.0, 0.5], [0.3, 2.0], *made.moments_unconstrained())
    u = truncated_prior(made, box, 3000, np.random.default_rng(0))
    assert np.isfinite(box.log_prob(u)).all()
    theta = made.to_constrained(u)
    low, high = 2 + 4 * stats.norm.cdf([-1.0, 0.3])
    assert stats.kstest(theta[:, 0], stats.uniform(low, high - low).cdf).pvalue > 1e-3
    assert stats.kstest(theta[:, 1], stats.truncnorm(0.5, 2.0, 1, 3).cdf).pvalue > 1e-3


def test_a_prior_without_quantiles_is_thinned(prior: Callable[..., Prior]) -> None:
    made = prior(a='distribution = "Gamma"\nconcentration = 2.0\nrate = 3.0')
    centre, spread = made.moments_unconstrained()
    box = boxed([-1.2], [1.0], centre, spread)
    u = truncated_prior(made, box, 3000, np.random.default_rng(0))
    assert u.shape == (3000, 1)
    assert np.isfinite(box.log_prob(u)).all()
    assert len(np.unique(u)) == 3000
    theta = made.to_constrained(u)[:, 0]
    gamma = stats.gamma(2, scale=1 / 3)
    low, high = gamma.cdf(made.to_constrained(centre + spread * np.array([[-1.2], [1.0]])))[:, 0]
    assert stats.kstest((gamma.cdf(theta) - low) / (high - low), "uniform").statistic < 0.04


class Drawing:
    """An estimator that draws N(x, 1)."""

    def sample_many(self, x: np.ndarray, n: int, seed: int) -> np.ndarray:
        return x[:, None] + np.random.default_rng(seed).normal(size=(len(x), n, x.shape[1]))


def test_draws_within_the_region_come_first() -> None:
    box = boxed([-1.0, -np.inf], [np.inf, np.inf], np.zeros(2), np.ones(2))
    estimator: Any = Drawing()
    drawn, leaked = inside(estimator, box, np.zeros((1, 2)), 1000, 0)
    assert drawn.shape == (1, 1000, 2)
    assert (drawn[..., 0] >= -1).all()
    assert leaked == pytest.approx(stats.norm.cdf(-1), abs=0.02)
    assert stats.kstest(drawn[0, :, 0], stats.truncnorm(-1, np.inf).cdf).pvalue > 1e-3
    several, _ = inside(estimator, box, np.array([[0.0, 0.0], [-9.0, 0.0]]), 50, 0)
    assert (several[0, :, 0] >= -1).all()
    assert (several[1, :, 0] < -1).all()  # none fell inside; they are kept, for ranks


def test_an_answer_outside_of_the_region_is_refused() -> None:
    box = boxed([-1.0], [1.0], np.zeros(1), np.ones(1))
    estimator: Any = Drawing()
    with pytest.raises(SimulationError, match="outside of the region it learned in; give more simulations"):
        inside(estimator, box, np.full((1, 1), 8.0), 500, 0)


def simulated(n: int, failed: int = 0, seed: int = 0) -> SimulationSet:
    rng = np.random.default_rng(seed)
    status = np.zeros((n, 2), np.int8)
    status[:failed, 1] = 1
    x = rng.normal(size=(n, 3))
    x[:failed] = np.nan
    return SimulationSet(rng.normal(size=(n, 2)), np.arange(n, dtype=np.uint64), status, x=x)


def test_sets_are_joined_and_cut() -> None:
    first, second = simulated(5, seed=1), simulated(7, failed=2, seed=2)
    both = joined(first, second)
    assert both.ok.tolist() == [True] * 5 + [False] * 2 + [True] * 5
    for part, whole in ((subset(both, slice(None, 5)), first), (subset(both, slice(5, None)), second)):
        np.testing.assert_array_equal(part.theta, whole.theta)
        np.testing.assert_array_equal(part.seeds, whole.seeds)
        np.testing.assert_array_equal(features(part), features(whole))
    assert both.copies is None
    twice = [replace(s, copies=np.stack([features(s), features(s) + 1], 1)) for s in (first, second)]
    again = subset(joined(twice[0], twice[1]), slice(5, None)).copies
    assert again is not None
    np.testing.assert_array_equal(again[:, 1], features(second) + 1)
    with pytest.raises(SimulationError, match="not summarised"):
        features(SimulationSet(first.theta, first.seeds, first.status))


def test_survivors_are_not_learned_from() -> None:
    half = simulated(10, failed=5)
    assert check_failures(half) is half
    with pytest.raises(SimulationError, match="60% of the simulations failed"):
        check_failures(simulated(10, failed=6))


def test_no_ranks_have_the_right_shapes() -> None:
    none = FreshPosteriors.none(3)
    assert (none.theta_u.shape, none.draws_u.shape, none.log_q.shape) == ((0, 3), (0, 0, 3), (0,))
