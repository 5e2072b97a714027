"""The network of a member: autoregressive, an sbi estimator, and a density before any training."""

from __future__ import annotations

import pytest
import torch
from sbi.neural_nets.estimators import ConditionalDensityEstimator

from sbical.inference.network import AutoregressiveMixture


@pytest.fixture
def network() -> AutoregressiveMixture:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = AutoregressiveMixture(3, 4, trunk=(16, 16), head=8, components=5)
        # before training the linear parts are zero and the rest is nearly so
        for parameter in made.parameters():
            torch.nn.init.normal_(parameter, std=0.4)
    return made.requires_grad_(False)


def test_each_parameter_sees_only_those_before_it(network: AutoregressiveMixture) -> None:
    z, x = torch.zeros(1, 3), torch.ones(1, 4)
    read = network.read(x)
    plain = network.mixtures(z, *read, slice(None))
    for moved in range(3):
        z = torch.zeros(1, 3)
        z[0, moved] = 1.0
        changed = [
            i
            for i in range(3)
            if any(not torch.equal(a[:, i], b[:, i]) for a, b in zip(network.mixtures(z, *read, slice(None)), plain, strict=True))
        ]
        assert changed == list(range(moved + 1, 3))


def test_one_parameter_at_a_time_gives_the_same_mixtures(network: AutoregressiveMixture) -> None:
    generator = torch.Generator().manual_seed(1)
    z, read = torch.randn(6, 3, generator=generator), network.read(torch.randn(6, 4, generator=generator))
    for i in range(3):
        for alone, together in zip(network.mixtures(z, *read, slice(i, i + 1)), network.mixtures(z, *read, slice(None)), strict=True):
            torch.testing.assert_close(alone[:, 0], together[:, i])


def test_it_is_an_estimator_of_sbi(network: AutoregressiveMixture) -> None:
    assert isinstance(network, ConditionalDensityEstimator)
    x = torch.zeros(2, 4)
    draws = network.sample(torch.Size([7]), x)
    assert draws.shape == (7, 2, 3)
    assert network.log_prob(draws, x).shape == (7, 2)
    torch.testing.assert_close(network.log_prob(draws, x)[0], -network.loss(draws[0], x))


def test_only_what_reads_the_summaries_decays(network: AutoregressiveMixture) -> None:
    reading, rest = network.groups(0.3)
    assert (reading["weight_decay"], rest["weight_decay"]) == (0.3, 0.0)
    assert len(reading["params"]) == 6
    assert len(reading["params"]) + len(rest["params"]) == len(list(network.parameters()))


def test_draws_of_one_parameter_follow_its_density() -> None:
    """Mean and variance of draws against the density summed over a grid."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(3)
        network = AutoregressiveMixture(1, 2, trunk=(8,), head=8, components=4)
        x = torch.tensor([[0.5, -1.0]])
        draws = network.sample(torch.Size([40_000]), x)[:, 0, 0]
        grid = torch.linspace(-12, 12, 4001)[:, None]
        density = torch.exp(-network.loss(grid, x.expand(len(grid), 2))) * (grid[1] - grid[0])
    mean = (density * grid[:, 0]).sum()
    assert float(density.sum()) == pytest.approx(1.0, abs=1e-3)
    assert float(draws.mean()) == pytest.approx(float(mean), abs=0.03)
    assert float(draws.var()) == pytest.approx(float((density * (grid[:, 0] - mean) ** 2).sum()), rel=0.03)


def test_a_summary_unlike_all_of_training_is_answered_by_finite_draws(network: AutoregressiveMixture) -> None:
    network.linear_features.fill_(40.0)  # far off, every width grows with the parameters before it
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        drawn = network.sample(torch.Size([500]), torch.full((1, 4), 6.0))
    assert torch.isfinite(drawn).all()
    assert torch.isfinite(network.log_prob(drawn, torch.full((1, 4), 6.0))).all()
