"""Figures of draws against their known values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from sbical.common.statistics import central_interval, contraction, principal_directions, prior_scores


def test_central_interval_of_normal_draws() -> None:
    low, high = central_interval(np.random.default_rng(0).normal(size=(20_000, 2, 3)), 0.9)
    assert low.shape == high.shape == (2, 3)
    np.testing.assert_allclose([low, high], norm.ppf([0.05, 0.95])[:, None, None] * np.ones((2, 2, 3)), atol=0.06)


def test_prior_scores_are_normal_whatever_the_prior() -> None:
    prior = 10 ** np.random.default_rng(1).uniform(-3, 1, (4000, 1))
    scores = prior_scores(prior, np.array([[10**-3.0], [10**-2.0], [10**-1.0], [10.0**1]]))[:, 0]
    assert scores[1] == pytest.approx(-0.674, abs=0.05)
    assert scores[2] == pytest.approx(0.0, abs=0.05)
    assert scores[0] < -3
    assert scores[3] > 3


def test_contraction_of_known_posteriors() -> None:
    rng = np.random.default_rng(2)
    prior = np.exp(rng.normal(size=(5000, 3)))
    draws = np.exp(np.array([0.1, 0.5, 1.0]) * rng.normal(size=(5000, 3)))
    assert contraction(prior, draws) == pytest.approx([0.99, 0.75, 0.0], abs=0.05)


def test_principal_directions_are_those_of_the_covariance() -> None:
    rng = np.random.default_rng(3)
    axes = np.linalg.qr(rng.normal(size=(500, 3)))[0].T
    rows = rng.normal(size=(40, 3)) * [5.0, 2.0, 1e-3] @ axes
    values, directions = principal_directions(rows, 10, 1.0)
    assert directions.shape == (2, 500)
    np.testing.assert_allclose(directions @ directions.T, np.eye(2), atol=1e-9)
    np.testing.assert_allclose(((rows @ directions.T) ** 2).sum(0), values)
    np.testing.assert_allclose((directions @ axes[:2].T) @ (directions @ axes[:2].T).T, np.eye(2), atol=1e-5)
    assert (directions.max(1) > -directions.min(1)).all()
    assert len(principal_directions(rows, 1, 1.0)[0]) == 1
    np.testing.assert_array_equal(principal_directions(-rows, 10, 1.0)[1], directions)
