"""Distributions that a prior may name: the univariate continuous ones of Pyro, and two that Pyro lacks.

Arguments carry the names that Pyro gives them. All arithmetic is in float64: the default single precision of torch
cannot tell the outermost millionth of a prior from its edge.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping
from typing import Any

import pyro.distributions as dist
import torch
from torch.distributions import constraints
from torch.distributions.utils import broadcast_all

from sbical.errors import PriorError, unknown


def normal_cdf(z: torch.Tensor) -> torch.Tensor:
    """Standard normal probability below z, to full relative precision; ``torch.special.ndtr`` is 0 below z = -9."""
    return 0.5 * torch.special.erfc(-z * math.sqrt(0.5))


class LogUniform(dist.TorchDistribution):
    """Uniform in the logarithm on [low, high], 0 < low < high: every decade is as likely as the next."""

    # torch declares these as properties and reads them as attributes
    arg_constraints: Any = {"low": constraints.positive, "high": constraints.positive}  # noqa: RUF012
    has_rsample = True

    def __init__(self, low: torch.Tensor | float, high: torch.Tensor | float, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)
        if self._validate_args and not torch.lt(self.low, self.high).all():
            raise ValueError("LogUniform needs low < high")

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The closed interval from low to high."""
        return constraints.interval(self.low, self.high)

    @property
    def _width(self) -> torch.Tensor:
        return torch.log(self.high / self.low)

    def expand(self, batch_shape: torch.Size, _instance: LogUniform | None = None) -> LogUniform:
        """The same distribution for a batch of rows."""
        return LogUniform(self.low.expand(batch_shape), self.high.expand(batch_shape), validate_args=False)

    def rsample(self, sample_shape: Any = ()) -> torch.Tensor:
        """Draws, differentiable in the arguments."""
        shape = self._extended_shape(torch.Size(sample_shape))
        return self.icdf(torch.rand(shape, dtype=self.low.dtype, device=self.low.device))

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Log density, -inf outside [low, high]."""
        inside = (value >= self.low) & (value <= self.high)
        density = -torch.log(torch.where(inside, value, self.low)) - torch.log(self._width)
        return torch.where(inside, density, -math.inf)

    def cdf(self, value: torch.Tensor) -> torch.Tensor:
        """Share of the probability below ``value``."""
        return torch.log(torch.minimum(torch.maximum(value, self.low), self.high) / self.low) / self._width

    def icdf(self, value: torch.Tensor) -> torch.Tensor:
        """The quantile at probability ``value``; rounding never leaves [low, high]."""
        return torch.minimum(torch.maximum(self.low * torch.exp(value * self._width), self.low), self.high)


class TruncatedNormal(dist.TorchDistribution):
    """Normal(loc, scale) conditioned on low <= value <= high; either bound may be infinite.

    A window that lies wholly above ``loc`` is mirrored before differences of normal probabilities are taken: in the
    lower tail they keep their relative precision (down to 37 scales away, where the normal density underflows).
    """

    arg_constraints: Any = {  # noqa: RUF012
        "loc": constraints.real,
        "scale": constraints.positive,
        "low": constraints.dependent,
        "high": constraints.dependent,
    }
    has_rsample = True

    def __init__(
        self,
        loc: torch.Tensor | float,
        scale: torch.Tensor | float,
        low: torch.Tensor | float = -math.inf,
        high: torch.Tensor | float = math.inf,
        validate_args: bool | None = None,
    ) -> None:
        self.loc, self.scale, self.low, self.high = broadcast_all(loc, scale, low, high)
        super().__init__(self.loc.shape, validate_args=validate_args)
        if self._validate_args and not torch.lt(self.low, self.high).all():
            raise ValueError("TruncatedNormal needs low < high")
        if self._validate_args and not (self._mass > 0).all():
            raise ValueError("TruncatedNormal has no probability between low and high: too many scales away from loc")

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The closed interval from low to high."""
        return constraints.interval(self.low, self.high)

    def _mirrored(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(sign, a, b): standardised bounds, mirrored where the window lies above loc, so that a is never positive."""
        low, high = (self.low - self.loc) / self.scale, (self.high - self.loc) / self.scale
        above = low > 0
        sign = torch.where(above, -1.0, 1.0).to(low.dtype)
        return sign, torch.where(above, -high, low), torch.where(above, -low, high)

    @property
    def _mass(self) -> torch.Tensor:
        _, a, b = self._mirrored()
        return normal_cdf(b) - normal_cdf(a)

    def expand(self, batch_shape: torch.Size, _instance: TruncatedNormal | None = None) -> TruncatedNormal:
        """The same distribution for a batch of rows."""
        arguments = (a.expand(batch_shape) for a in (self.loc, self.scale, self.low, self.high))
        return TruncatedNormal(*arguments, validate_args=False)

    def rsample(self, sample_shape: Any = ()) -> torch.Tensor:
        """Draws, differentiable in the arguments."""
        shape = self._extended_shape(torch.Size(sample_shape))
        return self.icdf(torch.rand(shape, dtype=self.loc.dtype, device=self.loc.device))

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Log density, -inf outside [low, high]."""
        z = (value - self.loc) / self.scale
        density = -0.5 * z**2 - 0.5 * math.log(2 * math.pi) - torch.log(self.scale) - torch.log(self._mass)
        return torch.where((value >= self.low) & (value <= self.high), density, -math.inf)

    def cdf(self, value: torch.Tensor) -> torch.Tensor:
        """Share of the probability below ``value``."""
        sign, a, b = self._mirrored()
        z = sign * (torch.minimum(torch.maximum(value, self.low), self.high) - self.loc) / self.scale
        below = (normal_cdf(z) - normal_cdf(a)) / self._mass
        above = (normal_cdf(b) - normal_cdf(z)) / self._mass
        return torch.where(sign > 0, below, above).clamp(0, 1)

    def icdf(self, value: torch.Tensor) -> torch.Tensor:
        """The quantile at probability ``value``; rounding never leaves [low, high]."""
        sign, a, b = self._mirrored()
        below = normal_cdf(a) + value * self._mass
        above = normal_cdf(b) - value * self._mass
        z = torch.special.ndtri(torch.where(sign > 0, below, above).clamp(0, 1))
        return torch.minimum(torch.maximum(self.loc + self.scale * sign * z, self.low), self.high)


_FROM_PYRO = (
    "AffineBeta", "AsymmetricLaplace", "Beta", "Cauchy", "Chi2", "Exponential", "Gamma", "Gumbel", "HalfCauchy", "HalfNormal",
    "InverseGamma", "Kumaraswamy", "Laplace", "LogNormal", "Logistic", "Normal", "Pareto", "SkewLogistic",
    "SoftLaplace", "StudentT", "Uniform", "Weibull",
)  # fmt: skip

#: Every distribution that a prior's TOML may name.
DISTRIBUTIONS: Mapping[str, type[dist.TorchDistribution]] = {
    "LogUniform": LogUniform,
    "TruncatedNormal": TruncatedNormal,
    **{name: getattr(dist, name) for name in _FROM_PYRO},
}


def arguments(name: str) -> dict[str, bool]:
    """Arguments of a distribution, and whether each must be given."""
    signature = inspect.signature(DISTRIBUTIONS[name].__init__)
    return {p.name: p.default is p.empty for p in signature.parameters.values() if p.name not in ("self", "validate_args")}


def build(name: str, given: Mapping[str, object], *, where: str) -> dist.TorchDistribution:
    """A distribution from its name and arguments; ``where`` names the entry in messages.

    Raises PriorError for an unknown distribution, a missing or unknown argument, or values that define no distribution.
    """
    if name not in DISTRIBUTIONS:
        raise PriorError(unknown("distribution", name, DISTRIBUTIONS, where=where))
    known = arguments(name)
    for argument in given:
        if argument not in known:
            raise PriorError(unknown("argument", argument, known, where=f"{where}: {name}"))
    missing = [a for a, required in known.items() if required and a not in given]
    if missing:
        raise PriorError(f"{where}: {name} also needs {', '.join(missing)} (it takes {', '.join(known)})")
    values = {a: _number(a, value, name, where) for a, value in given.items()}
    try:
        made: Any = DISTRIBUTIONS[name]
        return made(**{a: torch.tensor(v, dtype=torch.float64) for a, v in values.items()}, validate_args=True)
    except ValueError as error:
        written = ", ".join(f"{a} = {v:g}" for a, v in values.items())
        raise PriorError(f"{where}: {name} cannot have {written}: {_reason(error)}") from error


def _number(argument: str, value: object, name: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PriorError(f"{where}: {argument} of {name} must be a number, not {value!r}")
    unbounded = name == "TruncatedNormal" and argument in ("low", "high")
    if math.isnan(value) or (math.isinf(value) and not unbounded):
        raise PriorError(f"{where}: {argument} of {name} must be finite, not {value}")
    return float(value)


_LIMITS = {
    "GreaterThan": "must be above",
    "GreaterThanEq": "must be at least",
    "LessThan": "must be below",
    "LessThanEq": "must be at most",
}


def _reason(error: ValueError) -> str:
    """torch's reason, without the tensors and classes it prints."""
    text = str(error)
    found = re.search(r"parameter (\w+) .* constraint (\w+)\(\w+=([^)]*)\)", text, re.DOTALL)
    if found and found[2] in _LIMITS:
        return f"{found[1]} {_LIMITS[found[2]]} {float(found[3]):g}"
    return text.splitlines()[0]
