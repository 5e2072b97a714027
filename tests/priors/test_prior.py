"""Priors from TOML and from Pyro functions: coordinates, densities, units, supports and what is refused."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import scipy.stats
import torch

from sbical.common.catalog import find, names
from sbical.errors import CatalogError, PriorError, SbicalWarning
from sbical.priors.prior import Prior, load_prior
from sbical.simulation.parameters import Parameter, ParameterSpace, Support
from sbical.simulation.simulator_toml import load_simulator

#: its stubs do not know what frozen distributions are
stats: Any = scipy.stats

TOML = """
[torque_constant]
distribution = "LogUniform"
low = 0.1
high = 2.0
unit = "N m/A"
source = "data sheet, \\"+-\\" a decade"

[bias]
distribution = "Normal"
loc = 0
scale = 2.0
unit = "deg"
source = "how well the horn was mounted"

[payload]
distribution = "Gamma"
concentration = 4
rate = 2
unit = "kg"
source = "guessed"

[delay]
distribution = "TruncatedNormal"
loc = 5
scale = 10
low = 0
high = 25
unit = "ms"
source = "bus"
"""


def space(*parameters: tuple[str, str, Support]) -> ParameterSpace:
    return ParameterSpace(tuple(Parameter(name, unit, support, (f"effect.{name}",)) for name, unit, support in parameters))


ALL = space(("delay", "s", "nonnegative"), ("bias", "rad", "real"), ("payload", "kg", "positive"), ("torque_constant", "N m/A", "positive"))
NORMAL_IN_U = space(("delay", "s", "nonnegative"), ("bias", "rad", "real"), ("torque_constant", "N m/A", "positive"))


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "prior.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def prior(written: Callable[[str], Path]) -> Prior:
    return load_prior(written(TOML)).restricted(ALL)


def test_columns_follow_the_simulator(prior: Prior) -> None:
    assert prior.names == ("delay", "bias", "payload", "torque_constant")
    assert prior.units == ("s", "rad", "kg", "N m/A")
    assert prior.sources["bias"] == "how well the horn was mounted"
    assert prior.distributions["delay"] == "TruncatedNormal(loc=5, scale=10, low=0, high=25) [ms]"


def test_declared_units_become_si(prior: Prior) -> None:
    low, high = prior.interval(0.9)
    delay = stats.truncnorm(-0.5, 2.0, 0.005, 0.010)
    assert [low[0], high[0]] == pytest.approx(delay.ppf([0.05, 0.95]), rel=1e-9)
    assert high[1] == pytest.approx(np.deg2rad(2) * 1.6448536, rel=1e-6)
    assert [low[3], high[3]] == pytest.approx(stats.loguniform(0.1, 2).ppf([0.05, 0.95]), rel=1e-9)
    # Gamma has no icdf: quantiles of draws
    assert [low[2], high[2]] == pytest.approx(stats.gamma(4, scale=0.5).ppf([0.05, 0.95]), rel=0.02)


def test_draws_follow_the_distributions_and_repeat(prior: Prior) -> None:
    theta = prior.sample(4000, seed=3)
    assert theta.shape == (4000, 4)
    assert theta.dtype == np.float64
    assert stats.kstest(theta[:, 0], stats.truncnorm(-0.5, 2.0, 0.005, 0.010).cdf).pvalue > 1e-3
    assert stats.kstest(theta[:, 2], stats.gamma(4, scale=0.5).cdf).pvalue > 1e-3
    assert np.array_equal(theta, prior.sample(4000, seed=3))
    assert not np.array_equal(theta, prior.sample(4000, seed=4))


def test_sampling_leaves_torchs_state_alone(prior: Prior) -> None:
    before, checks = torch.random.get_rng_state(), dist.is_validation_enabled()
    prior.sample(10, seed=0)
    assert torch.equal(before, torch.random.get_rng_state())
    assert dist.is_validation_enabled() == checks
    assert torch.get_default_dtype() == torch.float32


def test_log_prob_is_the_product_of_densities(prior: Prior) -> None:
    theta = prior.sample(50, seed=0)
    expected = (
        stats.truncnorm(-0.5, 2.0, 0.005, 0.010).logpdf(theta[:, 0]) + stats.norm(0, np.deg2rad(2)).logpdf(theta[:, 1])
        + stats.gamma(4, scale=0.5).logpdf(theta[:, 2]) + stats.loguniform(0.1, 2).logpdf(theta[:, 3])
    )  # fmt: skip
    np.testing.assert_allclose(prior.log_prob(theta), expected, rtol=1e-9)
    theta[0, 0], theta[1, 3] = 0.026, 0.09
    assert prior.log_prob(theta)[:2].tolist() == [-np.inf, -np.inf]


def test_coordinates_round_trip(prior: Prior) -> None:
    theta = prior.sample(5000, seed=1)
    np.testing.assert_allclose(prior.to_constrained(prior.to_unconstrained(theta)), theta, rtol=1e-8)


def test_no_coordinate_leaves_the_support(prior: Prior) -> None:
    u = np.random.default_rng(0).uniform(-40, 40, (2000, 4))
    theta = prior.to_constrained(u)
    assert np.isfinite(prior.log_prob(theta)).all()
    assert theta[:, 0].min() > 0
    assert theta[:, 0].max() < 0.025


def test_prior_with_quantiles_is_standard_normal_in_u(written: Callable[[str], Path]) -> None:
    with pytest.warns(SbicalWarning, match="left out: payload"):
        prior = load_prior(written(TOML)).restricted(NORMAL_IN_U)
    u = prior.to_unconstrained(prior.sample(4000, seed=0))
    assert min(stats.kstest(column, "norm").pvalue for column in u.T) > 1e-3
    np.testing.assert_allclose(prior.log_prob_unconstrained(u), stats.norm.logpdf(u).sum(1), rtol=1e-12)


def dependent() -> None:
    """A ratio, and two parameters whose distribution depends on it."""
    about: Any = {"unit": "%", "source": "geometry"}
    ratio = pyro.sample("ratio", dist.Uniform(0.2, 0.9), infer=about)
    pyro.sample("stiffness", dist.LogNormal(torch.log(ratio), 0.1 + ratio))
    pyro.sample("mass", dist.Gamma(2.0 + ratio, 3.0))
    pyro.deterministic("double", 2 * ratio)


DEPENDENT = space(("ratio", "1", "unit_interval"), ("stiffness", "N m/rad", "positive"), ("mass", "kg", "positive"))


def test_density_in_u_is_the_density_in_theta_times_the_volume() -> None:
    """For sites that depend on others, with and without quantiles: log|dtheta/du| by differences."""
    prior = load_prior(dependent).restricted(DEPENDENT)
    u = np.random.default_rng(0).normal(size=(20, 3))
    step = 1e-5
    columns = [(prior.to_constrained(u + step * e) - prior.to_constrained(u - step * e)) / (2 * step) for e in np.eye(3)]
    volume = np.linalg.slogdet(np.stack(columns, 2))[1]
    np.testing.assert_allclose(prior.log_prob_unconstrained(u), prior.log_prob(prior.to_constrained(u)) + volume, rtol=1e-6)


def test_pyro_function_with_dependent_values() -> None:
    prior = load_prior(dependent).restricted(DEPENDENT)
    assert prior.names == ("ratio", "stiffness", "mass")
    assert prior.sources == {"ratio": "geometry", "stiffness": "", "mass": ""}
    theta = prior.sample(3000, seed=0)
    assert theta[:, 0].max() < 0.009  # declared in %
    assert stats.spearmanr(theta[:, 0], theta[:, 1]).statistic > 0.3
    u = prior.to_unconstrained(theta)
    assert abs(stats.spearmanr(u[:, 0], u[:, 1]).statistic) < 0.06
    np.testing.assert_allclose(prior.to_constrained(u), theta, rtol=1e-8)


def test_toml_round_trips(prior: Prior, tmp_path: Path) -> None:
    path = tmp_path / "again.toml"
    path.write_text(prior.to_toml(), encoding="utf-8")
    again = load_prior(path).restricted(ALL)
    assert np.array_equal(again.sample(100, seed=0), prior.sample(100, seed=0))
    assert again.sources == prior.sources


def test_function_is_saved_by_name_only(written: Callable[[str], Path]) -> None:
    path = written(load_prior(dependent).to_toml())
    message = r"stands for the Pyro model function .*dependent, which no file holds; pass that function again$"
    with pytest.raises(PriorError, match=message):
        load_prior(path)


def test_missing_entries_are_shown_to_paste(written: Callable[[str], Path]) -> None:
    wanted = ParameterSpace((*ALL.parameters, *space(("viscous", "N m s/rad", "nonnegative"), ("share", "1", "unit_interval")).parameters))
    with pytest.raises(PriorError) as error:
        load_prior(written(TOML)).restricted(wanted)
    assert (
        'has no entry for viscous, share; add:\n\n[viscous]\ndistribution = "LogUniform"\nlow = ?\nhigh = ?\nunit = "N m s/rad"\n'
        in str(error.value)
    )
    with pytest.raises(PriorError, match=re.escape('pyro.sample("viscous", ...)  # [N m s/rad], nonnegative')):
        load_prior(dependent).restricted(wanted)


def test_left_out_site_must_not_shape_others() -> None:
    prior = load_prior(dependent)
    with pytest.raises(PriorError, match=r"no parameter of this simulator \(ratio\) shape the distribution of others"):
        prior.restricted(space(("stiffness", "N m/rad", "positive"), ("mass", "kg", "positive")))
    with pytest.warns(SbicalWarning, match="left out: mass"):
        assert prior.restricted(space(("stiffness", "1", "positive"), ("ratio", "1", "real"))).names == ("stiffness", "ratio")


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        (("bias", "rad", "nonnegative"), "Normal reaches from -inf to inf [rad], but effect.bias must be nonnegative; use for"),
        (("payload", "kg", "unit_interval"), "Gamma reaches from 0 to inf [kg], but effect.payload must be unit interval; use for"),
        (("bias", "m", "real"), "entry 'bias': [deg] cannot become [m]"),
    ],
)  # fmt: skip
def test_priors_that_do_not_fit_a_role(written: Callable[[str], Path], parameter: tuple[str, str, Support], message: str) -> None:
    prior = load_prior(written(TOML))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SbicalWarning)
        with pytest.raises(PriorError, match=re.escape(message)):
            prior.restricted(space(parameter))


def test_values_outside_the_support_are_refused(prior: Prior) -> None:
    with pytest.raises(PriorError, match=re.escape("'delay' = 26 [ms] lies outside its support, 0 to 25")):
        prior.to_unconstrained(np.array([[0.026, 0.0, 1.0, 1.0]]))
    with pytest.raises(PriorError, match="'payload' = nan"):
        prior.to_unconstrained(np.array([[0.02, 0.0, np.nan, 1.0]]))
    with pytest.raises(
        PriorError, match=r"needs an array \(n, 4\), one column for each of delay, bias, payload, torque_constant; got \(1, 3\)"
    ):
        prior.to_constrained(np.zeros((1, 3)))
    with pytest.raises(PriorError, match="an interval holds a mass between 0 and 1, not 90"):
        prior.interval(90)


def moving_support() -> None:
    high = pyro.sample("high", dist.Uniform(0.5, 1.0))
    pyro.sample("low", dist.Uniform(0.0, high))


def branches() -> None:
    if pyro.sample("a", dist.Uniform(0.0, 1.0)) > 0.5:
        pyro.sample("b", dist.Uniform(0.0, 1.0))


def observes() -> None:
    pyro.sample("b", dist.Normal(pyro.sample("a", dist.Normal(0.0, 1.0)), 1.0), obs=torch.tensor(1.0))


def vector() -> None:
    pyro.sample("a", dist.Normal(torch.zeros(3), 1.0).to_event(1))


def plated() -> None:
    with pyro.plate("joints", 3):
        pyro.sample("a", dist.Normal(0.0, 1.0))


def discrete() -> None:
    pyro.sample("a", dist.Poisson(3.0))


def twice() -> None:
    pyro.sample("a", dist.Normal(0.0, 1.0))
    pyro.sample("a", dist.Normal(0.0, 1.0))


def wrong_scale() -> None:
    pyro.sample("a", dist.Normal(0.0, pyro.sample("s", dist.Normal(0.0, 1.0))))


def nothing() -> None:
    pass


def takes_data(data: object) -> None:
    del data


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (moving_support, "the support of 'low' (Uniform) depends on another site; a region that moves has no fixed edges"),
        (branches, "cannot run for many draws at once: Boolean value of Tensor with more than one value is ambiguous"),
        (observes, "site 'b' is observed; a prior knows no data, remove obs= and pyro.factor"),
        (vector, "site 'a' (Normal) is not a scalar; give every parameter its own pyro.sample"),
        (plated, "site 'a' (Normal) is not a scalar; give every parameter its own pyro.sample"),
        (discrete, "site 'a' (Poisson) is discrete; parameters are continuous"),
        (twice, "samples 'a' twice; a parameter is sampled once"),
        (wrong_scale, "cannot run for many draws at once: Expected parameter scale"),
        (nothing, "samples nothing; call pyro.sample(parameter, distribution) for every parameter"),
        (takes_data, "takes data; a prior's model function takes no arguments"),
    ],
)
@pytest.mark.parametrize("checks", [True, False])
def test_pyro_functions_that_are_no_prior(
    function: Callable[[], object], message: str, checks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # whatever was imported before: zuko switches torch's checks off
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", checks)
    with pytest.raises(PriorError) as error:
        load_prior(function)
    assert message in str(error.value)
    assert str(error.value).startswith(f"prior function '{function.__name__}'")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a\n", "is not valid TOML: "),
        ("", "has no entry; write a table per parameter"),
        ("low = 1", "'low' stands outside any entry; put it below the [parameter] it belongs to"),
        ('[a]\ndistribution = "Uniform"\nlow = 0\nhigh = 1\nunit = "1"', "entry 'a': source is missing; give distribution, unit, source"),
        ('[a]\ndistribution = "Unifrm"\nunit = "1"\nsource = "x"', "no distribution 'Unifrm'"),
    ],
)  # fmt: skip
def test_toml_that_is_no_prior(written: Callable[[str], Path], text: str, message: str) -> None:
    with pytest.raises(PriorError, match=re.escape(message)):
        load_prior(written(text))


def test_unreadable_and_unknown_files(tmp_path: Path) -> None:
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\x00\xff\xfe")
    with pytest.raises(PriorError, match="is not valid TOML"):
        load_prior(binary)
    with pytest.raises(CatalogError, match="hobby_servo"):
        load_prior("hobby_servoo")


@pytest.mark.parametrize("simulator", names("simulator"))
def test_every_catalog_simulator_has_a_prior(simulator: str) -> None:
    """Some catalog prior covers all of its parameters, with a source for each."""
    parameters = load_simulator(simulator).parameters
    covering = [p for p in map(load_prior, names("prior")) if set(parameters.names) <= set(p.names)]
    assert covering, f"no prior covers {find('simulator', simulator)}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SbicalWarning)
        fitted = covering[0].restricted(parameters)
    assert all(fitted.sources.values())
    assert np.isfinite(fitted.to_unconstrained(fitted.sample(1000, seed=0))).all()
