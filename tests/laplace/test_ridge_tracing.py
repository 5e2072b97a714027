"""Ridges of posteriors that are known: found where they bend, left alone where they are straight."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from sbical.laplace.expansion import Expansion, Problem
from sbical.laplace.gauss_newton import NormalEquations, Target, fit
from sbical.laplace.linear_summary import linear_summary
from sbical.laplace.ridge_tracing import on_ridge, traced
from sbical.laplace.truncated_box import Box

STD, SAMPLES = 0.01, 10


def problem(bend: float) -> Problem:
    """Two parameters with a standard normal prior: u0 + bend u1^2 is measured well, u1 badly; a third moves nothing."""

    def clean(u: np.ndarray, errors: np.ndarray) -> np.ndarray:
        well, badly = u[:, 0] + bend * u[:, 1] ** 2, 0.02 * u[:, 1]
        return np.concatenate([np.repeat(well[:, None], SAMPLES, 1), np.repeat(badly[:, None], SAMPLES, 1)], 1)

    target = Target(
        np.zeros(2 * SAMPLES), np.zeros(2 * SAMPLES, int), np.zeros(2 * SAMPLES, int), np.array([STD]), np.array([STD]), np.array([0, 1]),
        np.zeros(3), np.ones(3), np.array([0]), 1,
    )  # fmt: skip
    nothing: Any = None  # the noise model has no part in following a ridge
    return Problem(nothing, target, clean, lambda u: u, lambda u: -0.5 * (u**2).sum(1))


def expansion(posed: Problem) -> Expansion:
    """At the mode, the origin."""
    target = posed.target
    (at,) = fit(posed.clean, target, np.full((1, 3), [0.1, -0.2, 0.0]))
    normal = NormalEquations.of(target, at.by_u, at.by_error, at.noise)
    covariance = np.eye(3)
    covariance[:2, :2] = np.linalg.inv(normal.schur)
    box = Box.around(at.u, covariance, target.centre, target.spread, 4.0)
    return Expansion(at, normal, box, linear_summary(target, at, target.channel, ["position"], ["a", "b"]))


def log_target(u: np.ndarray, bend: float) -> np.ndarray:
    """(n,) exact log posterior of u (n, 3), up to a constant."""
    square = (u[:, 0] + bend * u[:, 1] ** 2) ** 2 + (0.02 * u[:, 1]) ** 2
    return -0.5 * SAMPLES * square / STD**2 - 0.5 * (u**2).sum(1)


def draws(at: Expansion) -> tuple[np.ndarray, np.ndarray]:
    """What an expansion's coordinates say of the posterior: 2,000 draws and their log density."""
    mean, covariance = at.moments()
    gauss: Any = multivariate_normal(mean, covariance)  # pyright: ignore[reportArgumentType]
    y = gauss.rvs(2000, random_state=0)
    return at.box.unwhitened(y), gauss.logpdf(y) - at.box.log_scale(y)


def evidence(at: Expansion, bend: float) -> tuple[float, float]:
    """Log mean weight of its draws, and their efficiency."""
    u, log_q = draws(at)
    weight = np.exp(log_target(u, bend) - log_q)
    return float(np.log(weight.mean())), float(weight.mean() ** 2 / (weight**2).mean())


def quadrature(bend: float) -> float:
    """The exact log evidence; u2 integrates to the root of 2 pi."""
    along, across = np.linspace(-3, 3, 1201), np.linspace(-12, 12, 801) * STD / np.sqrt(SAMPLES)
    u = np.stack([across[:, None] - bend * along**2, np.broadcast_to(along, (801, 1201)), np.zeros((801, 1201))], -1).reshape(-1, 3)
    area = (along[1] - along[0]) * (across[1] - across[0])
    return float(np.log(np.exp(log_target(u, bend)).sum() * area) + 0.5 * np.log(2 * np.pi))


def test_a_bent_ridge_is_followed_to_its_ends() -> None:
    posed = problem(1.0)
    straight = expansion(posed)
    bent = traced(posed, straight)
    (ridge,) = bent.box.ridges
    middle = np.zeros((3, 3))
    middle[:, ridge.axis] = [-2.0, 0.5, 2.0]
    u = bent.box.unwhitened(middle)
    np.testing.assert_allclose(u[:, 0], -(u[:, 1] ** 2), atol=0.3 * STD)
    (found, efficiency), (missed, _) = evidence(bent, 1.0), evidence(straight, 1.0)
    assert efficiency > 0.9
    assert found == pytest.approx(quadrature(1.0), abs=0.03)
    assert missed < quadrature(1.0) - 0.3  # what made following it worth while


def test_points_of_the_ridge_are_known_as_such() -> None:
    posed = problem(1.0)
    bent = traced(posed, expansion(posed))
    assert on_ridge(bent, np.array([-0.04, 0.2, 0.0]), 3.0)
    assert not on_ridge(bent, np.array([0.04, 0.2, 0.0]), 3.0)
    assert not on_ridge(bent, np.array([-9.0, 3.0, 0.0]), 3.0)
    assert not on_ridge(expansion(posed), np.zeros(3), 3.0)


def test_a_straight_posterior_is_left_alone() -> None:
    posed = problem(0.0)
    straight = expansion(posed)
    assert traced(posed, straight) is straight


def test_a_ridge_that_cannot_be_simulated_is_not_followed() -> None:
    posed = problem(1.0)
    straight = expansion(posed)
    # the axis is tried at u1 = ±0.31, where it bends; the first points of the ridge lie at ±0.16
    hole = lambda u: (np.abs(u[:, 1:2]) > 0.1) & (np.abs(u[:, 1:2]) < 0.25)  # noqa: E731
    broken = replace(posed, clean=lambda u, errors: np.where(hole(u), np.nan, posed.clean(u, errors)))
    assert traced(broken, straight) is straight


def test_initial_errors_follow_the_ridge() -> None:
    posed = problem(1.0)
    bent = traced(posed, expansion(posed))
    u, _ = draws(bent)
    np.testing.assert_allclose(bent.follow(u), 0.0, atol=1e-9)  # none has an effect here
    away, (shares,) = bent.away(u)
    np.testing.assert_allclose(shares.sum(1), 1.0)
    assert np.abs(away[:, 0]).max() < 6 * STD  # from the ridge, not from the mode
