"""Networks and factorizations to teleport on: smooth but not convex, piecewise smooth, and in single precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from levelport_lab.problems.statistical_models import digits, table
from levelport_lab.problems.teleport_cases import Loss, Parameters, draw, model

Activation = Callable[[Tensor], Tensor]


def penalised(fit: Loss, reg: float) -> Loss:
    """fit + reg ‖all parameters‖²."""
    return lambda p: fit(p) + reg * sum((v.square().sum() for v in p.values()), torch.zeros(()))


def layers(sizes: Sequence[int], seed: int) -> Parameters:
    """Weights uniform on ±1/√fan_in and small biases, as networks start."""
    normal, parameters = draw(seed), {}
    for index, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        parameters[f"W{index}"] = normal(fan_in, fan_out) / math.sqrt(3.0 * fan_in)
        parameters[f"b{index}"] = normal(fan_out) / math.sqrt(3.0 * fan_in)
    return parameters


def forward(p: Parameters, x: Tensor, activation: Activation) -> Tensor:
    """A fully connected network, linear at the end."""
    depth = sum(name.startswith("W") for name in p)
    for index in range(depth):
        x = x @ p[f"W{index}"] + p[f"b{index}"]
        x = activation(x) if index < depth - 1 else x
    return x


def binary(name: str, hidden: Sequence[int], activation: Activation, reg: float, seed: int) -> tuple[Loss, Parameters]:
    """A network with logistic loss on an embedded data set."""
    X, y = table(name, 200)
    start = layers([X.shape[1], *hidden, 1], seed)
    return penalised(lambda p: -F.logsigmoid(y * forward(p, X, activation)[:, 0]).mean(), reg), start


def on_digits(hidden: Sequence[int], activation: Activation, reg: float, seed: int) -> tuple[Loss, Parameters]:
    """A network with softmax loss on 8×8 digits."""
    X, y = digits(200)
    return penalised(lambda p: F.cross_entropy(forward(p, X, activation), y), reg), layers([64, *hidden, 10], seed)


def waves(samples: int) -> tuple[Tensor, Tensor]:
    """A curve to fit: one input, one output."""
    x = torch.linspace(-1.0, 1.0, samples, dtype=torch.float64)[:, None]
    return x, torch.sin(3.0 * x) + 0.3 * torch.cos(9.0 * x)


# --- smooth, not convex ---


@model("smooth", 0, 5, 50)
def _matrix_factorisation() -> tuple[Loss, Parameters]:
    normal = draw(10)
    target = normal(30, 4) @ normal(4, 25) + 0.1 * normal(30, 25)
    start = {"U": 0.3 * normal(30, 5), "V": 0.3 * normal(5, 25)}
    return penalised(lambda p: 0.5 * (p["U"] @ p["V"] - target).square().mean(), 1e-3), start


@model("smooth", 0, 50)
def _matrix_completion() -> tuple[Loss, Parameters]:
    normal = draw(11)
    target, seen = normal(40, 3) @ normal(3, 30), (normal(40, 30) > 0.5).double()
    start = {"U": 0.5 * normal(40, 4), "V": 0.5 * normal(4, 30)}
    return penalised(lambda p: (seen * (p["U"] @ p["V"] - target).square()).sum() / seen.sum(), 1e-3), start


@model("smooth", 5, 50)
def _tanh_deep_regression() -> tuple[Loss, Parameters]:
    x, y = waves(60)
    return penalised(lambda p: (forward(p, x, torch.tanh) - y).square().mean(), 1e-4), layers([1, 16, 16, 16, 1], 15)


@model("smooth", 5, 300)
def _softplus_digits() -> tuple[Loss, Parameters]:
    return on_digits([20], F.softplus, 1e-3, 17)


@model("smooth", 0, 50)
def _gelu_deep_digits() -> tuple[Loss, Parameters]:
    return on_digits([16, 16, 16], F.gelu, 1e-4, 19)


@model("smooth", 5, 50)
def _sigmoid_autoencoder() -> tuple[Loss, Parameters]:
    X, _ = digits(150)
    return penalised(lambda p: (forward(p, X, torch.sigmoid) - X).square().mean(), 1e-4), layers([64, 12, 64], 20)


def convolutional(activation: Activation, seed: int) -> tuple[Loss, Parameters]:
    """Two convolutions, a mean over space, and a linear layer, on 8×8 digits."""
    X, y = digits(100)
    images, normal = X.view(-1, 1, 8, 8), draw(seed)
    start = {
        "first": normal(6, 1, 3, 3) / 3.0,
        "second": normal(8, 6, 3, 3) / 7.0,
        "W": normal(32, 10) / 6.0,
        "b": torch.zeros(10, dtype=torch.float64),
    }

    def fit(p: Parameters) -> Tensor:
        x = activation(F.conv2d(images.to(p["W"]), p["first"], stride=2, padding=1))
        x = activation(F.conv2d(x, p["second"], stride=2, padding=1))
        return F.cross_entropy(x.flatten(1) @ p["W"] + p["b"], y)

    return penalised(fit, 1e-3), start


@model("smooth", 5, 50)
def _recurrent() -> tuple[Loss, Parameters]:
    normal = draw(24)
    sequences = normal(60, 8, 3)
    label = torch.sign(sequences.sum((1, 2)))
    start = {"in": normal(3, 12) / 2.0, "state": normal(12, 12) / 4.0, "out": normal(12) / 3.0}

    def fit(p: Parameters) -> Tensor:
        state = torch.zeros(60, 12, dtype=torch.float64)
        for time in range(8):
            state = torch.tanh(sequences[:, time] @ p["in"] + state @ p["state"])
        return -F.logsigmoid(label * (state @ p["out"])).mean()

    return penalised(fit, 1e-3), start


# --- piecewise smooth ---


@model("relu", 5, 50)
def _relu_wide_sonar() -> tuple[Loss, Parameters]:
    return binary("conn-bench-sonar-mines-rocks", [60], F.relu, 1e-2, 33)


@model("relu", 5, 50)
def _leaky_credit() -> tuple[Loss, Parameters]:
    return binary("credit-approval", [16, 16], lambda z: F.leaky_relu(z, 0.1), 1e-3, 34)


@model("relu", 0, 50)
def _relu_convolutions() -> tuple[Loss, Parameters]:
    return convolutional(F.relu, 35)


@model("relu", 5, 50)
def _relu_regression() -> tuple[Loss, Parameters]:
    x, y = waves(80)
    return penalised(lambda p: (forward(p, x, F.relu) - y).square().mean(), 1e-4), layers([1, 24, 24, 1], 36)


@model("relu", 5, 300)
def _relu_weak_penalty() -> tuple[Loss, Parameters]:
    return binary("ilpd-indian-liver", [24], F.relu, 1e-5, 37)


@model("relu", 0, 5, 50)
def _relu_autoencoder() -> tuple[Loss, Parameters]:
    X, _ = digits(150)
    return penalised(lambda p: (forward(p, X, F.relu) - X).square().mean(), 1e-4), layers([64, 12, 64], 38)


@model("relu", 5, 50)
def _elastic_hinge_network() -> tuple[Loss, Parameters]:
    X, y = table("horse-colic", 200)
    start = layers([X.shape[1], 20, 1], 39)
    return penalised(lambda p: F.relu(1.0 - y * forward(p, X, F.elu)[:, 0]).square().mean(), 1e-3), start


# --- in single precision ---


@model("float32", 5, 50)
def _relu_in_single_precision() -> tuple[Loss, Parameters]:
    return in_single("pima", [20, 20], F.relu, 41)


@model("float32", 0, 50)
def _gelu_in_single_precision() -> tuple[Loss, Parameters]:
    return in_single("credit-approval", [16, 16], F.gelu, 42)


def in_single(name: str, hidden: Sequence[int], activation: Activation, seed: int) -> tuple[Loss, Parameters]:
    """A network with logistic loss on an embedded data set, all in float32."""
    X, y = (part.float() for part in table(name, 200))
    start = {key: value.float() for key, value in layers([X.shape[1], *hidden, 1], seed).items()}
    return penalised(lambda p: -F.logsigmoid(y * forward(p, X, activation)[:, 0]).mean(), 1e-3), start
