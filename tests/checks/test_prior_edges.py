from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from sbical.checks import prior_edges
from sbical.checks.base import Evidence


def at(evidence: Evidence, column: int, u: float, sd: float, *, low: float = 1.0) -> Evidence:
    """Posterior of one parameter at N(u, sd²); physical value low + exp(u/2)."""
    draws = evidence.posterior_u.copy()
    draws[:, column] = u + sd * np.random.default_rng(5).normal(size=len(draws))
    prior = evidence.prior.copy()
    prior[:, column] += low
    return replace(evidence, posterior_u=draws, prior=prior)


def test_posterior_inside_the_prior_passes(make_evidence: Callable[..., Evidence]) -> None:
    finding = prior_edges.check(make_evidence(0))
    assert finding.status == "pass"
    assert set(finding.values) == {f"{n}.{side}" for n in ("kp", "damping", "friction", "armature") for side in ("low", "high")}


def test_mass_at_the_high_edge_warns_and_names_it(make_evidence: Callable[..., Evidence]) -> None:
    evidence = make_evidence(0)
    finding = prior_edges.check(at(evidence, 1, 1.7, 0.5))
    assert finding.status == "warn"
    edge = np.quantile(evidence.prior_u[:, 1], 0.975)  # 1.96, as far as its draws tell
    assert finding.values["damping.high"] == pytest.approx(ndtr((1.7 - edge) / 0.5), abs=0.03)
    assert finding.figure.startswith("posterior mass at an edge of the prior: damping (high edge)")
    assert finding.remedy.startswith(f"widen the prior of 'damping' above {1.0 + np.exp(0.5 * edge):.3g}")


def test_median_beyond_an_edge_fails(make_evidence: Callable[..., Evidence]) -> None:
    assert prior_edges.check(at(make_evidence(0), 0, 2.4, 0.3)).status == "fail"
    assert prior_edges.check(at(make_evidence(0), 0, -2.4, 0.3)).status == "fail"


def test_an_effect_that_is_absent_only_warns(make_evidence: Callable[..., Evidence]) -> None:
    evidence = make_evidence(0)
    prior = evidence.prior.copy()
    prior[:, 2] = np.exp(2.0 * evidence.prior_u[:, 2])  # three decades: the low edge is as good as zero
    finding = prior_edges.check(replace(at(evidence, 2, -2.4, 0.3), prior=prior))
    assert finding.status == "warn"
    assert finding.remedy == "'friction' is close to zero: lower its prior or leave the effect out"
