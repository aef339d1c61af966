"""The half of the minimizers' problems on which ``minimize`` is developed, f* of both halves, and a comparison on it.

    python tools/development_minimizers.py [ARM ...]     cost to 1e-10 of each arm, by default levelport and L-BFGS-B
    python tools/development_minimizers.py --optima      computes f* again: here and in the laboratory

The problems are of the same kinds as the reported ones (:mod:`levelport_lab.bench.minimizers.problems`); the first byte
of the SHA-256 of a name decides where a problem belongs, an even one here.
"""

from __future__ import annotations

import contextlib
import csv
import math
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from levelport.objectives import FunctionObjective
from levelport_lab.bench.competitors import LBFGSB, scipy_run
from levelport_lab.bench.instances import Instance
from levelport_lab.bench.metered import Enough, Metered
from levelport_lab.bench.minimizers import optima
from levelport_lab.bench.minimizers.arms import LBFGS_10, LBFGS_200, OURS
from levelport_lab.bench.minimizers.functions import function, grid, ones, repeated, whole
from levelport_lab.bench.minimizers.networks import classification, forward, regression, weights
from levelport_lab.bench.minimizers.problems import PROBLEMS, Made, Problem, draws, problem, zeros
from levelport_lab.bench.minimizers.statistical import correlated, linear_model, uniform
from levelport_lab.bench.minimizers.study import measured
from levelport_lab.problems.datasets import load_data

Activation = Callable[[Tensor], Tensor]

DEVELOPMENT: dict[str, Problem] = {}
"""The problems by name."""
FILE = Path(__file__).with_name("development_optima.csv")
BUDGET = 20_000.0
"""Gradient equivalents of each run that looks for f*."""

_problem = partial(problem, registry=DEVELOPMENT)
_function = partial(function, registry=DEVELOPMENT)
_grid = partial(grid, registry=DEVELOPMENT)


@_function(repeated([3.0, -1.0, 0.0, 1.0], 400))
def extended_powell_400(x: Tensor) -> Tensor:
    a, b, c, d = x[0::4], x[1::4], x[2::4], x[3::4]
    return ((a + 10 * b) ** 2 + 5 * (c - d) ** 2 + (b - 2 * c) ** 4 + 10 * (a - d) ** 4).sum()


@_function(repeated([-3.0, -1.0, -3.0, -1.0], 400))
def woods_400(x: Tensor) -> Tensor:
    a, b, c, d = x[0::4], x[1::4], x[2::4], x[3::4]
    first = 100 * (b - a**2) ** 2 + (1 - a) ** 2 + 90 * (d - c**2) ** 2 + (1 - c) ** 2
    return (first + 10 * (b + d - 2) ** 2 + 0.1 * (b - d) ** 2).sum()


def dixmaan(x: Tensor, alpha: float, beta: float, gamma: float, delta: float, powers: tuple[int, ...]) -> Tensor:
    """The family of Dixon and Maany."""
    m = len(x) // 3
    scale = whole(1, len(x)) / len(x)
    p, q, r, s = (scale**k for k in powers)
    first = (alpha * p * x.square()).sum()
    second = (beta * q[:-1] * x[:-1].square() * (x[1:] + x[1:].square()).square()).sum()
    third = (gamma * r[: 2 * m] * x[: 2 * m].square() * x[m : 3 * m] ** 4).sum()
    return 1.0 + first + second + third + (delta * s[:m] * x[:m] * x[2 * m : 3 * m]).sum()


@_function(2.0 * ones(3000))
def dixmaana_3000(x: Tensor) -> Tensor:
    return dixmaan(x, 1.0, 0.0, 0.125, 0.125, (0, 0, 0, 0))


@_function(2.0 * ones(1500))
def dixmaane_1500(x: Tensor) -> Tensor:
    return dixmaan(x, 1.0, 0.0, 0.125, 0.125, (1, 0, 0, 1))


@_function(2.0 * ones(600))
def dixmaanj_600(x: Tensor) -> Tensor:
    return dixmaan(x, 1.0, 0.0625, 0.0625, 0.0625, (2, 0, 0, 2))


