"""What tests of routes share: a pendulum whose likelihood is explicit, and priors for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

NOISY = """
[effects.grain]
family = "sensor_noise"
target = "position"
std = "grain"
[effects.hum]
family = "sensor_noise"
target = "velocity"
std = "hum"
"""
UNITS = {"viscous": "N m s/rad", "grain": "rad", "hum": "rad/s", "limit": "N m"}


@pytest.fixture(scope="session")
def noisy_toml() -> str:
    """Effects that give both sensors of the pendulum white noise of unknown size."""
    return NOISY


@pytest.fixture(scope="session")
def log_normal() -> Callable[[Mapping[str, tuple[float, float]]], str]:
    """A ``prior.toml`` of log-normal distributions by (median, spread in logarithms)."""

    def make(parameters: Mapping[str, tuple[float, float]]) -> str:
        return "\n".join(
            f'[{name}]\ndistribution = "LogNormal"\nloc = {np.log(median)}\nscale = {spread}\nunit = "{UNITS[name]}"\nsource = "made up"'
            for name, (median, spread) in parameters.items()
        )

    return make
