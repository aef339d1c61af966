"""The development set, second part: more networks and statistical models to develop solvers on.

Paths on networks are chaotic: a change of the ascent moves single problems by ten percent and more either way. On the
32 float64 networks of ``development_models.py`` such noise twice passed for progress that the reported models did not
confirm. That part also has few networks of three and more layers, on which ‖∇f‖ grows by factors of 1e3 to 1e5 and an
ascent is far from its end after 50 products, and only thirteen statistical models. The models below have other data,
sizes, seeds and activations. Importing this module registers both parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from development_models import DEVELOPMENT, squared_hinge, student
from levelport_lab.problems.network_models import Activation, binary, forward, layers, on_digits, penalised, waves
from levelport_lab.problems.statistical_models import (
    conditioned,
    huber,
    least_squares,
    linear,
    logistic,
    poisson,
    table,
)
from levelport_lab.problems.teleport_cases import Loss, Model, Parameters, draw


def _leaky(z: Tensor) -> Tensor:
    return F.leaky_relu(z, 0.1)


def _identity(z: Tensor) -> Tensor:
    return z


SMOOTH: dict[str, Activation] = {
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "softplus": F.softplus,
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "elu": F.elu,
    "mish": F.mish,
}
ROUGH: dict[str, Activation] = {"relu": F.relu, "leaky": _leaky}

BINARY: tuple[tuple[str, str, tuple[int, ...], float, int, tuple[int, ...]], ...] = (
    ("tanh", "breast-cancer", (10,), 1e-3, 200, (0, 50)),
    ("tanh", "tic-tac-toe", (15, 15), 1e-4, 201, (5,)),
    ("gelu", "congressional-voting", (8, 8), 1e-2, 202, (0,)),
    ("gelu", "breast-cancer", (40,), 1e-3, 203, (50,)),
    ("softplus", "ilpd-indian-liver", (10, 10, 10), 1e-4, 204, (5, 300)),
    ("softplus", "congressional-voting", (25,), 1e-2, 205, (50,)),
    ("silu", "credit-approval", (10,), 1e-3, 206, (0, 50)),
    ("silu", "ilpd-indian-liver", (15, 15), 1e-4, 207, (5,)),
    ("sigmoid", "tic-tac-toe", (8, 8), 1e-2, 208, (0,)),
    ("sigmoid", "credit-approval", (40,), 1e-3, 209, (50,)),
    ("elu", "breast-cancer", (10, 10, 10), 1e-4, 210, (5, 300)),
    ("elu", "tic-tac-toe", (25,), 1e-2, 211, (50,)),
    ("mish", "congressional-voting", (10,), 1e-3, 212, (0, 50)),
    ("mish", "breast-cancer", (15, 15), 1e-4, 213, (5,)),
    ("relu", "breast-cancer", (12,), 1e-3, 400, (0, 50)),
    ("relu", "blood", (20, 20), 1e-3, 401, (5,)),
    ("leaky", "titanic", (15,), 1e-4, 402, (0,)),
    ("relu", "tic-tac-toe", (10, 10), 1e-3, 403, (0, 50)),
    ("relu", "horse-colic", (30,), 1e-3, 404, (5,)),
    ("leaky", "mammographic", (10, 10, 10), 1e-3, 405, (50,)),
    ("relu", "congressional-voting", (16, 16), 1e-3, 406, (0, 5)),
    ("relu", "spambase", (12,), 1e-4, 407, (0,)),
    ("relu", "credit-approval", (25,), 1e-2, 408, (0, 50)),
    ("leaky", "ilpd-indian-liver", (8, 8), 1e-4, 409, (5,)),
    ("relu", "mammographic", (40,), 1e-3, 410, (50,)),
    ("relu", "titanic", (10, 10, 10), 1e-4, 411, (0, 5)),
)
"""Activation, data set, hidden layers, penalty, seed, and after how many steps of descent."""

DIGITS: tuple[tuple[str, tuple[int, ...], float, int, tuple[int, ...]], ...] = (
    ("tanh", (12,), 1e-3, 300, (0, 50)),
    ("silu", (10, 10), 1e-3, 301, (5,)),
    ("sigmoid", (16,), 1e-4, 302, (0,)),
    ("softplus", (12, 12), 1e-4, 303, (50,)),
    ("relu", (12,), 1e-3, 420, (0, 50)),
    ("relu", (10, 10), 1e-4, 421, (5,)),
    ("relu", (20,), 1e-4, 422, (300,)),
    ("gelu", (12, 20, 12), 1e-4, 501, (0, 50)),
    ("silu", (14, 14, 14), 1e-4, 502, (0, 50)),
    ("tanh", (12, 12, 12), 1e-4, 503, (5,)),
    ("mish", (10, 10, 10, 10), 1e-3, 504, (0, 50)),
)

CURVES: tuple[tuple[str, tuple[int, ...], int, float, int, tuple[int, ...]], ...] = (
    ("tanh", (12,), 40, 1e-4, 320, (5,)),
    ("softplus", (20, 20), 50, 1e-4, 321, (0,)),
    ("silu", (10, 10, 10), 60, 1e-3, 322, (50,)),
    ("relu", (20, 20), 60, 1e-4, 430, (0, 50)),
    ("tanh", (12, 12, 12), 50, 1e-4, 505, (5, 50)),
    ("silu", (16, 16, 16), 50, 1e-4, 506, (5, 50)),
    ("gelu", (10, 10, 10, 10), 40, 1e-4, 507, (50,)),
)
"""Activation, hidden layers, samples, penalty, seed, steps."""


RECURRENT: tuple[tuple[str, int, int, int, int, tuple[int, ...]], ...] = (
    ("tanh", 10, 10, 2, 508, (5, 50)),
    ("softplus", 8, 6, 3, 509, (5,)),
    ("gelu", 12, 7, 3, 510, (5, 50)),
)
"""Activation, units, length of the sequences, inputs, seed, steps."""

RESIDUAL: tuple[tuple[str, str, int, tuple[int, ...]], ...] = (
    ("tanh", "pima", 511, (0, 50)),
    ("gelu", "credit-approval", 512, (5, 50)),
)
"""Activation, data set, seed, steps."""

LOGISTIC: tuple[tuple[str, float, tuple[int, ...]], ...] = (
    ("pima", 1e-6, (5,)),
    ("breast-cancer", 1e-5, (5,)),
    ("horse-colic", 1e-5, (5,)),
    ("spambase", 1e-6, (5,)),
    ("credit-approval", 1e-5, (5, 300)),
    ("chess-krvkp", 1e-5, (5,)),
    ("congressional-voting", 1e-6, (5,)),
    ("tic-tac-toe", 1e-4, (0,)),
    ("magic", 1e-5, (5,)),
    ("ilpd-indian-liver", 1e-5, (5, 50)),
    ("mammographic", 1e-4, (0,)),
    ("titanic", 1e-4, (5,)),
    ("blood", 1e-5, (5,)),
    ("conn-bench-sonar-mines-rocks", 1e-6, (5, 300)),
    ("ionosphere", 1e-4, (5, 300)),
)
"""Data set, penalty, steps; no start so near the minimum that its gradient is all rounding."""


def curve(
    hidden: tuple[int, ...], activation: Activation, samples: int, reg: float, seed: int
) -> tuple[Loss, Parameters]:
    """A network that fits a curve."""
    x, y = waves(samples)
    start = layers([1, *hidden, 1], seed)
    return penalised(lambda p: (forward(p, x, activation) - y).square().mean(), reg), start


def factorisation() -> tuple[Loss, Parameters]:
    """A matrix of rank three in six factors."""
    normal = draw(331)
    target = normal(20, 3) @ normal(3, 30)
    start = {"U": 0.5 * normal(20, 6), "V": 0.5 * normal(6, 30)}
    return penalised(lambda p: 0.5 * (p["U"] @ p["V"] - target).square().mean(), 1e-2), start


def deep_linear() -> tuple[Loss, Parameters]:
    """Four linear layers."""
    normal = draw(332)
    X = normal(80, 8)
    Y = X @ normal(8, 8)
    start = layers([8, 8, 8, 8, 8], 332)
    return penalised(lambda p: 0.5 * (forward(p, X, _identity) - Y).square().mean(), 1e-3), start


def recurrent(activation: Activation, units: int, length: int, inputs: int, seed: int) -> tuple[Loss, Parameters]:
    """A recurrent network that tells the sign of a sum, in which the last entry counts twice."""
    normal = draw(seed)
    sequences = normal(50, length, inputs)
    label = torch.sign(sequences.sum((1, 2)) + sequences[:, -1, 0])
    start = {"in": normal(inputs, units) / 2.0, "state": normal(units, units) / 4.0, "out": normal(units) / 3.0}

    def fit(p: Parameters) -> Tensor:
        state = torch.zeros(50, units, dtype=torch.float64)
        for time in range(length):
            state = activation(sequences[:, time] @ p["in"] + state @ p["state"])
        return -F.logsigmoid(label * (state @ p["out"])).mean()

    return penalised(fit, 1e-3), start


def residual(activation: Activation, data: str, seed: int) -> tuple[Loss, Parameters]:
    """Three residual layers of ten units, with logistic loss."""
    X, y = table(data, 150)
    normal = draw(seed)
    start = {"in": normal(X.shape[1], 10) / math.sqrt(X.shape[1]), "out": normal(10) / math.sqrt(10.0)}
    start |= {f"W{index}": normal(10, 10) / math.sqrt(10.0) for index in range(3)}

    def fit(p: Parameters) -> Tensor:
        h = X @ p["in"]
        for index in range(3):
            h = h + activation(h @ p[f"W{index}"])
        return -F.logsigmoid(y * (h @ p["out"])).mean()

    return penalised(fit, 1e-3), start


def exponential(features: int, seed: int) -> tuple[Loss, Parameters]:
    """Waiting times with a mean that is the exponential of a prediction."""
    X, z, noise = conditioned(300, features, 1e2, seed)
    y = torch.exp(0.5 * z) * (0.2 + noise.abs())
    return linear(lambda p: p + y * torch.exp(-p), X, 1e-3)


def _statistical() -> list[Model]:
    """Three sizes of each synthetic model, and models on embedded data."""
    found: list[tuple[str, Callable[[], tuple[Loss, Parameters]], tuple[int, ...]]] = []
    for k, (mild, hard) in enumerate(((30.0, 1e2), (1e2, 1e3), (3e2, 1e4))):
        found += [
            (
                f"poisson {600 + k}",
                partial(poisson, 250, 30 + 10 * k, mild, 600 + k, 600 + k),
                (0, 5, 300) if k else (0, 5),
            ),
            (f"huber {610 + k}", partial(huber, 250, 40 + 10 * k, hard, 610 + k, outlier=4.0, beyond=1.3), (0, 50)),
            (f"student {620 + k}", partial(student, 250, 30 + 10 * k, 620 + k, spread=0.3), (0, 50)),
            (f"least squares {630 + k}", partial(least_squares, 300, 60 + 20 * k, 630 + k), (0, 50)),
            (f"exponential {640 + k}", partial(exponential, 20 + 15 * k, 640 + k), (0, 50)),
        ]
    hinges = {"spambase": (5, 50), "breast-cancer": (5,), "ilpd-indian-liver": (5, 50)}
    found += [(f"hinge {data}", partial(squared_hinge, data), steps) for data, steps in hinges.items()]
    found += [(f"logistic {data}", partial(logistic, data, reg), steps) for data, reg, steps in LOGISTIC]
    return [Model(f"extra {name}", "statistical", make, steps) for name, make, steps in found]


def _enter() -> None:
    """All of the above, under names that begin with "extra"."""
    both = SMOOTH | ROUGH
    found = [Model("extra factorization", "smooth", factorisation, (0, 5))]
    found += [Model("extra deep linear", "smooth", deep_linear, (0, 50))]
    for act, data, hidden, reg, seed, steps in BINARY:
        make = partial(binary, data, hidden, both[act], reg, seed)
        found.append(Model(f"extra {act} {data} {seed}", _group(act), make, steps))
    for act, hidden, reg, seed, steps in DIGITS:
        make = partial(on_digits, hidden, both[act], reg, seed)
        found.append(Model(f"extra {act} digits {seed}", _group(act), make, steps))
    for act, hidden, samples, reg, seed, steps in CURVES:
        make = partial(curve, hidden, both[act], samples, reg, seed)
        found.append(Model(f"extra {act} curve {seed}", _group(act), make, steps))
    for act, units, length, inputs, seed, steps in RECURRENT:
        make = partial(recurrent, both[act], units, length, inputs, seed)
        found.append(Model(f"extra {act} recurrent {seed}", _group(act), make, steps))
    for act, data, seed, steps in RESIDUAL:
        make = partial(residual, both[act], data, seed)
        found.append(Model(f"extra {act} residual {seed}", _group(act), make, steps))
    DEVELOPMENT.update({kind.name: kind for kind in [*found, *_statistical()]})


def _group(activation: str) -> str:
    return "relu" if activation in ROUGH else "smooth"


_enter()
