"""Small networks in full batch, with smooth activations and a small penalty; their optimum is not known."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from levelport_lab.bench.minimizers.problems import Made, draws, problem
from levelport_lab.problems.datasets import load_data

Layers = list[tuple[Tensor, Tensor]]


def weights(sizes: list[int], seed: int) -> tuple[Tensor, Callable[[Tensor], Layers]]:
    """Initial weights of a fully connected network (variance 1/fan-in, no biases), and how to read them."""
    normal = draws(seed)
    parts, shapes = [], []
    for fan_in, fan_out in itertools.pairwise(sizes):
        parts += [normal(fan_out, fan_in).reshape(-1) / math.sqrt(fan_in), torch.zeros(fan_out, dtype=torch.float64)]
        shapes.append((fan_out, fan_in))

    def read(w: Tensor) -> Layers:
        layers, at = [], 0
        for out, into in shapes:
            layers.append((w[at : at + out * into].view(out, into), w[at + out * into : at + out * into + out]))
            at += out * into + out
        return layers

    return torch.cat(parts), read


def forward(layers: Layers, X: Tensor, activation: Callable[[Tensor], Tensor]) -> Tensor:
    """The output of the last, linear layer."""
    for W, b in layers[:-1]:
        X = activation(F.linear(X, W, b))
    return F.linear(X, *layers[-1])


def with_derivatives(layers: Layers, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """u, u' and u'' at the column ``t`` of a tanh network of one variable, by the chain rule."""
    first, *rest = layers
    a = torch.tanh(F.linear(t, *first))
    slope = (1.0 - a.square()) * first[0][:, 0]
    bend = -2.0 * a * slope * first[0][:, 0]
    for W, b in rest[:-1]:
        z, dz, ddz = F.linear(a, W, b), slope @ W.T, bend @ W.T
        a = torch.tanh(z)
        flat = 1.0 - a.square()
        slope, bend = flat * dz, flat * ddz - 2.0 * a * flat * dz.square()
    W, b = rest[-1]
    return F.linear(a, W, b), slope @ W.T, bend @ W.T


def regression(sizes: list[int], activation: Callable[[Tensor], Tensor], seed: int, samples: int) -> Made:
    """Mean squared error on a smooth random target."""
    start, read = weights(sizes, seed)
    normal = draws(seed + 1000)
    X = normal(samples, sizes[0])
    y = torch.sin(X @ normal(sizes[0], sizes[-1])) + 0.5 * torch.cos(X @ normal(sizes[0], sizes[-1]))
    return lambda w: F.mse_loss(forward(read(w), X, activation), y) + 1e-6 * w.square().sum(), start


def classification(
    data: str, hidden: list[int], activation: Callable[[Tensor], Tensor], seed: int, samples: int
) -> Made:
    """Logistic loss on an embedded data set with two classes."""
    table = load_data(data)
    X = torch.tensor(table.X[:samples], dtype=torch.float64)
    y = torch.tensor(table.y[:samples], dtype=torch.float64)
    start, read = weights([X.shape[1], *hidden, 1], seed)
    return lambda w: -F.logsigmoid(y * forward(read(w), X, activation)[:, 0]).mean() + 1e-5 * w.square().sum(), start


REGRESSIONS: dict[str, tuple[list[int], Callable[[Tensor], Tensor], int, int]] = {
    "silu regression narrow": ([6, 12, 12, 12, 12, 1], F.silu, 16, 500),
    "softplus regression deep": ([5, 25, 25, 25, 2], F.softplus, 17, 500),
}
CLASSIFICATIONS: dict[str, tuple[str, list[int], Callable[[Tensor], Tensor], int, int]] = {
    "tanh sonar": ("conn-bench-sonar-mines-rocks", [30, 30], torch.tanh, 5, 600),
    "gelu breast cancer": ("breast-cancer", [30, 15], F.gelu, 14, 600),
}
for name, fitted in REGRESSIONS.items():
    problem("network", name)(partial(regression, *fitted))
for name, labelled in CLASSIFICATIONS.items():
    problem("network", name)(partial(classification, *labelled))


@problem("network")
def convolution_digits() -> Made:
    table = load_data("digits")
    X, y = torch.tensor(table.X[:400]).double()[:, :64].reshape(-1, 1, 8, 8), torch.tensor(table.y[:400]).long()
    normal = draws(11)
    start = torch.cat([normal(8 * 9) / 3.0, normal(16 * 72) / 8.5, normal(160) / 4.0])

    def loss(w: Tensor) -> Tensor:
        h = F.softplus(F.conv2d(X, w[:72].view(8, 1, 3, 3), stride=2, padding=1))
        h = F.softplus(F.conv2d(h, w[72:1224].view(16, 8, 3, 3), stride=2, padding=1)).mean((2, 3))
        return F.cross_entropy(h @ w[1224:].view(16, 10), y) + 1e-5 * w.square().sum()

    return loss, start


@problem("network")
def physics_informed_oscillator() -> Made:
    """u'' + 25 u = 0, u(0) = 1, u'(0) = 0 on [0, 2], by a tanh network; derivatives in t by the chain rule."""
    start, read = weights([1, 30, 30, 1], 12)
    t = torch.linspace(0.0, 2.0, 80, dtype=torch.float64)[:, None]

    def loss(w: Tensor) -> Tensor:
        u, du, ddu = with_derivatives(read(w), t)
        equation = (ddu + 25.0 * u).square().mean() / 100.0
        return equation + (u[0] - 1.0).square().sum() + 0.1 * du[0].square().sum() + 1e-7 * w.square().sum()

    return loss, start


@problem("network")
def attention_copying() -> Made:
    """One head of attention over six tokens that learns to return the token after the query."""
    generator = torch.Generator().manual_seed(13)
    tokens = torch.randint(0, 8, (300, 6), generator=generator)
    place = torch.randint(0, 5, (300,), generator=generator)
    y = tokens.gather(1, place[:, None] + 1)[:, 0]
    normal = draws(13)
    sizes = [(8, 12), (6, 12), (12, 12), (12, 12), (12, 12), (12, 8)]
    start = torch.cat([normal(*size).reshape(-1) / math.sqrt(size[0]) for size in sizes])

    def loss(w: Tensor) -> Tensor:
        token, position, Q, K, V, out = (
            part.view(size) for part, size in zip(w.split([a * b for a, b in sizes]), sizes, strict=True)
        )
        h = token[tokens] + position[None]
        query = h[torch.arange(300), place] @ Q
        attention = torch.softmax((h @ K @ query[:, :, None])[:, :, 0] / math.sqrt(12.0), 1)
        mixed = (attention[:, :, None] * (h @ V)).sum(1)
        return F.cross_entropy(torch.tanh(mixed) @ out, y) + 1e-5 * w.square().sum()

    return loss, start
