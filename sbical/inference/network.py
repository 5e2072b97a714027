"""Network of one ensemble member: an autoregressive mixture of normals, conditioned on the summaries.

The summaries pass through one network that all parameters share; then each parameter has a small network of its own (all of
them one batched product), which also sees the parameters before it. Units of a masked autoregressive network would be divided
among the parameters, summaries included; here none is, and a step costs a few dozen operations instead of thousands.
A mixture follows a posterior that is much narrower than its prior and has several modes in one layer.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from sbi.neural_nets.estimators.base import ConditionalDensityEstimator
from torch import Tensor, nn
from torch.nn import functional

#: Log scales are kept between these: e^-9 of a standard deviation is narrower than any simulation resolves, e^3 wider than any
#: posterior. Without the upper one a summary unlike all of training widens each parameter by the one before, until draws overflow.
_NARROWEST, _WIDEST = -9.0, 3.0
#: Layers of each parameter's own network between the one that takes the inputs and the one that gives the mixture.
_HIDDEN = 2


class AutoregressiveMixture(ConditionalDensityEstimator):
    """sbi density estimator of parameters (d,) given summaries (k,), both scaled to about one.

    ``trunk`` are the widths of the network that sees the summaries, ``head`` the width of each parameter's own, and
    ``components`` the normals of each conditional. Weights come from torch's random state.
    """

    def __init__(self, dims: int, features: int, *, trunk: tuple[int, ...], head: int, components: int) -> None:
        widths = (features, *trunk)
        layers = [layer for a, b in zip(widths, trunk, strict=False) for layer in (nn.Linear(a, b), nn.SiLU())]
        super().__init__(nn.Sequential(*layers), torch.Size([dims]), torch.Size([features]))
        self.context = nn.Linear(widths[-1], dims * head)
        self.inputs = nn.Parameter(_uniform(dims, dims, head, fan_in=dims))
        self.hidden = nn.Parameter(_uniform(_HIDDEN, dims, head, head))
        self.hidden_bias = nn.Parameter(_uniform(_HIDDEN, dims, 1, head, fan_in=head))
        self.output = nn.Parameter(0.1 * _uniform(dims, head, 3 * components + 2))
        # equal weights, centres side by side, each half a standard deviation wide
        equal = torch.cat([torch.zeros(components), torch.linspace(-1.5, 1.5, components), torch.full((components,), -0.7), torch.zeros(2)])
        self.output_bias = nn.Parameter(equal.repeat(dims, 1, 1))
        # what is linear need not be learned by the rest
        self.linear_features, self.linear_inputs = nn.Parameter(torch.zeros(features, dims)), nn.Parameter(torch.zeros(dims, dims))
        self.components = components
        self.before: Tensor
        self.register_buffer("before", torch.ones(dims, dims).triu(1), persistent=False)

    def groups(self, decay: float) -> list[dict[str, Any]]:
        """Parameters for an optimiser: weight decay for what reads the summaries, none for the rest."""
        reading = [*self.net.parameters(), *self.context.parameters()]
        known = {id(p) for p in reading}
        rest = [p for p in self.parameters() if id(p) not in known]
        return [{"params": reading, "weight_decay": decay}, {"params": rest, "weight_decay": 0.0}]

    def log_prob(self, input: Tensor, condition: Tensor, **_: object) -> Tensor:  # noqa: A002 (sbi's name)
        """(s, b) log density of input (s, b, d) given condition (b, k)."""
        return torch.stack([-self.loss(z, condition) for z in input])

    def loss(self, input: Tensor, condition: Tensor, **_: object) -> Tensor:  # noqa: A002
        """(b,) negative log density of input (b, d) given condition (b, k)."""
        logits, centres, log_scales = self.mixtures(input, *self.read(condition), slice(None))
        residual = (input.unsqueeze(-1) - centres) * torch.exp(-log_scales)
        inside = torch.logsumexp(logits - 0.5 * residual**2 - log_scales, -1) - torch.logsumexp(logits, -1)
        return 0.5 * math.log(2 * math.pi) * input.shape[-1] - inside.sum(-1)

    def sample(self, sample_shape: torch.Size, condition: Tensor, **_: object) -> Tensor:
        """(*sample_shape, b, d) draws given condition (b, k), one parameter after another."""
        read, linear = self.read(condition)
        n, (dims, b, head) = torch.Size(sample_shape).numel(), read.shape
        read, linear = read[:, None].expand(-1, n, -1, -1).reshape(dims, n * b, head), linear.expand(n, -1, -1).reshape(n * b, dims)
        z = torch.zeros(n * b, dims)
        for i in range(dims):
            logits, centres, log_scales = self.mixtures(z, read, linear, slice(i, i + 1))
            chosen = torch.multinomial(logits[:, 0].softmax(-1), 1)
            centre, log_scale = centres[:, 0].gather(1, chosen)[:, 0], log_scales[:, 0].gather(1, chosen)[:, 0]
            z[:, i] = centre + torch.exp(log_scale) * torch.randn(n * b)
        return z.reshape(*sample_shape, b, dims)

    def read(self, condition: Tensor) -> tuple[Tensor, Tensor]:
        """What the summaries say to each parameter, (d, b, head), and their linear part of its location (b, d)."""
        read = self.context(self.net(condition)).unflatten(-1, (len(self.inputs), -1)).transpose(0, 1)
        return read, condition @ self.linear_features

    def mixtures(self, z: Tensor, read: Tensor, linear: Tensor, which: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, centres and log scales (b, d', components) of the parameters ``which``, given those before each in z (b, d)."""
        # before[j, i] is 1 where parameter i may see parameter j
        seen = self.before[:, which]
        weights = (self.inputs[:, which] * seen.unsqueeze(-1)).flatten(1)
        a = functional.silu(read[which] + (z @ weights).unflatten(-1, (seen.shape[1], -1)).transpose(0, 1))
        for weight, bias in zip(self.hidden, self.hidden_bias, strict=True):
            a = functional.silu(torch.baddbmm(bias[which], a, weight[which]))
        out = torch.baddbmm(self.output_bias[which], a, self.output[which]).transpose(0, 1)
        logits, centres, log_scales, both = out.split([self.components] * 3 + [2], -1)
        location = both[..., 0] + linear[:, which] + z @ (self.linear_inputs[:, which] * seen)
        width = both[..., 1:].clamp(_NARROWEST, _WIDEST)
        return logits, location.unsqueeze(-1) + torch.exp(width) * centres, (width + log_scales).clamp(_NARROWEST, _WIDEST)


def _uniform(*shape: int, fan_in: int | None = None) -> Tensor:
    """Torch's own range for a layer, +-1/sqrt(inputs); inputs are the second to last dimension unless given."""
    return (2 * torch.rand(*shape) - 1) / math.sqrt(fan_in or shape[-2])
