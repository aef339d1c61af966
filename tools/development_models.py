"""The development set, first part: models on which the solvers of the library are developed.

They are of the same kinds as those on which solvers are reported (:mod:`levelport_lab.problems.teleport_cases`). The
first byte of the SHA-256 of a model's name decides where it belongs: an even byte here, an odd one there. More networks
to develop on are in ``development_networks.py``.
"""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from levelport_lab.problems.network_models import (
    binary,
    convolutional,
    forward,
    in_single,
    layers,
    on_digits,
    penalised,
)
from levelport_lab.problems.statistical_models import conditioned, digits, linear, logistic, table
from levelport_lab.problems.teleport_cases import Loss, Model, Parameters, draw, model

DEVELOPMENT: dict[str, Model] = {}
"""All models of the development set by name."""

_model = partial(model, registry=DEVELOPMENT)


def student(samples: int, features: int, seed: int, *, spread: float) -> tuple[Loss, Parameters]:
    """Regression with heavy tails, the heavier the smaller ``spread``; not convex."""
    X, z, noise = conditioned(samples, features, 1e2, seed)
    y = z + noise / (spread + noise.abs().roll(1))
    return linear(lambda p: torch.log1p((p - y).square()), X, 1e-4)


def squared_hinge(name: str) -> tuple[Loss, Parameters]:
    """Piecewise quadratic, on an embedded data set."""
    X, y = table(name)
    return linear(lambda z: F.relu(1.0 - y * z).square(), X, 1e-3)


def softmax(X: Tensor, y: Tensor) -> tuple[Loss, Parameters]:
    """Softmax regression with a small penalty, from 0."""

    def loss(p: Parameters) -> Tensor:
        return F.cross_entropy(X @ p["W"], y) + 1e-4 * p["W"].square().sum()

    return loss, {"W": torch.zeros(X.shape[1], 10, dtype=X.dtype)}


@_model("statistical", 5, 50, 300)
def _logistic_ionosphere() -> tuple[Loss, Parameters]:
    return logistic("ionosphere", 1e-6)


@_model("statistical", 0, 50)
def _probit_credit() -> tuple[Loss, Parameters]:
    X, y = table("credit-approval")
    return linear(lambda z: -torch.special.log_ndtr(y * z), X, 1e-4)


@_model("statistical", 5, 50)
def _squared_hinge() -> tuple[Loss, Parameters]:
    return squared_hinge("pima")


@_model("statistical", 0, 50)
def _student_regression() -> tuple[Loss, Parameters]:
    return student(300, 50, seed=5, spread=0.2)


@_model("statistical", 5, 300)
def _softmax_digits() -> tuple[Loss, Parameters]:
    X, y = digits(400)
    return softmax(X, y)


@_model("statistical", 5, 50)
def _ordinal_regression() -> tuple[Loss, Parameters]:
    X, z, noise = conditioned(300, 30, 1e2, seed=6)
    latent = z + noise
    level = (latent > -1.0).long() + (latent > 1.0).long()

    def loss(p: Parameters) -> Tensor:
        first = p["cut"][0]
        cuts = torch.stack([first, first + F.softplus(p["cut"][1])])
        below = torch.sigmoid(cuts[None] - (X @ p["w"])[:, None])
        probability = torch.stack([below[:, 0], below[:, 1] - below[:, 0], 1.0 - below[:, 1]], 1)
        chosen = probability.gather(1, level[:, None])
        return -torch.log(chosen).mean() + 1e-3 * sum(v.square().sum() for v in p.values())

    return loss, {"w": torch.zeros(30, dtype=torch.float64), "cut": torch.tensor([-1.0, 1.0], dtype=torch.float64)}


@_model("float32", 5, 50)
def _logistic_in_single_precision() -> tuple[Loss, Parameters]:
    X, y = table("spambase", 400)
    single, labels = X.float(), y.float()

    def loss(p: Parameters) -> Tensor:
        return -F.logsigmoid(labels * (single @ p["w"])).mean() + 1e-3 * p["w"].square().sum()

    return loss, {"w": torch.zeros(single.shape[1])}


@_model("float32", 5, 50)
def _softmax_in_single_precision() -> tuple[Loss, Parameters]:
    X, y = digits(300)
    return softmax(X.float(), y)


@_model("smooth", 0, 5, 50)
def _deep_linear() -> tuple[Loss, Parameters]:
    normal = draw(12)
    X = normal(100, 10)
    Y = X @ normal(10, 5)
    start = layers([10, 12, 12, 5], 12)
    return penalised(lambda p: 0.5 * (forward(p, X, lambda z: z) - Y).square().mean(), 1e-3), start


