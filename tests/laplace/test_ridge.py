"""Ridges that are known: the map that straightens them, the prior within a bent box, and Gauss-Newton that follows one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sbical.laplace.ridge import Ridge
from sbical.laplace.truncated_box import Box

#: coordinate 0 follows coordinate 1 along a parabola, ever wider
KNOTS = np.linspace(-3.0, 3.0, 7)
BEND = 0.7


def parabola() -> Ridge:
    root = np.repeat(np.eye(2)[None], len(KNOTS), 0)
    root[:, 0, 0] = np.exp(0.2 * KNOTS)
    return Ridge(1, KNOTS, np.stack([BEND * KNOTS**2, 0 * KNOTS], 1), root)


def bent_box(scale: float) -> Box:
    """Around the prior's mean, narrow in coordinate 0 and half as wide as the prior in coordinate 1."""
    straight = Box.around(np.zeros(2), np.diag([scale**2, 0.25]), np.zeros(2), np.ones(2), 3.0)
    return replace(straight, ridges=(parabola(),))


def test_straightened_is_the_inverse_of_bent() -> None:
    y = np.random.default_rng(0).normal(scale=2.0, size=(200, 2))
    z = parabola().bent(y)
    np.testing.assert_allclose(parabola().straightened(z), y, atol=1e-12)
    inside = np.abs(y[:, 1]) < 3
    np.testing.assert_allclose((z[:, 0] - BEND * z[:, 1] ** 2)[inside], (y[:, 0] * np.exp(0.2 * y[:, 1]))[inside], rtol=0.02)


def test_scale_is_the_determinant_of_the_map() -> None:
    box, y = bent_box(0.1), np.random.default_rng(1).uniform(-2.9, 2.9, size=(50, 2))
    step = 1e-6
    columns = [(box.unwhitened(y + step * e) - box.unwhitened(y - step * e)) / (2 * step) for e in np.eye(2)]
    np.testing.assert_allclose(box.log_scale(y), np.log(np.abs(np.linalg.det(np.stack(columns, 2)))), atol=1e-6)
    np.testing.assert_allclose(box.whitened(box.unwhitened(y)), y, atol=1e-9)


def test_beyond_its_ends_a_ridge_goes_straight_on() -> None:
    offset, root = parabola().at(np.array([3.0, 4.0, 5.0]))
    np.testing.assert_allclose(np.diff(offset[:, 0]), 2 * 3 * BEND, rtol=1e-9)
    np.testing.assert_array_equal(root[1], root[0])


@pytest.mark.parametrize("scale", [0.02, 0.5])
def test_samples_are_the_prior_within_the_bent_box(scale: float) -> None:
    box = bent_box(scale)
    u = box.sample(4000, np.random.default_rng(2))
    y = box.whitened(u)
    assert (np.abs(y) < 3 + 1e-6).all()
    # the same from the prior itself, those outside thrown away: slow, but beyond doubt
    rng = np.random.default_rng(3)
    plain = rng.standard_normal((2_000_000, 2))
    plain[:, 0] *= min(1.0, 20 * scale)  # flat enough across a narrow box
    kept = plain[(np.abs(box.whitened(plain)) < 3).all(1)]
    for own, exact in zip(u.T, kept.T, strict=True):
        low, middle, high = np.quantile(exact, [0.1, 0.5, 0.9])
        np.testing.assert_allclose(np.quantile(own, [0.1, 0.5, 0.9]), [low, middle, high], atol=0.06 * (high - low))
