"""More networks to develop solvers on, beside the development half of the zoo.

Paths on networks are chaotic: a change of the ascent moves single problems by ten percent and more either way. On the
32 networks in float64 of the development half such noise twice passed for progress, which the reported half did not
confirm. These are of the zoo's kinds with other data, sizes, seeds and activations. They enter the zoo where this
module is imported, which ``scripts/solver_ablations.py`` does and the race does not.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from levelport.lab.bench.zoo import SPECIES, Loss, Parameters, Species, draw
from levelport.lab.bench.zoo_networks import Activation, binary, forward, layers, on_digits, penalised, waves


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
)

CURVES: tuple[tuple[str, tuple[int, ...], int, float, int, tuple[int, ...]], ...] = (
    ("tanh", (12,), 40, 1e-4, 320, (5,)),
    ("softplus", (20, 20), 50, 1e-4, 321, (0,)),
    ("silu", (10, 10, 10), 60, 1e-3, 322, (50,)),
    ("relu", (20, 20), 60, 1e-4, 430, (0, 50)),
)
"""Activation, hidden layers, samples, penalty, seed, steps."""


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


def _enter() -> None:
    """All of the above, under names that begin with "practice"."""
    both = SMOOTH | ROUGH
    found = [Species("practice factorisation", "smooth", factorisation, (0, 5), practice=True)]
    found += [Species("practice deep linear", "smooth", deep_linear, (0, 50), practice=True)]
    for act, data, hidden, reg, seed, steps in BINARY:
        make = partial(binary, data, hidden, both[act], reg, seed)
        found.append(Species(f"practice {act} {data} {seed}", _group(act), make, steps, practice=True))
    for act, hidden, reg, seed, steps in DIGITS:
        make = partial(on_digits, hidden, both[act], reg, seed)
        found.append(Species(f"practice {act} digits {seed}", _group(act), make, steps, practice=True))
    for act, hidden, samples, reg, seed, steps in CURVES:
        make = partial(curve, hidden, both[act], samples, reg, seed)
        found.append(Species(f"practice {act} curve {seed}", _group(act), make, steps, practice=True))
    SPECIES.update({kind.name: kind for kind in found})


def _group(activation: str) -> str:
    return "relu" if activation in ROUGH else "smooth"


_enter()
