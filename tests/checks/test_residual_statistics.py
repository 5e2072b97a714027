"""Known residuals have known statistics."""

from __future__ import annotations

import numpy as np
import pytest

from sbical.checks.residual_statistics import Residuals, autocorrelation, correlation_time, residuals, statistics
from sbical.simulation.replay import Replay, Reproduction, WindowReplay


def of(values: np.ndarray, *, windows: int = 1, **regressors: np.ndarray) -> Residuals:
    length = values.shape[1] // windows
    rows = tuple(slice(k * length, (k + 1) * length) for k in range(windows))
    return Residuals(values, rows, regressors, np.zeros(len(values)), 0.002)


def autoregressive(rho: float, rows: int, samples: int) -> np.ndarray:
    out = np.random.default_rng(0).normal(size=(rows, samples))
    for k in range(1, samples):
        out[:, k] = rho * out[:, k - 1] + np.sqrt(1 - rho**2) * out[:, k]
    return out


def test_white_noise_has_no_memory_and_no_peaks() -> None:
    found = statistics(of(np.random.default_rng(0).normal(size=(50, 4000))))
    assert found["size"].mean() == pytest.approx(0.0, abs=0.01)
    assert np.exp(found["peaks"]).mean() == pytest.approx(3.0, abs=0.05)  # a Gaussian's kurtosis
    assert all(abs(np.exp(v).mean() - 1) < 0.15 for k, v in found.items() if k.startswith("memory"))


def test_memory_is_the_long_run_variance() -> None:
    found = of(autoregressive(0.8, 50, 8192))
    # of an AR(1): (1 + rho) / (1 - rho)
    assert np.exp(statistics(found)["memory 256"]).mean() == pytest.approx(9.0, rel=0.1)
    assert autocorrelation(found, 3).mean() == pytest.approx(0.8**3, abs=0.02)
    assert correlation_time(found) == pytest.approx(0.01, abs=0.0021)  # 0.8^5 is the first below 1/e


def test_memory_does_not_reach_over_the_edge_of_a_window() -> None:
    values = np.tile(np.repeat([1.0, -1.0], 8), 8)[None].repeat(3, 0)
    assert autocorrelation(of(values, windows=16), 7)[0] == pytest.approx(1 / 8)
    assert "memory 16" not in statistics(of(values, windows=16))


def test_parameters_of_the_posterior_leave_nothing_behind() -> None:
    """A recording that differs from the mean replay as draws do has the residual of pure noise, and so have simulated ones."""
    rng, time = np.random.default_rng(1), np.arange(400) * 0.005
    shapes = np.stack([np.sin(5 * time), time], 1)

    def readings(theta: np.ndarray) -> np.ndarray:
        return (theta @ shapes.T)[..., None]

    theta, noise = rng.normal(size=(200, 2)), 0.01 * rng.normal(size=(201, 400, 1))
    window = WindowReplay("run", 0.0, time, readings(np.array([1.5, -2.0])) + noise[0], readings(theta) + noise[1:])
    clean = WindowReplay("run", 0.0, time, window.observed, readings(theta))
    noisy, quiet = (Replay(("position",), ("rad",), (w,)) for w in (window, clean))
    found = residuals(Reproduction(noisy, quiet, ({"goal": np.cos(3 * time)},)))["position"]
    size = np.exp(statistics(found)["size"] / 2)
    assert size[0] == pytest.approx(1.0, abs=0.08)
    assert size[1:].mean() == pytest.approx(1.0, abs=0.02)
