"""The emulated log posterior against a bent density that is known, and walkers on it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from sbical.inference.emulator import DEEPEST, LEAST, Emulator, emulate
from sbical.inference.proposal_adaptation import explore

D = 3
#: Arbitrary: log densities are known up to a constant.
OFFSET = 4321.0


def bent(u: np.ndarray) -> np.ndarray:
    """A banana in the first two coordinates, a skewed third."""
    return OFFSET + norm.logpdf(u[:, 0]) + norm.logpdf(u[:, 1] - u[:, 0] ** 2, 0, 0.5) + 3 * u[:, 2] - np.exp(2 * u[:, 2])


def exact(n: int, seed: int) -> np.ndarray:
    """Draws of ``bent``: exp(2 u) of the third is Gamma(3/2)."""
    rng = np.random.default_rng(seed)
    first = rng.normal(size=n)
    return np.stack([first, first**2 + 0.5 * rng.normal(size=n), np.log(rng.gamma(1.5, size=n)) / 2], 1)


@pytest.fixture(scope="module")
def learned() -> Emulator:
    """From draws twice as wide as the posterior."""
    posterior = exact(4000, 0)
    mean, covariance = posterior.mean(0), np.cov(posterior.T)
    seen = np.random.default_rng(1).multivariate_normal(mean, 4 * covariance, 1500)
    found = emulate(seen, bent(seen), mean, covariance)
    if found is None:
        raise AssertionError("1,500 draws were too few")
    return found


def test_most_of_the_posterior_is_told_to_a_fifth_of_a_nat(learned: Emulator) -> None:
    u = exact(2000, 2)
    error = learned(u) - bent(u)
    error -= np.median(error)
    assert np.quantile(np.abs(error), 0.9) < 0.2


def test_nothing_runs_away_where_no_draw_was(learned: Emulator) -> None:
    far = np.random.default_rng(3).normal(size=(5000, D)) * 12
    top = learned(exact(500, 4)).max()
    assert learned(far[np.abs(far).max(1) > 12]).max() < top


def test_too_few_draws_that_matter_teach_nothing() -> None:
    seen = exact(1000, 5)
    values = bent(seen)
    values[LEAST - 1 :] = -np.inf
    assert emulate(seen, values, np.zeros(D), np.eye(D)) is None
    values[LEAST - 1 :] = values[: LEAST - 1].max() - DEEPEST - 1
    assert emulate(seen, values, np.zeros(D), np.eye(D)) is None


def test_same_draws_same_emulator() -> None:
    seen = exact(400, 6)
    a, b = (emulate(seen, bent(seen), np.zeros(D), np.eye(D)) for _ in range(2))
    assert a is not None
    assert b is not None
    np.testing.assert_array_equal(a(seen), b(seen))


def test_walkers_spread_over_the_posterior_from_one_arm_of_it(learned: Emulator) -> None:
    start = exact(4000, 7)
    start = start[start[:, 0] > 0.3][:600]
    walked, wanted = explore(learned, start, np.random.default_rng(0)), exact(50_000, 8)
    assert 0.15 < (walked[:, 0] < 0).mean() < 0.5
    np.testing.assert_allclose(walked[:, 2].mean(), wanted[:, 2].mean(), atol=0.1)
    np.testing.assert_allclose(walked[:, 1:].std(0), wanted[:, 1:].std(0), rtol=0.2)
