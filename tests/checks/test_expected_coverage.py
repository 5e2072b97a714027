from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2

from sbical.checks import expected_coverage
from sbical.checks.base import Evidence


@pytest.mark.parametrize("factor", [1 / 1.5, 1.0, 1.5])
def test_coverage_is_that_of_the_known_posterior(make_evidence: Callable[..., Evidence], factor: float) -> None:
    values = expected_coverage.check(make_evidence(0, factor=factor, fresh=3000)).values
    for level in (0.5, 0.8, 0.9, 0.95):
        # the region of squared radius r under the estimator has radius factor² r under the truth
        assert values[f"coverage{100 * level:.0f}"] == pytest.approx(chi2.cdf(factor**2 * chi2.ppf(level, 4), 4), abs=0.03)


def test_the_limit_of_a_failure_is_one_error_whatever_the_number_of_parameters() -> None:
    assert expected_coverage.limit(1) == pytest.approx(0.8)
    assert round(expected_coverage.RATIO, 2) == 0.78
    radius = np.linalg.norm(np.random.default_rng(0).normal(size=(20_000, 9)), axis=1)
    too_small = expected_coverage.RATIO * np.quantile(radius, 0.9)
    assert expected_coverage.limit(9) == pytest.approx(np.mean(radius < too_small), abs=0.01)


def test_bands_are_simultaneous(make_evidence: Callable[..., Evidence]) -> None:
    finding = expected_coverage.check(make_evidence(0))
    # one level alone at 99 %: 0.5 +- 2.58 sqrt(0.25 / 300) = 43 to 57 %
    assert "50 % region holds" in finding.figure
    assert "(42 % to 59 %)" in finding.figure or "(41 % to 58 %)" in finding.figure


def test_two_modes_are_one_region(make_evidence: Callable[..., Evidence]) -> None:
    """Draws at ±3: central ranges would call 0 certain, the densest region leaves it out."""
    rng = np.random.default_rng(0)

    def two(*shape: int) -> np.ndarray:
        return rng.choice([-3.0, 3.0], (*shape, 1)) + 0.5 * rng.normal(size=(*shape, 1))

    def log_q(u: np.ndarray) -> np.ndarray:
        return np.logaddexp(-2 * (u[..., 0] - 3) ** 2, -2 * (u[..., 0] + 3) ** 2)

    truth, draws = two(300), two(300, 200)
    evidence = replace(make_evidence(0), fresh_log_q=log_q(truth), fresh_draws_log_q=log_q(draws))
    assert expected_coverage.check(evidence).status == "pass"
    middle = replace(evidence, fresh_log_q=log_q(np.zeros((300, 1))))
    assert expected_coverage.check(middle).values["coverage95"] == 0.0