@_function(torch.cat([ones(1), 2.0 * ones(499)]))
def cragglvy_500(x: Tensor) -> Tensor:
    a, b, c, d = x[0:-3:2], x[1:-2:2], x[2:-1:2], x[3::2]
    first = (torch.exp(a) - b) ** 4 + 100 * (b - c) ** 6 + torch.tan(c - d) ** 4
    return (first + a**8 + (d - 1) ** 2).sum()


@_function(zeros(2000))
def edensch_2000(x: Tensor) -> Tensor:
    a, b = x[:-1], x[1:]
    return 16.0 + ((a - 2) ** 4 + (a * b - 2 * b) ** 2 + (b + 1) ** 2).sum()


@_function(repeated([0.5, -2.0], 200))
def freudenstein_roth_200(x: Tensor) -> Tensor:
    a, b = x[:-1], x[1:]
    first = -13.0 + a + ((5.0 - b) * b - 2.0) * b
    second = -29.0 + a + ((b + 1.0) * b - 14.0) * b
    return (first.square() + second.square()).sum()


@_function(-ones(500))
def nondia_500(x: Tensor) -> Tensor:
    return (x[0] - 1.0).square() + (100.0 * (x[0] - x[:-1].square()).square()).sum()


@_function(0.5 * ones(1000))
def schmidt_vetters_1000(x: Tensor) -> Tensor:
    a, b, c = x[:-2], x[1:-1], x[2:]
    first = -1.0 / (1.0 + (a - b).square()) - torch.sin(0.5 * (torch.pi * b + c))
    return (first - torch.exp(-(((a + c) / b - 2.0).square()))).sum()


@_function(ones(2000))
def tridia_2000(x: Tensor) -> Tensor:
    return (x[0] - 1.0).square() + (whole(2, 2000) * (2.0 * x[1:] - x[:-1]).square()).sum()


@_function(0.5 * ones(50))
def brown_almost_linear_50(x: Tensor) -> Tensor:
    return (x[:-1] + x.sum() - 51.0).square().sum() + (torch.prod(x) - 1.0).square()


@_function(-ones(500))
def broyden_tridiagonal_500(x: Tensor) -> Tensor:
    padded = torch.cat([zeros(1), x, zeros(1)])
    return ((3.0 - 2.0 * x) * x - padded[:-2] - 2.0 * padded[2:] + 1.0).square().sum()


@_function(torch.cat([ones(10), torch.eye(10, dtype=torch.float64).reshape(-1) + 0.01 * whole(1, 100).sin()]))
def eigenvalues_110(x: Tensor) -> Tensor:
    D, Q = x[:10], x[10:].view(10, 10)
    eye = torch.eye(10, dtype=x.dtype)
    return ((Q.T * D) @ Q - torch.diag(whole(1, 10))).square().sum() + (Q.T @ Q - eye).square().sum()


def wire(knots: int) -> Tensor:
    """The frame of the minimal surface."""
    t = torch.linspace(0.0, 1.0, knots, dtype=torch.float64)
    boundary = torch.zeros(knots, knots, dtype=torch.float64)
    boundary[0], boundary[-1] = torch.sin(torch.pi * t), -torch.sin(torch.pi * t)
    boundary[:, 0], boundary[:, -1] = t * (1.0 - t), torch.sin(2.0 * torch.pi * t)
    return boundary


@_grid(wire(72))
def minimal_surface_4900(u: Tensor) -> Tensor:
    right, down = 71.0 * (u[:-1, 1:] - u[:-1, :-1]), 71.0 * (u[1:, :-1] - u[:-1, :-1])
    back, up = 71.0 * (u[1:, 1:] - u[1:, :-1]), 71.0 * (u[1:, 1:] - u[:-1, 1:])
    halves = torch.sqrt(1.0 + right.square() + down.square()) + torch.sqrt(1.0 + back.square() + up.square())
    return 0.5 * halves.sum() / 71.0**2


