from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from sbical.checks import lc2st
from sbical.checks.base import Evidence


def test_size_of_the_error_is_recovered(make_evidence: Callable[..., Evidence]) -> None:
    biased = lc2st.check(make_evidence(0, shift=0.5, fresh=1500)).values
    wide = lc2st.check(make_evidence(0, factor=1.5, fresh=1500)).values
    assert wide["spread"] == pytest.approx(1 / 1.5, abs=0.06)
    assert biased["spread"] == pytest.approx(1.0, abs=0.1)


def test_remedy_says_which_way(make_evidence: Callable[..., Evidence]) -> None:
    assert lc2st.check(make_evidence(0, factor=1 / 1.5)).remedy == lc2st.NARROW
    assert lc2st.check(make_evidence(0, factor=1.5)).remedy == lc2st.WIDE
    assert lc2st.check(make_evidence(0, shift=0.5)).remedy.startswith("the posterior of this observation lies to one side (kp -0.")


def test_an_error_elsewhere_is_not_held_against_this_observation(make_evidence: Callable[..., Evidence]) -> None:
    """The bias grows along one summary: it is +0.8 sd on one side, -0.8 sd on the other and none in the middle."""
    evidence = make_evidence(0, fresh=600)
    x = evidence.x_fresh - evidence.x_fresh.mean(axis=0)
    _, vectors = np.linalg.eigh(np.cov(x.T))
    along = x @ vectors[:, -1]
    step = 0.8 * np.clip(along / along.std(), -2, 2)[:, None, None] * evidence.fresh_draws_u.std(axis=1, keepdims=True)
    local = replace(evidence, fresh_draws_u=evidence.fresh_draws_u + step)
    middle, side = evidence.x_fresh.mean(axis=0), evidence.x_fresh.mean(axis=0) + 1.5 * along.std() * vectors[:, -1]
    assert lc2st.check(replace(local, x_o=side)).status == "fail"
    assert lc2st.check(replace(local, x_o=middle)).status != "fail"
    assert abs(lc2st.check(replace(local, x_o=middle)).values["kp.shift"]) < 0.2


def test_an_estimator_that_returns_the_prior_is_found(make_evidence: Callable[..., Evidence]) -> None:
    """The prior passes every test that does not look at the observation."""
    evidence = make_evidence(0)
    draws = np.random.default_rng(3).normal(size=evidence.fresh_draws_u.shape)
    finding = lc2st.check(replace(evidence, fresh_draws_u=draws, posterior_u=evidence.prior_u, x_o=evidence.x_fresh[0]))
    assert finding.values["p"] < 0.001


def test_p_is_uniform_wherever_the_robot_is(make_evidence: Callable[..., Evidence]) -> None:
    evidence = [make_evidence(seed, fresh=200) for seed in range(25)]
    p = [lc2st.check(replace(e, x_o=e.x_fresh[0])).values["p"] for e in evidence]
    assert 0.35 < np.mean(p) < 0.65


def test_takes_seconds_with_many_parameters(make_evidence: Callable[..., Evidence]) -> None:
    rng = np.random.default_rng(4)
    many = replace(
        make_evidence(0), names=tuple(f"p{i}" for i in range(13)), theta_u_fresh=rng.normal(size=(300, 13)),
        fresh_draws_u=rng.normal(size=(300, 200, 13)), posterior_u=rng.normal(size=(2000, 13)),
    )  # fmt: skip
    began = time.perf_counter()
    assert lc2st.check(many).values["p"] > 0.001
    assert time.perf_counter() - began < 9  # 1 s on one core; a wide margin for a busy machine
