"""How one member of an ensemble is built and trained.

A member maps a standard normal to the posterior through conditional affine autoregressive layers, which follow a posterior
that is much narrower than its prior, and one conditional rational-quadratic spline layer on top, which bends it (several
modes, ridges). Both come from sbi's zuko builders; see ``Training`` for what they were measured against.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from sbical.errors import SimulationError

if TYPE_CHECKING:
    from sbi.neural_nets.estimators import ConditionalDensityEstimator

#: (epochs done over all members, epochs in all, validation loss [nats])
Progress = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Training:
    """How an ensemble is built and trained.

    ``transforms`` counts all layers of a member, the last of which is the spline of ``bins`` bins; ``hidden`` are the widths
    of each layer's network. ``epochs`` is raised where it would mean fewer than ``steps`` optimiser steps. The learning rate
    falls to 0 along a cosine; weights are those of the best epoch on the ``holdout`` share, which each member draws anew.
    """

    members: int = 2
    transforms: int = 3
    hidden: tuple[int, ...] = (128, 128)
    bins: int = 8
    epochs: int = 30
    steps: int = 600
    batch: int = 128
    learning_rate: float = 4e-3
    weight_decay: float = 0.3
    clip: float = 5.0
    holdout: float = 0.1

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            smallest = min(value, default=0) if isinstance(value, tuple) else value
            if smallest <= 0 and not (field.name == "weight_decay" and smallest == 0):
                raise SimulationError(f"training needs {field.name} above 0, got {value}")
        if self.holdout >= 1:
            raise SimulationError(f"training holds out a share below 1, got {self.holdout}")

    def epochs_for(self, n: int) -> int:
        """Epochs of one member on n simulations."""
        rest = n - max(1, round(self.holdout * n))
        return max(self.epochs, math.ceil(self.steps / math.ceil(rest / self.batch)))

    def total(self, n: int) -> int:
        """Epochs of all members on n simulations."""
        return self.members * self.epochs_for(n)


class Trained(NamedTuple):
    """A member and its validation loss at the best epoch [nats]."""

    flow: ConditionalDensityEstimator
    loss: float


def build(dims: int, features: int, training: Training) -> ConditionalDensityEstimator:
    """An untrained member over ``dims`` parameters given ``features`` summaries, weights from torch's random state."""
    # sbi takes seconds to import; only training and reading an estimator back need it
    from sbi.neural_nets.estimators import ZukoFlow
    from sbi.neural_nets.net_builders import build_zuko_maf, build_zuko_nsf
    from zuko.flows import Flow

    # the builders read sizes off a batch, and mean and sd only where they z-score
    theta, x = torch.zeros(2, dims), torch.zeros(2, features)
    shared: dict[str, Any] = {"z_score_x": "none", "z_score_y": "none", "hidden_features": list(training.hidden), "activation": nn.SiLU}
    # ZukoFlow.net is declared as any module, and is a zuko flow
    spline: Any = build_zuko_nsf(theta, x, num_transforms=1, num_bins=training.bins, **shared).net
    layers = list(spline.transform.transforms)
    if training.transforms > 1:
        affine: Any = build_zuko_maf(theta, x, num_transforms=training.transforms - 1, **shared).net
        layers = [*affine.transform.transforms, *layers]
    return ZukoFlow(Flow(layers, spline.base), nn.Identity(), input_shape=theta[0].shape, condition_shape=x[0].shape)


def train(
    z: Tensor, features: Tensor, *, seed: int, training: Training, member: int = 0, progress: Progress | None = None, offset: float = 0.0
) -> Trained:
    """Train one member on parameters z (n, d) and features (n, k), both scaled; ``offset`` [nats] is added to the loss."""
    n = len(z)
    held = max(1, round(n * training.holdout))
    epochs = training.epochs_for(n)
    with seeded(seed):
        flow = build(z.shape[1], features.shape[1], training)
        order = torch.randperm(n)
        validation, rest = order[:held], order[held:]
        optimiser = torch.optim.AdamW(flow.parameters(), lr=training.learning_rate, weight_decay=training.weight_decay, fused=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs * math.ceil(len(rest) / training.batch))
        best = Trained(flow, math.inf)
        weights = copy.deepcopy(flow.state_dict())
        for epoch in range(epochs):
            for rows in rest[torch.randperm(len(rest))].split(training.batch):
                optimiser.zero_grad()
                flow.loss(z[rows], features[rows]).mean().backward()
                nn.utils.clip_grad_norm_(flow.parameters(), training.clip)
                optimiser.step()
                schedule.step()
            with torch.no_grad():
                loss = float(flow.loss(z[validation], features[validation]).mean()) + offset
            if loss < best.loss:
                best, weights = Trained(flow, loss), copy.deepcopy(flow.state_dict())
            if progress is not None:
                progress(member * epochs + epoch + 1, training.members * epochs, loss)
    if not math.isfinite(best.loss):
        raise SimulationError("training diverged: the loss is not finite; lower learning_rate, or look for wild summaries")
    flow.load_state_dict(weights)
    return Trained(flow.eval(), best.loss)


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
