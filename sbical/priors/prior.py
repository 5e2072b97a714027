"""What is believed about the parameters before any recording: a Pyro model with one site per parameter.

Estimators are trained in *unconstrained* coordinates u, so that no draw can leave the prior's support. Wherever the
site's distribution has a cdf F and an icdf, u = Phi^-1(F(theta)): the prior is then exactly standard normal in u, also
for a site that depends on earlier ones (F conditional on them; Rosenblatt 1952, doi:10.1214/aoms/1177729394). The other
distributions (Beta, Gamma, StudentT, ...) use torch's bijection between the real line and their support.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sbical.common import catalog
from sbical.common.units import conversion
from sbical.errors import PriorError, SbicalWarning
from sbical.priors import prior_toml
from sbical.priors.sites import Model, Site, inspect_sites, walk
from sbical.simulation.parameters import BOUNDS, Parameter, ParameterSpace

#: Draws behind ``Prior.interval``; a 5 % quantile of 20,000 draws is at 5 +- 0.15 %.
_INTERVAL_DRAWS = 20_000


class Prior:
    """Joint prior of all parameters; ``theta`` (n, d) is in ``units``, ``u`` (n, d) unconstrained; columns follow ``names``.

    Made by ``load_prior``, fitted to a simulator by ``restricted``. All arrays are float64.
    """

    def __init__(
        self, model: Model, sites: tuple[Site, ...], *, where: str, entries: prior_toml.Entries | None = None,
        units: tuple[str, ...] | None = None, scale: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self._model, self._sites, self._where, self._entries = model, sites, where, entries
        self._column = {site.name: i for i, site in enumerate(sites)}
        self._units = tuple(site.unit for site in sites) if units is None else units
        # sites speak the unit that the prior was written in
        self._scale = np.ones(len(sites)) if scale is None else scale

    @property
    def names(self) -> tuple[str, ...]:
        """Parameters, in column order."""
        return tuple(site.name for site in self._sites)

    @property
    def units(self) -> tuple[str, ...]:
        """Unit of each column; "" where a Pyro model function gave none and no simulator is known yet."""
        return self._units

    @property
    def sources(self) -> dict[str, str]:
        """Why each parameter has the distribution it has."""
        return {site.name: site.source for site in self._sites}

    @property
    def distributions(self) -> dict[str, str]:
        """Each parameter's distribution as text, in the unit that the prior was written in."""
        if self._entries is None:
            return {site.name: f"{site.distribution} [{site.unit or '?'}]" for site in self._sites}
        return {site.name: prior_toml.describe(self._entries[site.name]) for site in self._sites}

    def sample(self, n: int, seed: int) -> np.ndarray:
        """(n, d) draws; the same for the same seed."""

        def value(_site: Site, fn: Any, _given: None) -> tuple[Tensor, Tensor]:
            drawn = fn.sample()
            return drawn, drawn

        return self._run(n, value, seed=seed) * self._scale

    def log_prob(self, theta: np.ndarray) -> np.ndarray:
        """(n,) log density of theta in ``units``; -inf outside the support."""
        return self._densities(theta).sum(1)

    def to_unconstrained(self, theta: np.ndarray) -> np.ndarray:
        """u (n, d) of theta (n, d). Raises PriorError if theta lies outside the prior's support."""

        def value(site: Site, fn: Any, given: Tensor) -> tuple[Tensor, Tensor]:
            # a change of units and back may move a bound by one rounding
            inside = given.clamp(site.low, site.high)
            outside = ~fn.support.check(inside) | ((inside - given).abs() > 1e-12 * (1 + given.abs()))
            if bool(outside.any()):
                worst, unit = float(given[outside][0]), f" [{site.unit}]" if site.unit else ""
                raise PriorError(f"{self._where}: '{site.name}' = {worst:g}{unit} lies outside its support, {site.low:g} to {site.high:g}")
            return inside, site.to_real(fn, inside)

        return self._run(len(theta), value, np.asarray(theta) / self._scale)

    def to_constrained(self, u: np.ndarray) -> np.ndarray:
        """theta (n, d) of u (n, d): inside the support for every finite u."""

        def value(site: Site, fn: Any, given: Tensor) -> tuple[Tensor, Tensor]:
            made = site.from_real(fn, given)
            return made, made

        return self._run(len(u), value, np.asarray(u)) * self._scale

    def log_prob_unconstrained(self, u: np.ndarray) -> np.ndarray:
        """(n,) log density of u: log_prob(theta) + log |dtheta/du|; a standard normal where every site has quantiles."""

        def value(site: Site, fn: Any, given: Tensor) -> tuple[Tensor, Tensor]:
            return site.from_real(fn, given), site.log_density_real(fn, given)

        return self._run(len(u), value, np.asarray(u)).sum(1)

    def moments_unconstrained(self) -> tuple[np.ndarray, np.ndarray]:
        """(d,), (d,): mean and standard deviation of u; exactly 0 and 1 where a site has quantiles."""
        u = self.to_unconstrained(self.sample(_INTERVAL_DRAWS, seed=0))
        known = np.array([site.quantiles for site in self._sites])
        return np.where(known, 0.0, u.mean(0)), np.where(known, 1.0, u.std(0))

    def interval(self, mass: float) -> tuple[np.ndarray, np.ndarray]:
        """Central interval of each parameter, (d,) low and (d,) high in ``units``.

        Quantiles of a fixed set of draws; exact for the independent sites of a TOML prior that have an icdf.
        Raises PriorError for a mass outside (0, 1).
        """
        if not 0 < mass < 1:
            raise PriorError(f"an interval holds a mass between 0 and 1, not {mass:g}")
        tails = np.array([(1 - mass) / 2, (1 + mass) / 2])
        low, high = np.quantile(self.sample(_INTERVAL_DRAWS, seed=0), tails, axis=0)
        if self._entries is not None:
            quantiles = torch.special.ndtri(torch.tensor(tails)).numpy()
            exact = self.to_constrained(np.repeat(quantiles[:, None], len(self._sites), axis=1))
            known = np.array([site.quantiles for site in self._sites])
            low, high = np.where(known, exact[0], low), np.where(known, exact[1], high)
        return low, high

    def restricted(self, space: ParameterSpace) -> Prior:
        """The prior over exactly the space's parameters, in its order and units.

        An entry for no parameter is left out with an SbicalWarning. Raises PriorError for parameters without prior (with
        entries to paste), a unit of another quantity, a support beyond the role's, or a left-out site that others depend on.
        """
        missing = [p for p in space if p.name not in self._column]
        extra = [n for n in self.names if n not in space.names]
        if missing:
            raise PriorError(self._missing(missing, extra))
        if extra:
            self._check_independent(space.names, extra)
            text = f"{self._where} has entries for no parameter of this simulator, left out: {', '.join(extra)}"
            warnings.warn(text, SbicalWarning, stacklevel=2)
        sites = tuple(self._sites[self._column[p.name]] for p in space)
        scale = np.array([self._factor(site, p) for site, p in zip(sites, space, strict=True)])
        entries, model = self._entries, self._model
        if entries is not None:
            # only the parameters' own entries: draws depend on nothing else that the file holds, nor on its order
            entries = {n: entries[n] for n in space.names}
            model = prior_toml.model(entries, where=self._where)
        return Prior(model, sites, where=self._where, entries=entries, units=space.units, scale=scale)

    def to_toml(self) -> str:
        """The prior as TOML; of a Pyro model function only its name, since no file holds a function."""
        if self._entries is None:
            return prior_toml.function(self._model)
        return prior_toml.write(self._entries)

    def _run(self, rows: int, value: Callable[..., tuple[Tensor, Tensor]], given: np.ndarray | None = None, *, seed: int = 0) -> np.ndarray:
        """Walk the model; ``value(site, fn, given column)`` returns the site's value and what goes into its column."""
        if given is not None and given.shape != (rows, len(self._sites)):
            names = ", ".join(self.names)
            raise PriorError(f"{self._where} needs an array (n, {len(self._sites)}), one column for each of {names}; got {given.shape}")
        columns = None if given is None else torch.tensor(given, dtype=torch.float64)
        out = torch.empty((rows, len(self._sites)), dtype=torch.float64)

        def resolve(name: str, fn: Any, _: dict[str, Any]) -> Tensor:
            if name not in self._column:
                return fn.sample()
            i = self._column[name]
            made, out[:, i] = value(self._sites[i], fn, None if columns is None else columns[:, i])
            return made

        if rows:
            walk(self._model, rows, resolve, seed=seed)
        return out.numpy()

    def _densities(self, theta: np.ndarray) -> np.ndarray:
        """(n, d) log density of each site given the earlier ones, per unit of ``units``."""

        def value(_site: Site, fn: Any, given: Tensor) -> tuple[Tensor, Tensor]:
            inside = fn.support.check(given)
            # later sites need a value that exists; the row is -inf whatever it is
            safe = torch.where(inside, given, fn.sample())
            return safe, torch.where(inside, fn.log_prob(safe), -torch.inf)

        return self._run(len(theta), value, np.asarray(theta) / self._scale) - np.log(self._scale)

    def _missing(self, parameters: list[Parameter], extra: list[str]) -> str:
        names = ", ".join(p.name for p in parameters)
        # most often one of these is a typo of one of those
        names += f" (what it has for no parameter: {', '.join(extra)})" if extra else ""
        if self._entries is None:
            calls = "\n".join(f'    pyro.sample("{p.name}", ...)  # [{p.unit}], {p.support}' for p in parameters)
            return f"{self._where} has no site for {names}; add to the function:\n\n{calls}"
        return f"{self._where} has no entry for {names}; add:\n\n{prior_toml.snippet(parameters)}"

    def _factor(self, site: Site, parameter: Parameter) -> float:
        """From the unit that the site was written in to the parameter's."""
        where = f"{self._where}, entry '{site.name}'"
        factor, offset = conversion(site.unit, parameter.unit, where=where, error=PriorError) if site.unit else (1.0, 0.0)
        if offset:
            raise PriorError(f"{where}: [{site.unit}] has another zero than [{parameter.unit}]; write the prior in {parameter.unit}")
        (low, high), kind = BOUNDS[parameter.support], parameter.support.replace("_", " ")
        if site.low * factor < low or site.high * factor > high:
            fix = "Uniform within 0 and 1, or Beta" if kind == "unit interval" else "LogUniform, or TruncatedNormal with low = 0.0"
            raise PriorError(
                f"{where}: {site.distribution} reaches from {site.low * factor:g} to {site.high * factor:g} [{parameter.unit}], but "
                f"{', '.join(parameter.used_by)} must be {kind}; use for example {fix}"
            )
        return factor

    def _check_independent(self, kept: tuple[str, ...], extra: list[str]) -> None:
        """Leaving a site out integrates over it, which is only free where no other site looks at it."""
        theta, columns = self.sample(8, seed=0), [self._column[n] for n in extra]
        densities = []
        for seed in (1, 2):
            theta[:, columns] = self.sample(8, seed=seed)[:, columns]
            densities.append(self._densities(theta)[:, [self._column[n] for n in kept]])
        if not np.array_equal(*densities):
            raise PriorError(
                f"{self._where}: sites that are no parameter of this simulator ({', '.join(extra)}) shape the distribution of others; "
                "write them out of the function, or make them parameters"
            )


def load_prior(source: str | Path | Callable[[], object]) -> Prior:
    """A prior by catalog name, by path of a TOML file, or as a Pyro model function without arguments.

    A function's sites are the parameters; ``pyro.sample(name, d, infer={"unit": "deg", "source": "..."})`` declares another
    unit than the parameter's and says why. Raises CatalogError for a name that is neither, PriorError for a prior that is wrong.
    """
    if callable(source):
        where = f"prior function '{getattr(source, '__name__', repr(source))}'"
        return Prior(source, inspect_sites(source, where), where=where)
    where = f"prior '{source}'"
    entries = prior_toml.read(catalog.find("prior", source))
    model = prior_toml.model(entries, where=where)
    return Prior(model, inspect_sites(model, where), where=where, entries=entries)