@_grid(torch.zeros(32, 32, dtype=torch.float64))
def exponential_diffusion_900(u: Tensor) -> Tensor:
    right, down = u[:, 1:] - u[:, :-1], u[1:] - u[:-1]
    h = 1.0 / 31.0
    return 0.5 * (right.square().sum() + down.square().sum()) + 5.0 * h**2 * (torch.exp(u) - 3.0 * u).sum()


@_problem("statistical")
def logistic_correlated_200() -> Made:
    X, z, _ = correlated(2000, 200, 2.5, 1)
    y = torch.where(uniform(2000, 1) < torch.sigmoid(2.0 * z), 1.0, -1.0).double()
    return linear_model(X, 1e-7, lambda p: -F.logsigmoid(y * p))


@_problem("statistical")
def logistic_unscaled_30() -> Made:
    normal = draws(3)
    X = normal(3000, 30) * torch.logspace(-2.0, 3.0, 30, dtype=torch.float64)
    z = (X / X.std(0)) @ normal(30)
    y = torch.where(uniform(3000, 3) < torch.sigmoid(z), 1.0, -1.0).double()
    return linear_model(X, 1e-8, lambda p: -F.logsigmoid(y * p))


@_problem("statistical")
def poisson_100() -> Made:
    X, z, _ = correlated(1500, 100, 2.0, 4)
    counts = torch.poisson(torch.exp(0.5 * z), generator=torch.Generator().manual_seed(4))
    return linear_model(X, 1e-7, lambda p: torch.exp(p) - counts * p)


@_problem("statistical")
def gamma_regression_80() -> Made:
    X, z, _ = correlated(1200, 80, 2.0, 8)
    y = torch.exp(z) * -torch.log(uniform(1200, 8))
    return linear_model(X, 1e-7, lambda p: p + y * torch.exp(-p))


@_problem("statistical")
def quantile_smoothed_100() -> Made:
    X, z, noise = correlated(1500, 100, 1.5, 9)
    y = z + noise
    return linear_model(X, 1e-6, lambda p: 0.9 * (y - p) + 0.1 * F.softplus((p - y) / 0.1))


@_problem("statistical")
def gaussian_process_12() -> Made:
    normal = draws(14)
    X = normal(120, 10)
    y = torch.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 0.1 * normal(120)

    def loss(w: Tensor) -> Tensor:
        scaled = X * torch.exp(w[:10])
        squares = scaled.square().sum(1)
        distance = squares[:, None] + squares[None] - 2.0 * scaled @ scaled.T
        K = torch.exp(w[10] - 0.5 * distance) + torch.exp(w[11]) * torch.eye(120, dtype=torch.float64)
        L = torch.linalg.cholesky(K)
        half = torch.linalg.solve_triangular(L, y[:, None], upper=False)
        return (0.5 * half.square().sum() + L.diagonal().log().sum()) / 120 + 1e-3 * w.square().sum()

    start = zeros(12)
    start[:10], start[11] = -1.0, -2.0
    return loss, start


@_problem("statistical")
def item_response_260() -> Made:
    normal = draws(19)
    ability, slope, hard = normal(200), torch.exp(0.3 * normal(30)), normal(30)
    right = uniform(6000, 19).view(200, 30) < torch.sigmoid(slope[None] * (ability[:, None] - hard[None]))
    y = 2.0 * right.double() - 1.0

    def loss(w: Tensor) -> Tensor:
        theta, a, b = w[:200], torch.exp(w[200:230]), w[230:]
        return -F.logsigmoid(y * (a[None] * (theta[:, None] - b[None]))).sum() + 0.5 * w.square().sum()

    return loss, zeros(260)


@_problem("statistical")
def independent_components_64() -> Made:
    normal = draws(21)
    sources = torch.sign(normal(1000, 8)) * normal(1000, 8).square()
    X = sources @ normal(8, 8)

    def loss(w: Tensor) -> Tensor:
        W = w.view(8, 8)
        Y = X @ W.T
        return torch.logaddexp(Y, -Y).sum(1).mean() - torch.linalg.slogdet(W)[1]

    return loss, torch.eye(8, dtype=torch.float64).reshape(-1)