@_model("smooth", 0, 50)
def _phase_retrieval() -> tuple[Loss, Parameters]:
    normal = draw(13)
    A, truth = normal(300, 60), normal(60) / math.sqrt(60.0)
    seen = (A @ truth).square()
    return lambda p: 0.25 * ((A @ p["x"]).square() - seen).square().mean(), {"x": 0.5 * normal(60) / math.sqrt(60.0)}


@_model("smooth", 0, 5, 300)
def _tanh_ionosphere() -> tuple[Loss, Parameters]:
    return binary("ionosphere", [20], torch.tanh, 1e-3, 14)


@_model("smooth", 0, 50)
def _softplus_pima() -> tuple[Loss, Parameters]:
    return binary("pima", [30, 30], F.softplus, 1e-3, 16)


@_model("smooth", 0, 5, 50)
def _gelu_sonar() -> tuple[Loss, Parameters]:
    return binary("conn-bench-sonar-mines-rocks", [16, 16], F.gelu, 1e-3, 18)


@_model("smooth", 0, 50)
def _silu_convolutions() -> tuple[Loss, Parameters]:
    return convolutional(F.silu, 21)


@_model("smooth", 0, 5, 50)
def _attention_block() -> tuple[Loss, Parameters]:
    normal = draw(22)
    tokens, classes = normal(40, 6, 8), torch.arange(40) % 4
    tokens = tokens + 0.5 * normal(4, 1, 8)[classes]
    start = {name: normal(8, 8) / math.sqrt(8.0) for name in ("query", "key", "value")} | layers([8, 16, 4], 22)

    def fit(p: Parameters) -> Tensor:
        query, key, value = (tokens @ p[name] for name in ("query", "key", "value"))
        weights = torch.softmax(query @ key.transpose(1, 2) / math.sqrt(8.0), 2)
        return F.cross_entropy(forward(p, (tokens + weights @ value).mean(1), F.gelu), classes)

    return penalised(fit, 1e-3), start


@_model("smooth", 5, 50)
def _physics_informed() -> tuple[Loss, Parameters]:
    """u'' = -sin(πx) on [0, 1] with u = 0 at both ends; derivatives of one hidden layer in closed form."""
    x = torch.linspace(0.0, 1.0, 50, dtype=torch.float64)[:, None]

    def fit(p: Parameters) -> Tensor:
        hidden = torch.tanh(x @ p["W0"] + p["b0"])
        second = -2.0 * hidden * (1.0 - hidden.square()) * p["W0"].square()
        equation = (second @ p["W1"])[:, 0] + torch.sin(math.pi * x[:, 0])
        ends = (torch.tanh(x[[0, -1]] @ p["W0"] + p["b0"]) @ p["W1"] + p["b1"]).square().sum()
        return equation.square().mean() + 10.0 * ends

    return penalised(fit, 1e-4), layers([1, 40, 1], 23)


@_model("smooth", 0, 50)
def _tensor_decomposition() -> tuple[Loss, Parameters]:
    normal = draw(25)
    target = torch.einsum("ir,jr,kr->ijk", normal(10, 3), normal(10, 3), normal(10, 3))
    start = {name: 0.5 * normal(10, 4) for name in "abc"}

    def fit(p: Parameters) -> Tensor:
        return (torch.einsum("ir,jr,kr->ijk", p["a"], p["b"], p["c"]) - target).square().mean()

    return penalised(fit, 1e-3), start


@_model("smooth", 5, 50)
def _layer_norm_network() -> tuple[Loss, Parameters]:
    X, y = table("credit-approval", 200)
    start = layers([X.shape[1], 16, 16, 1], 26)

    def fit(p: Parameters) -> Tensor:
        h = F.layer_norm(torch.tanh(X @ p["W0"] + p["b0"]), (16,))
        h = h + F.layer_norm(torch.tanh(h @ p["W1"] + p["b1"]), (16,))
        return -F.logsigmoid(y * (h @ p["W2"] + p["b2"])[:, 0]).mean()

    return penalised(fit, 1e-3), start


@_model("relu", 0, 5, 50)
def _relu_ionosphere() -> tuple[Loss, Parameters]:
    return binary("ionosphere", [30], F.relu, 1e-3, 30)


@_model("relu", 5, 50, 300)
def _relu_pima() -> tuple[Loss, Parameters]:
    return binary("pima", [20, 20], F.relu, 1e-3, 31)


@_model("relu", 0, 50)
def _relu_deep_digits() -> tuple[Loss, Parameters]:
    return on_digits([16, 16, 16], F.relu, 1e-3, 32)


@_model("float32", 5, 50)
def _tanh_in_single_precision() -> tuple[Loss, Parameters]:
    return in_single("ionosphere", [20], torch.tanh, 40)


@_model("float32", 5, 50)
def _convolutions_in_single_precision() -> tuple[Loss, Parameters]:
    loss, start = convolutional(F.silu, 43)
    return loss, {name: value.float() for name, value in start.items()}
