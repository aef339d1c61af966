"""Models by name, their losses, and their start.

    logreg                   linear with intercept; logistic loss for two classes, softmax for more
    mlp-relu-100-100         fully connected, any hidden sizes, biases; also ``softplus``, and ``linear`` for none

Networks take the loss that fits the data. Every layer, the linear models included, starts as ``nn.Linear`` does,
with weights and biases uniform on ±1/√fan_in: this is what PyTorch calls Kaiming initialization
(``kaiming_uniform_`` with a = √5), and what the published runs used. Drawing from a generator of our own makes
the start a function of the seed alone, equal to that of ``torch.manual_seed(seed)`` followed by the constructor.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from levelport.checks import UnknownNameError, unknown_name

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "softplus": nn.Softplus, "linear": nn.Identity}


@dataclass(frozen=True)
class LinearModel:
    """Xw + b."""

    @property
    def name(self) -> str:
        return "logreg"


@dataclass(frozen=True)
class MLP:
    """A fully connected network: hidden sizes, one activation between all layers."""

    activation: str
    hidden: tuple[int, ...]

    @property
    def name(self) -> str:
        return "-".join(["mlp", self.activation, *map(str, self.hidden)])

    def sizes(self, inputs: int, outputs: int) -> list[int]:
        """Widths from input to output."""
        return [inputs, *self.hidden, outputs]

    def parameters(self, inputs: int, outputs: int) -> int:
        """Weights and biases in all."""
        return sum((a + 1) * b for a, b in pairwise(self.sizes(inputs, outputs)))

    def build(self, inputs: int, outputs: int, *, seed: int, dtype: torch.dtype = torch.float64) -> nn.Sequential:
        """The network, initialized from ``seed``."""
        generator = torch.Generator().manual_seed(seed)
        layers: list[nn.Module] = []
        for fan_in, fan_out in pairwise(self.sizes(inputs, outputs)):
            if layers:
                layers.append(ACTIVATIONS[self.activation]())
            layers.append(_linear_layer(fan_in, fan_out, generator, dtype))
        return nn.Sequential(*layers)


Model = LinearModel | MLP


def parse_model(name: str) -> Model:
    """The model that a name stands for."""
    if name == "logreg":
        return LinearModel()
    match = re.fullmatch(r"mlp-([a-z]+)((?:-[1-9]\d*)+)", name)
    if match and match[1] in ACTIVATIONS:
        return MLP(match[1], tuple(int(size) for size in match[2].split("-")[1:]))
    if match:
        raise UnknownNameError(f"The model '{name}' has no known activation; use {' or '.join(ACTIVATIONS)}.")
    raise unknown_name(
        "model",
        name,
        ["logreg", "mlp-relu-100-100", "mlp-softplus-50"],
        see="Models are logreg and mlp-ACTIVATION-SIZE-SIZE..., for example mlp-relu-100-100.",
    )


def check_seed(seed: int) -> None:
    """Raise unless torch's generators take this seed, and numpy's."""
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed must not be negative and must be below 2**63, not {seed}.")


def _linear_layer(fan_in: int, fan_out: int, generator: torch.Generator, dtype: torch.dtype) -> nn.Linear:
    layer = nn.utils.skip_init(nn.Linear, fan_in, fan_out, dtype=dtype)
    nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
    bound = 1.0 / math.sqrt(fan_in)
    nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    return layer


def initial_weights(inputs: int, outputs: int, *, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """The start of a linear model as the (inputs+1)×outputs matrix [Wᵀ; b], flat, row by row."""
    layer = _linear_layer(inputs, outputs, torch.Generator().manual_seed(seed), dtype)
    return torch.cat([layer.weight.detach().T, layer.bias.detach()[None]]).reshape(-1)


Loss = Callable[[Tensor, Tensor], Tensor]
"""Mean over samples of what a network's outputs cost against the targets."""


def logistic_loss(output: Tensor, y: Tensor) -> Tensor:
    """Mean log(1 + exp(-y z)) of the outputs z (n×1) and labels ±1, without overflow or cancellation."""
    return -F.logsigmoid(y * output.squeeze(1)).mean()


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    """Mean -log softmax(z)_y of the outputs z (n×classes) and integer classes."""
    return F.cross_entropy(output, y)
