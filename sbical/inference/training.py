"""Building and training one ensemble member; its network is in ``sbical.inference.network``."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from sbical.errors import SimulationError

if TYPE_CHECKING:
    from sbical.inference.network import AutoregressiveMixture

#: Steps over which the learning rate rises.
WARM_UP = 50

#: (epochs done over all members, epochs in all, validation loss [nats])
EpochCallback = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Training:
    """How an ensemble is built and trained.

    ``trunk``, ``head`` and ``components`` size a member's network, see ``network.AutoregressiveMixture``. ``epochs`` is raised
    where it would mean fewer than ``steps`` optimiser steps. The learning rate rises over ``WARM_UP`` steps and falls to 0 along
    a cosine, weights are averaged over the last ``averaging`` of the run's steps, and those of the best epoch on the ``holdout``
    share are kept, which each member draws anew. ``decay`` is AdamW's weight decay, summed over a run at the peak rate, of
    what reads the summaries; what bends one parameter by the others decays not.

    Chosen on the negative log density [nats] of simulations not trained on, one setting for all: the example servo (9
    parameters, 67 summaries) and double pendulum (11, 70) at 5,000 simulations, two_moons, slcp, bernoulli_glm and
    gaussian_linear of sbibm at 10,000. Servo / double pendulum, single members: 0.34 / 5.59 (seeds 0 to 3, 5.5 s each); two
    members -0.05 / 5.29, four -0.23 / 4.98. On the same simulations the zuko flow before (two affine layers and a spline): 1.51 /
    5.66 in 8 s, two members 1.04 / 5.18. Tried, one or two seeds: decay of all weights 0.8 / 5.5 (and two_moons 0.4 worse),
    none 1.5 / 6.2; dropout, 4 components, a rate of 2e-2 and a linear regression as the start were worse on at least one.
    Averaging over the last 100 steps cost 0.8 nats and 2 % of coverage at 1,500 simulations. Chosen on these same simulations.
    """

    members: int = 4
    trunk: tuple[int, ...] = (128, 128, 128)
    head: int = 64
    components: int = 8
    epochs: int = 30
    steps: int = 600
    batch: int = 128
    learning_rate: float = 1e-2
    decay: float = 4.5
    averaging: float = 0.05
    clip: float = 5.0
    holdout: float = 0.1

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            smallest = min(value, default=0) if isinstance(value, tuple) else value
            if smallest <= 0 and not (field.name in ("decay", "averaging") and smallest == 0):
                raise SimulationError(f"training needs {field.name} above 0, got {value}")
        for name, share in (("holdout", self.holdout), ("averaging", self.averaging)):
            if share >= 1:
                raise SimulationError(f"training needs {name} below 1, got {share}")

    def epochs_for(self, n: int) -> int:
        """Epochs of one member on n simulations."""
        rest = n - max(1, round(self.holdout * n))
        return max(self.epochs, math.ceil(self.steps / math.ceil(rest / self.batch)))

    def total(self, n: int) -> int:
        """Epochs of all members on n simulations."""
        return self.members * self.epochs_for(n)


class Trained(NamedTuple):
    """A member and its validation loss at the best epoch [nats]."""

    flow: AutoregressiveMixture
    loss: float


def build(dims: int, features: int, training: Training) -> AutoregressiveMixture:
    """An untrained member over ``dims`` parameters given ``features`` summaries, weights from torch's random state."""
    # sbi takes seconds to import; only training and reading an estimator back need it
    from sbical.inference.network import AutoregressiveMixture

    return AutoregressiveMixture(dims, features, trunk=training.trunk, head=training.head, components=training.components)


def train(
    z: Tensor,
    features: Tensor,
    *,
    seed: int,
    training: Training,
    member: int = 0,
    progress: EpochCallback | None = None,
    offset: float = 0.0,
) -> Trained:
    """Train one member on parameters z (n, d) and features (n, c, k) of c measurements of each, both scaled.

    Each step takes one of the measurements at random. ``offset`` [nats] is added to the loss.

    Raises SimulationError if the loss never is finite.
    """
    n = len(z)
    validated = max(1, round(n * training.holdout))
    per_epoch = math.ceil((n - validated) / training.batch)
    epochs = max(training.epochs, math.ceil(training.steps / per_epoch))
    with seeded(seed):
        flow, best = build(z.shape[1], features.shape[2], training), math.inf
        averaged, kept = copy.deepcopy(flow).eval(), copy.deepcopy(flow).eval()
        order = torch.randperm(n)
        validation, rest = order[:validated], order[validated:]
        window = training.averaging * epochs * per_epoch
        groups = flow.groups(training.decay / (training.learning_rate * epochs * per_epoch))
        optimiser = torch.optim.AdamW(groups, lr=training.learning_rate, fused=True)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, partial(_rate, steps=epochs * per_epoch))
        for epoch in range(epochs):
            for i, rows in enumerate(rest[torch.randperm(len(rest))].split(training.batch)):
                measured = torch.randint(features.shape[1], (len(rows),)) if features.shape[1] > 1 else 0
                optimiser.zero_grad()
                flow.loss(z[rows], features[rows, measured]).mean().backward()
                nn.utils.clip_grad_norm_(flow.parameters(), training.clip)
                optimiser.step()
                schedule.step()
                # an average over fewer steps than its window would still hold the untrained weights
                _approach(averaged, flow, 1 / max(1.0, min(window, epoch * per_epoch + i + 1)))
            with torch.no_grad():
                loss = float(averaged.loss(z[validation], features[validation, 0]).mean()) + offset
            if loss < best:
                best = loss
                kept.load_state_dict(averaged.state_dict())
            if progress is not None:
                progress(member * epochs + epoch + 1, training.members * epochs, loss)
    if not math.isfinite(best):
        raise SimulationError("training diverged: its loss never was finite; lower learning_rate")
    return Trained(kept, best)


def _rate(step: int, steps: int) -> float:
    """Learning rate at a step, as a share of its peak."""
    return min(1.0, (step + 1) / WARM_UP) * 0.5 * (1 + math.cos(math.pi * step / steps))


def _approach(averaged: nn.Module, flow: nn.Module, share: float) -> None:
    """Move the averaged weights a share of the way to the current ones."""
    with torch.no_grad():
        for mean, current in zip(averaged.parameters(), flow.parameters(), strict=True):
            mean.lerp_(current, share)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Torch's random numbers from a seed, on one thread; state and threads are put back afterwards.

    Networks this small are faster on one thread, and sums are the same bits.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)
