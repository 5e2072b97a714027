"""The sample sites of a prior's Pyro model: their supports, and the map of each to the real line.

The model runs once for all rows inside a Pyro plate, with every site's value given by a resolver: this samples,
conditions and transforms alike, and sites that depend on earlier ones see the values that those were given.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyro
import torch
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample
from torch import Tensor
from torch.distributions import biject_to

from sbical.errors import PriorError
from sbical.priors.distributions import normal_cdf

Model = Callable[[], object]
#: (site's name, its distribution over all rows, Pyro's message about it) -> the site's value in every row
Resolve = Callable[[str, Any, dict[str, Any]], Tensor]

#: Probabilities stay this far from 0 and 1; the standard normal quantile there is 6.0.
EDGE = 1e-9
_PROBED = 64


@dataclass(frozen=True)
class Site:
    """One parameter of a prior: ``low`` and ``high`` bound its support, in the unit that the prior was written in.

    ``quantiles`` tells whether its distribution has a cdf and an icdf, and so a prior that is standard normal in u.
    """

    name: str
    distribution: str
    unit: str
    source: str
    low: float
    high: float
    quantiles: bool

    def to_real(self, fn: Any, value: Tensor) -> Tensor:
        """u of values inside the support."""
        if self.quantiles:
            return torch.special.ndtri(fn.cdf(value).clamp(EDGE, 1 - EDGE))
        return biject_to(fn.support).inv(value)

    def from_real(self, fn: Any, u: Tensor) -> Tensor:
        """Values of u; inside the support whatever u is."""
        if self.quantiles:
            return fn.icdf(normal_cdf(u).clamp(EDGE, 1 - EDGE))
        return biject_to(fn.support)(u)

    def log_density_real(self, fn: Any, u: Tensor) -> Tensor:
        """Log prior density of u."""
        if self.quantiles:
            return -0.5 * u**2 - 0.5 * math.log(2 * math.pi)
        transform = biject_to(fn.support)
        value = transform(u)
        return fn.log_prob(value) + transform.log_abs_det_jacobian(u, value)


class _Resolver(Messenger):
    """Gives every sample site its value."""

    def __init__(self, resolve: Resolve) -> None:
        super().__init__()
        self._resolve = resolve

    def _pyro_sample(self, msg: Any) -> None:
        # what pyro.deterministic records and how a plate counts are no parameters
        if (msg["infer"] or {}).get("_deterministic") or site_is_subsample(msg):
            return
        msg["value"] = self._resolve(msg["name"], msg["fn"], msg)
        msg["done"] = True


def walk(model: Model, rows: int, resolve: Resolve, *, seed: int = 0) -> None:
    """Run the model once for all rows. Neither torch's random state nor its default precision is left changed."""
    with _float64(), torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        # zuko switches the checks of arguments off for the whole process once it is imported
        with pyro.validation_enabled(), _Resolver(resolve), pyro.plate("_sbical_rows", rows):
            model()


@contextmanager
def _float64() -> Iterator[None]:
    # Python numbers in a user's model become tensors of the default precision
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def inspect_sites(model: Model, where: str) -> tuple[Site, ...]:
    """All sites of a model, in the order in which it samples them.

    Raises PriorError for a model that takes arguments, cannot run for many rows at once, observes data, or has a site that
    is discrete, not a scalar, or of a support that depends on another site.
    """
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p.name for p in inspect.signature(model).parameters.values() if p.default is p.empty and p.kind not in optional]
    if needed:
        raise PriorError(f"{where} takes {', '.join(needed)}; a prior's model function takes no arguments")
    sites: dict[str, Site] = {}

    def resolve(name: str, fn: Any, message: dict[str, Any]) -> Tensor:
        if name in sites:
            raise PriorError(f"{where} samples '{name}' twice; a parameter is sampled once")
        value = fn.sample()
        sites[name] = _site(name, fn, message, value, where)
        return value

    try:
        walk(model, _PROBED, resolve)
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        fix = "use torch operations on sampled values, no if, no float()"
        raise PriorError(f"{where} cannot run for many draws at once: {reason}; {fix}") from error
    if not sites:
        raise PriorError(f"{where} samples nothing; call pyro.sample(parameter, distribution) for every parameter")
    return tuple(sites.values())


def _site(name: str, fn: Any, message: dict[str, Any], value: Tensor, where: str) -> Site:
    kind = _kind(fn)
    if message["is_observed"]:
        raise PriorError(f"{where}: site '{name}' is observed; a prior knows no data, remove obs= and pyro.factor")
    if value.shape != (_PROBED,):
        raise PriorError(f"{where}: site '{name}' ({kind}) is not a scalar; give every parameter its own pyro.sample")
    support = fn.support
    if support.is_discrete:
        raise PriorError(f"{where}: site '{name}' ({kind}) is discrete; parameters are continuous")
    bounds = [_bound(getattr(support, side, default)) for side, default in (("lower_bound", -math.inf), ("upper_bound", math.inf))]
    if None in bounds:
        raise PriorError(
            f"{where}: the support of '{name}' ({kind}) depends on another site; a region that moves has no fixed edges to train within or "
            "to report. Sample a share in (0, 1), or a ratio, as the parameter's own site, or let only loc and scale depend on other sites"
        )
    about = message["infer"] or {}
    low, high = (float(b) for b in bounds if b is not None)
    return Site(name, kind, str(about.get("unit", "")), str(about.get("source", "")), low, high, _has_quantiles(fn))


def _kind(fn: Any) -> str:
    while hasattr(fn, "base_dist") and type(fn).__name__ in ("ExpandedDistribution", "MaskedDistribution", "Independent"):
        fn = fn.base_dist
    return type(fn).__name__


def _bound(bound: Tensor | float) -> float | None:
    """A support's bound if it is the same in every row, else None."""
    values = torch.as_tensor(bound, dtype=torch.float64)
    first = float(values.flatten()[0])
    return first if bool((values == first).all()) else None


def _has_quantiles(fn: Any) -> bool:
    """Whether cdf and icdf exist and undo each other."""
    p = torch.linspace(0.01, 0.99, _PROBED, dtype=torch.float64)
    try:
        return bool(torch.allclose(fn.cdf(fn.icdf(p)), p, atol=1e-6))
    except NotImplementedError:
        return False