REGRESSIONS: dict[str, tuple[list[int], Activation, int, int]] = {
    "tanh regression deep": ([5, 20, 20, 20, 1], torch.tanh, 1, 500),
    "softplus regression wide": ([10, 200, 1], F.softplus, 2, 500),
    "gelu regression many outputs": ([8, 40, 40, 5], F.gelu, 3, 500),
    "sigmoid regression": ([4, 50, 50, 1], torch.sigmoid, 4, 500),
    "tanh regression small": ([2, 30, 1], torch.tanh, 18, 300),
}
CLASSIFICATIONS: dict[str, tuple[str, list[int], Activation, int, int]] = {
    "softplus ionosphere": ("ionosphere", [50, 20], F.softplus, 6, 600),
    "silu pima": ("pima", [40, 40], F.silu, 7, 600),
    "tanh credit": ("credit-approval", [60], torch.tanh, 8, 600),
    "tanh spambase": ("spambase", [40], torch.tanh, 15, 1000),
    "gelu musk": ("musk-1", [25], F.gelu, 19, 600),
}
for name, fitted in REGRESSIONS.items():
    _problem("network", name)(partial(regression, *fitted))
for name, labelled in CLASSIFICATIONS.items():
    _problem("network", name)(partial(classification, *labelled))


@_problem("network")
def softmax_digits_tanh() -> Made:
    table = load_data("digits")
    X, y = torch.tensor(table.X[:600]).double(), torch.tensor(table.y[:600]).long()
    start, read = weights([X.shape[1], 30, 10], 9)
    return lambda w: F.cross_entropy(forward(read(w), X, torch.tanh), y) + 1e-5 * w.square().sum(), start


@_problem("network")
def autoencoder_digits() -> Made:
    X = torch.tensor(load_data("digits").X[:400]).double()
    X = X / X.abs().max()
    start, read = weights([X.shape[1], 25, 6, 25, X.shape[1]], 10)
    return lambda w: F.mse_loss(forward(read(w), X, torch.tanh), X) + 1e-6 * w.square().sum(), start


def lowest(problem: Problem) -> float:
    """f*: the lowest value that L-BFGS-B sees, or trust-ncg and Newton-CG with exact products from its end."""
    loss, x0 = problem.make()
    inner, best = FunctionObjective(loss, like=x0), math.inf
    stages = (("L-BFGS-B", LBFGSB | {"maxcor": 200}), ("trust-ncg", {"gtol": 1e-14}), ("Newton-CG", {"xtol": 1e-15}))
    for method, options in stages:
        metered = Metered(inner, max_cost=BUDGET)
        with contextlib.suppress(Enough):
            x0 = torch.tensor(scipy_run(metered, x0, method, options).x)
        best = min([best, *(value for _, value, _ in metered.records if math.isfinite(value))])
    return best


def write_optima(path: Path, problems: dict[str, Problem]) -> None:
    """Write f* of all problems but networks, which have none."""
    with path.open("w", newline="") as lines:
        writer = csv.writer(lines)
        writer.writerow(("problem", "f_star"))
        writer.writerows((one.name, repr(lowest(one))) for one in problems.values() if one.group != "network")


def compare(arms: list[str]) -> None:
    """Print the cost to 1e-10 of each arm, or the loss of a network after 1000 gradient equivalents."""
    with FILE.open() as lines:
        known = {row["problem"]: float(row["f_star"]) for row in csv.DictReader(lines)}
    for one in DEVELOPMENT.values():
        loss, x0 = one.make()
        instance = Instance(FunctionObjective(loss, like=x0), x0, known.get(one.name, math.nan))
        column = "cost_1e-10" if one.name in known else "loss_1000"
        found = (f"{arm} {measured(instance, arm)[column]:.4g}" for arm in arms)
        print(f"{one.name}, {column}: {', '.join(found)}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--optima"]:
        write_optima(FILE, DEVELOPMENT)
        write_optima(optima.FILE, PROBLEMS)
    else:
        compare(sys.argv[1:] or [OURS, LBFGS_10, LBFGS_200])
