"""Figures of a replay: error, coverage, interval score; and that failed draws never improve them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from sbical.simulation.replay import Replay, WindowReplay


@pytest.fixture
def exact() -> Replay:
    """Two windows of channels with sd 1 and 2, replayed by the exact predictive distribution."""
    rng = np.random.default_rng(0)
    scale = np.array([1.0, 2.0])

    def window(name: str) -> WindowReplay:
        return WindowReplay(name, 0.0, np.arange(2000) * 0.01, scale * rng.normal(size=(2000, 2)), scale * rng.normal(size=(500, 2000, 2)))

    return Replay(("a", "b"), ("rad", "N m"), (window("run1"), window("run2")))


def test_figures_of_the_exact_model(exact: Replay) -> None:
    z = norm.ppf(0.95)
    expected = 2 * z + 2 / 0.1 * 2 * (norm.pdf(z) - z * norm.sf(z))  # E[interval score] of N(0, 1)
    assert exact.rmse() == pytest.approx([1.0, 2.0], rel=0.03)
    assert exact.coverage() == pytest.approx([0.9, 0.9], abs=0.02)
    assert exact.coverage(0.5) == pytest.approx([0.5, 0.5], abs=0.03)
    assert exact.interval_score() == pytest.approx([expected, 2 * expected], rel=0.03)


def test_interval_score_is_worse_for_too_narrow_and_too_wide(exact: Replay) -> None:
    def scaled(factor: float) -> Replay:
        return replace(exact, windows=tuple(replace(w, draws=factor * w.draws) for w in exact.windows))

    assert (scaled(0.5).interval_score() > exact.interval_score()).all()
    assert (scaled(2.0).interval_score() > exact.interval_score()).all()


def test_failed_draws_are_left_out_and_failed_windows_count_against(exact: Replay) -> None:
    first, second = exact.windows
    draws = first.draws.copy()
    draws[:10, 50:, 0] = np.nan
    some = replace(exact, windows=(replace(first, draws=draws), second))
    assert some.rmse() == pytest.approx(exact.rmse(), rel=0.01)
    every = replace(exact, windows=(replace(first, draws=np.full_like(draws, np.nan)), second))
    assert np.isinf(every.rmse()).all()
    assert np.isinf(every.interval_score()).all()
    assert every.coverage() == pytest.approx([0.45, 0.45], abs=0.02)


def test_samples_that_were_not_observed_do_not_count(exact: Replay) -> None:
    first = exact.windows[0]
    observed = first.observed.copy()
    observed[:500, 1] = np.nan
    figures = replace(exact, windows=(replace(first, observed=observed),)).rmse()
    assert figures == pytest.approx([1.0, 2.0], rel=0.05)
