"""Log-uniform and uniform parameters of which the posterior knows one combination."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from sbical.checks import identified
from sbical.checks.base import Evidence, Finding

NAMES, UNITS = ("mass", "arm", "bias", "offset", "radius"), ("kg", "m", "rad", "rad", "m")


def prior(n: int, seed: int) -> np.ndarray:
    """mass, arm: log-uniform over a decade, radius over half of one; bias, offset: uniform in (-1, 1)."""
    rng = np.random.default_rng(seed)
    unit = rng.uniform(-1, 1, (n, 5))
    half = 0.5 * np.log(10)
    return np.column_stack([np.exp(half * unit[:, :2]), unit[:, 2:4], np.exp(0.5 * half * unit[:, 4])])


def judged(make_evidence: Callable[..., Evidence], known: Callable[[np.ndarray], np.ndarray], sd: float = 0.05) -> Finding:
    """Rejection sampling: recordings that measured ``known(theta)`` as 0, with an error of sd."""
    draws = prior(400_000, 1)
    accept = np.exp(-0.5 * (known(draws) / sd) ** 2).reshape(len(draws), -1).prod(axis=1)
    kept = draws[np.random.default_rng(2).uniform(size=len(draws)) < accept][:2000]
    evidence = replace(make_evidence(0), names=NAMES, units=UNITS, prior=prior(4000, 3), posterior=kept)
    return identified.check(evidence)


@pytest.mark.parametrize(
    ("known", "name"),
    [
        (lambda t: np.log(t[:, 0] * t[:, 1]), "the product mass × arm"),
        (lambda t: np.log(t[:, 0] / t[:, 1]), "the ratio mass / arm"),
        (lambda t: np.log(t[:, 0] * t[:, 4] ** 2), "the product mass × radius^2"),
        (lambda t: t[:, 2] + t[:, 3], "bias + offset"),
        (lambda t: t[:, 2] - t[:, 3], "bias − offset"),
        (lambda t: np.log(t[:, 0]) + 1.15 * t[:, 2], "the combination 0.7 log mass + 0.7 bias (each in standard deviations of its prior)"),
    ],
)
def test_what_alone_is_determined_is_named(
    make_evidence: Callable[..., Evidence], known: Callable[[np.ndarray], np.ndarray], name: str
) -> None:
    finding = judged(make_evidence, known)
    assert finding.status == "warn"
    assert finding.figure.startswith(f"only {name} is determined (sd ")
    assert finding.figure.count("determined") == 1
    assert finding.remedy.startswith("use the joint draws")


def test_two_combinations_are_told_apart(make_evidence: Callable[..., Evidence]) -> None:
    finding = judged(make_evidence, lambda t: np.column_stack([np.log(t[:, 0] * t[:, 1]), t[:, 2] - t[:, 3]]))
    assert "only the product mass × arm is determined" in finding.figure
    assert "only bias − offset is determined" in finding.figure
    assert finding.figure.count("determined") == 2


@pytest.mark.parametrize(
    "known",
    [
        lambda t: np.zeros(len(t)),
        lambda t: np.log(t[:, :2]),
        lambda t: np.log(t[:, 0]),
        lambda t: 0.1 * np.log(t[:, 0] * t[:, 1]),
    ],
    ids=["nothing", "both members", "one", "the product, loosely"],
)
def test_nothing_is_named_where_members_are_known_or_nothing_is(
    make_evidence: Callable[..., Evidence], known: Callable[[np.ndarray], np.ndarray]
) -> None:
    finding = judged(make_evidence, known)
    assert finding.status == "pass"
    assert finding.figure.startswith("no combination is determined")


def test_gaussian_toy_knows_every_parameter(make_evidence: Callable[..., Evidence]) -> None:
    assert identified.check(make_evidence(0)).figure == "at most one parameter is not determined by itself"
