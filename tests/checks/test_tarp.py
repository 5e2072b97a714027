from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from sbical.checks import tarp
from sbical.checks.base import Evidence


@pytest.mark.parametrize(
    ("wrong", "word"), [({"factor": 1 / 1.5}, "over-confident"), ({"shift": 0.5}, "biased"), ({"factor": 1.5}, "under-confident")]
)
def test_says_in_words_what_is_wrong(make_evidence: Callable[..., Evidence], wrong: dict[str, float], word: str) -> None:
    finding = tarp.check(make_evidence(0, **wrong))
    assert finding.figure.startswith(f"{word}: p = ")
    assert finding.remedy == tarp.REMEDIES[word]


def test_sees_a_bias_in_one_direction_that_no_parameter_shows(make_evidence: Callable[..., Evidence]) -> None:
    """Correlated parameters: moved across the ridge, each marginal stays where it was."""
    evidence = make_evidence(0)
    rng = np.random.default_rng(1)
    root = np.linalg.cholesky(np.full((4, 4), 0.98) + 0.02 * np.eye(4))
    truth, draws = rng.normal(size=(300, 4)) @ root.T, rng.normal(size=(300, 200, 4)) @ root.T
    across = 0.15 * np.array([1.0, -1.0, 1.0, -1.0])  # 0.15 sd of each parameter, about two sd across the ridge
    finding = tarp.check(replace(evidence, theta_u_fresh=truth, fresh_draws_u=draws + across))
    assert finding.status == "fail"
    assert "biased" in finding.figure


def test_units_and_correlations_do_not_matter(make_evidence: Callable[..., Evidence]) -> None:
    evidence = make_evidence(0, factor=1.2)
    scale = np.array([1e-6, 1.0, 1e3, 10.0])
    other = replace(evidence, theta_u_fresh=evidence.theta_u_fresh * scale, fresh_draws_u=evidence.fresh_draws_u * scale)
    assert tarp.check(other).values == pytest.approx(tarp.check(evidence).values)


def test_a_parameter_without_spread_is_no_error(make_evidence: Callable[..., Evidence]) -> None:
    evidence = make_evidence(0)
    truth, draws = evidence.theta_u_fresh.copy(), evidence.fresh_draws_u.copy()
    truth[:, 2] = draws[:, :, 2] = 0.5
    assert tarp.check(replace(evidence, theta_u_fresh=truth, fresh_draws_u=draws)).status == "pass"
