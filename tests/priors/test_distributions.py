"""The distributions that a prior may name, against SciPy and against their own definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from torch.distributions import biject_to

from sbical.errors import PriorError
from sbical.priors.distributions import DISTRIBUTIONS, LogUniform, TruncatedNormal, arguments, build

#: its stubs do not know what frozen distributions are
stats: Any = scipy.stats

PLAUSIBLE = {
    "low": 0.5, "high": 2.0, "loc": 1.0, "scale": 0.7, "concentration": 3.0, "rate": 2.0, "concentration1": 2.0, "concentration0": 3.0,
    "df": 5.0, "alpha": 2.0, "asymmetry": 1.3,
}  # fmt: skip
P = torch.linspace(0.001, 0.999, 101, dtype=torch.float64)


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("name", sorted(DISTRIBUTIONS))
def test_every_distribution_is_one(name: str) -> None:
    """Draws lie in the support, the density is the draws' density, and there is a way to the real line."""
    distribution = build(name, {a: PLAUSIBLE[a] for a in arguments(name)}, where="a test")
    torch.manual_seed(0)
    drawn = distribution.expand(torch.Size([4000])).sample()
    assert drawn.dtype == torch.float64
    assert distribution.support is not None
    assert distribution.support.check(drawn).all()
    # the share of draws below their own quartiles is what the integral of the density says
    for quantile in (0.25, 0.5, 0.75):
        edge = drawn.quantile(quantile)
        low = biject_to(distribution.support)(tensor(-30.0))[0] if name != "TruncatedNormal" else tensor(0.5)[0]
        grid = torch.linspace(0, 1, 400_001, dtype=torch.float64) * (edge - low) + low
        share = torch.trapezoid(distribution.log_prob(grid[1:]).exp(), grid[1:])
        assert float(share) == pytest.approx(quantile, abs=0.03)


def test_log_uniform_is_scipys() -> None:
    ours, theirs = LogUniform(tensor(0.01)[0], tensor(3.0)[0]), stats.loguniform(0.01, 3.0)
    value = ours.icdf(P)
    np.testing.assert_allclose(value, theirs.ppf(P), rtol=1e-12)
    np.testing.assert_allclose(ours.cdf(value), P, rtol=1e-10)
    np.testing.assert_allclose(ours.log_prob(value), theirs.logpdf(value), rtol=1e-10)
    assert ours.log_prob(tensor(0.009, 3.1)).tolist() == [-np.inf, -np.inf]
    edges = ours.icdf(tensor(0.0, 1.0))
    assert edges.tolist() == pytest.approx([0.01, 3.0])
    assert ours.support.check(edges).all()


@pytest.mark.parametrize(("low", "high"), [(-1.0, 0.5), (0.0, np.inf), (-np.inf, 1.0), (3.0, np.inf), (12.0, 13.0), (-13.0, -12.0)])
def test_truncated_normal_is_scipys(low: float, high: float) -> None:
    loc, scale = 0.4, 0.9
    ours = TruncatedNormal(tensor(loc)[0], tensor(scale)[0], tensor(low)[0], tensor(high)[0])
    theirs = stats.truncnorm((low - loc) / scale, (high - loc) / scale, loc, scale)
    value = ours.icdf(P)
    np.testing.assert_allclose(value, theirs.ppf(P), rtol=1e-9)
    np.testing.assert_allclose(ours.cdf(value), P, rtol=1e-9)
    np.testing.assert_allclose(ours.log_prob(value), theirs.logpdf(value), rtol=1e-9)
    assert ours.log_prob(tensor(low - 1, high + 1)).tolist() == [-np.inf, -np.inf]


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("Loguniform", {}, "no distribution 'Loguniform' in entry 'x'; did you mean 'LogUniform'? (valid: AffineBeta, "),
        ("Uniform", {"lo": 1, "high": 2}, "no argument 'lo' in entry 'x': Uniform; did you mean 'low'? (valid: high, low)"),
        ("Uniform", {"low": 1}, "entry 'x': Uniform also needs high (it takes low, high)"),
        ("Uniform", {"low": "a", "high": 2}, "entry 'x': low of Uniform must be a number, not 'a'"),
        ("Uniform", {"low": True, "high": 2}, "entry 'x': low of Uniform must be a number, not True"),
        ("Gamma", {"concentration": float("inf"), "rate": 1}, "entry 'x': concentration of Gamma must be finite, not inf"),
        ("TruncatedNormal", {"loc": float("nan"), "scale": 1}, "entry 'x': loc of TruncatedNormal must be finite, not nan"),
        ("Normal", {"loc": 0, "scale": -1}, "entry 'x': Normal cannot have loc = 0, scale = -1: scale must be above 0"),
        ("Uniform", {"low": 2, "high": 1}, "entry 'x': Uniform cannot have low = 2, high = 1: low must be below 1"),
        ("LogUniform", {"low": 0, "high": 1}, "entry 'x': LogUniform cannot have low = 0, high = 1: low must be above 0"),
        ("LogUniform", {"low": 2, "high": 1}, "entry 'x': LogUniform cannot have low = 2, high = 1: LogUniform needs low < high"),
        ("TruncatedNormal", {"loc": 0, "scale": 1, "low": 1, "high": 1},
         "entry 'x': TruncatedNormal cannot have loc = 0, scale = 1, low = 1, high = 1: TruncatedNormal needs low < high"),
        ("TruncatedNormal", {"loc": 0, "scale": 1, "low": 50},
         "entry 'x': TruncatedNormal cannot have loc = 0, scale = 1, low = 50: TruncatedNormal has no probability between low and high"),
    ],
)  # fmt: skip
def test_mistakes_are_named(name: str, given: dict[str, object], message: str) -> None:
    with pytest.raises(PriorError) as error:
        build(name, given, where="entry 'x'")
    assert str(error.value).startswith(message)
