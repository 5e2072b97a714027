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
    falls to 0 along a cosine, weights are averaged over the steps with factor ``averaging``, and those of the best epoch on
    the ``holdout`` share are kept, which each member draws anew.

    The defaults were the best of what was tried within about 10 s per member on one thread. Negative log density [nats] of
    1,000 unseen simulations after training one member on 5,000, example servo (9 parameters, 67 summaries) / double pendulum
    (11, 70): batch 128, 30 epochs, rate 4e-3, no averaging 2.42 / 6.42; that with averaging 2.07 / 5.91; batch 64, 20 epochs,
    rate 8e-3, averaging 1.36 / 5.37; four layers instead of three 1.33 / 5.48, but slower. Worse: noise or dropout on the
    summaries, one wide layer, and (servo only) a linear regression taken off first. The defaults reach 1.41 / 5.47 with one
    member, 0.95 / 5.02 with two, 0.77 (servo) with four. One seed each, and another seed moved a figure by up to 0.2; chosen
    on these same 1,000.
    """

    members: int = 2
    transforms: int = 3
    hidden: tuple[int, ...] = (128, 128)
    bins: int = 8
    epochs: int = 20
    steps: int = 600
    batch: int = 64
    learning_rate: float = 1e-2
    weight_decay: float = 0.2
    averaging: float = 0.99
    clip: float = 5.0
    holdout: float = 0.1

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            smallest = min(value, default=0) if isinstance(value, tuple) else value
            if smallest <= 0 and not (field.name in ("weight_decay", "averaging") and smallest == 0):
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
    """Train one member on parameters z (n, d) and features (n, k), both scaled; ``offset`` [nats] is added to the loss.

    Raises SimulationError if the loss never is finite.
    """
    n = len(z)
    held = max(1, round(n * training.holdout))
    per_epoch = math.ceil((n - held) / training.batch)
    epochs = max(training.epochs, math.ceil(training.steps / per_epoch))
    with seeded(seed):
        flow, best = build(z.shape[1], features.shape[1], training), math.inf
        averaged, kept = copy.deepcopy(flow).eval(), copy.deepcopy(flow).eval()
        order = torch.randperm(n)
        validation, rest = order[:held], order[held:]
        optimiser = torch.optim.AdamW(flow.parameters(), lr=training.learning_rate, weight_decay=training.weight_decay, fused=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs * per_epoch)
        for epoch in range(epochs):
            for i, rows in enumerate(rest[torch.randperm(len(rest))].split(training.batch)):
                optimiser.zero_grad()
                flow.loss(z[rows], features[rows]).mean().backward()
                nn.utils.clip_grad_norm_(flow.parameters(), training.clip)
                optimiser.step()
                schedule.step()
                # an average over fewer steps than its window would still hold the untrained weights
                _approach(averaged, flow, 1 - min(training.averaging, 1 - 1 / (epoch * per_epoch + i + 1)))
            with torch.no_grad():
                loss = float(averaged.loss(z[validation], features[validation]).mean()) + offset
            if loss < best:
                best = loss
                kept.load_state_dict(averaged.state_dict())
            if progress is not None:
                progress(member * epochs + epoch + 1, training.members * epochs, loss)
    if not math.isfinite(best):
        raise SimulationError("training diverged: its loss never was finite; lower learning_rate")
    return Trained(kept, best)


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
