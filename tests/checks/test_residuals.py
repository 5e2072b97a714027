"""Residuals of a robot that the model can express are as simulated ones; of any other they are not, in the way it is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from sbical.checks import residuals
from sbical.checks.base import Evidence, Finding
from sbical.simulation.replay import Reproduction, WindowReplay

Noise = Callable[[np.random.Generator, int], np.ndarray]
Judge = Callable[..., Finding]


def correlated(rho: float, scale: float = 0.1) -> Noise:
    """First-order autoregressive noise of standard deviation ``scale``."""

    def noise(rng: np.random.Generator, samples: int) -> np.ndarray:
        out = rng.normal(size=samples)
        for k in range(1, samples):
            out[k] = rho * out[k - 1] + np.sqrt(1 - rho**2) * out[k]
        return scale * out

    return noise


@pytest.fixture
def judge(make_evidence: Callable[..., Evidence], make_reproduced: Callable[..., Reproduction]) -> Judge:
    """The finding on a robot with some noise on the calibration windows, another on the held-out ones, by seed."""
    evidence = make_evidence(0)

    def finding(seed: int, noise: Noise | None = None, unseen: Noise | None = None, **options: float) -> Finding:
        rng = np.random.default_rng(seed)
        pair = (make_reproduced(rng, noise, **options), make_reproduced(rng, unseen, **options))
        return residuals.check(replace(evidence, fitted=pair[0], unseen=pair[1]))

    return finding


@pytest.mark.parametrize("options", [{}, {"step": 0.3}, {"windows": 6, "samples": 80}], ids=["plain", "rounded", "short windows"])
def test_false_alarms_are_as_rare_as_stated(judge: Judge, options: dict[str, float]) -> None:
    findings = [judge(seed, **options) for seed in range(60)]
    assert sum(f.status != "pass" for f in findings) <= 3  # 0.6 expected at 1 %, three sigma
    assert all(f.status != "fail" for f in findings)
    # near uniform, not piled up at the middle as plain posterior predictive p-values are
    p = np.array([f.values["p"] for f in findings])
    assert 0.35 < p.mean() < 0.65
    assert p.std() > 0.22


def test_correlated_residual_warns_and_fails_where_ranges_are_wrong(judge: Judge) -> None:
    mild, strong = judge(0, correlated(0.4)), judge(0, correlated(0.95))
    assert (mild.status, strong.status) == ("warn", "fail")
    assert strong.values["calibration.position.lag1"] == pytest.approx(0.95, abs=0.04)
    assert strong.values["calibration.position.lag1_simulated"] == pytest.approx(0.0, abs=0.02)
    assert strong.values["calibration.position.narrow"] > residuals.FAIL_RATIO
    assert strong.figure.startswith("residual of position (calibration): correlated over ")
    assert "held out" not in strong.figure
    assert "backlash" in strong.remedy


def test_held_out_windows_count_too(judge: Judge) -> None:
    finding = judge(0, None, correlated(0.95))
    assert finding.status == "fail"
    assert finding.figure.startswith("residual of position (held out): correlated over ")


def test_too_large_residual_warns_and_fails_where_much_too_large(judge: Judge) -> None:
    near, far = judge(1, correlated(0.0, 0.15)), judge(1, correlated(0.0, 0.4))
    assert (near.status, far.status) == ("warn", "fail")
    assert far.values["calibration.position.size"] == pytest.approx(4.0, abs=0.3)
    assert "times as large as simulated" in far.figure


def test_residual_that_goes_with_the_command_says_so(judge: Judge) -> None:
    def told(rng: np.random.Generator, samples: int) -> np.ndarray:
        return 0.1 * rng.normal(size=samples) + 0.12 * np.sin(9 * 0.004 * np.arange(samples) + 0.5)

    finding = judge(2, told)
    assert finding.status != "pass"
    assert "goes with the command 'goal'" in finding.figure
    assert "torque or supply saturation" in finding.remedy


def test_repeated_readings_are_lost_samples(
    judge: Judge, make_evidence: Callable[..., Evidence], make_reproduced: Callable[..., Reproduction]
) -> None:
    pair = make_reproduced(np.random.default_rng(3))
    window = pair.noisy.windows[0]
    lost = window.observed.copy()
    lost[10::20] = lost[9::20]
    noisy = replace(pair.noisy, windows=(replace(window, observed=lost), *pair.noisy.windows[1:]))
    finding = residuals.check(
        replace(make_evidence(0), fitted=replace(pair, noisy=noisy), unseen=make_reproduced(np.random.default_rng(4)))
    )
    assert finding.status == "warn"
    assert "2.5 % of readings repeat the one before where 0.0 % should" in finding.figure
    assert "lost samples" in finding.remedy
    # a rounded reading at rest repeats, and is simulated to
    assert judge(3, step=0.3).status == "pass"


def constant(pair: Reproduction, value: float) -> Reproduction:
    """The same with a second channel that simulations hold at one, and the robot at a value."""

    def wider(windows: tuple[WindowReplay, ...], observed: float) -> tuple[WindowReplay, ...]:
        return tuple(
            replace(
                w,
                observed=np.concatenate([w.observed, np.full_like(w.observed, observed)], 1),
                draws=np.concatenate([w.draws, np.ones_like(w.draws)], 2),
            )
            for w in windows
        )

    names = {"channels": ("position", "stuck"), "units": ("rad", "rad")}
    noisy, clean = (replace(r, windows=wider(r.windows, value), **names) for r in (pair.noisy, pair.clean))
    return replace(pair, noisy=noisy, clean=clean)


def test_constant_channel_passes_and_fails_when_it_differs(
    make_evidence: Callable[..., Evidence], make_reproduced: Callable[..., Reproduction]
) -> None:
    pair = make_reproduced(np.random.default_rng(0))
    same, other = (residuals.check(replace(make_evidence(0), fitted=constant(pair, v), unseen=None)) for v in (1.0, 1.1))
    assert (same.status, other.status) == ("pass", "fail")
    assert other.figure.startswith("residual of stuck (calibration)")


def test_samples_that_were_not_observed_do_not_count(
    make_evidence: Callable[..., Evidence], make_reproduced: Callable[..., Reproduction]
) -> None:
    pair = make_reproduced(np.random.default_rng(0))
    holes = tuple(replace(w, observed=np.where(np.arange(len(w.time))[:, None] % 7 == 0, np.nan, w.observed)) for w in pair.noisy.windows)
    finding = residuals.check(replace(make_evidence(0), fitted=replace(pair, noisy=replace(pair.noisy, windows=holes)), unseen=None))
    assert finding.status == "pass"
    assert np.isfinite(list(finding.values.values())).all()


def test_draws_that_failed_are_left_out_and_too_few_warn(
    make_evidence: Callable[..., Evidence], make_reproduced: Callable[..., Reproduction]
) -> None:
    def failed(pair: Reproduction, count: int) -> Reproduction:
        first = pair.noisy.windows[0]
        draws = np.where(np.arange(len(first.draws))[:, None, None] < count, np.nan, first.draws)
        return replace(pair, noisy=replace(pair.noisy, windows=(replace(first, draws=draws), *pair.noisy.windows[1:])))

    pair = make_reproduced(np.random.default_rng(0))
    some, most, all_ = (residuals.check(replace(make_evidence(0), fitted=failed(pair, n), unseen=pair)) for n in (50, 150, 200))
    assert some.status == "pass"
    assert "on 150 draws" in some.figure
    assert (most.status, most.values["draws"]) == ("warn", 50)
    assert (all_.status, all_.values["draws"]) == ("warn", 0)
    assert "simulation_failures" in all_.remedy
