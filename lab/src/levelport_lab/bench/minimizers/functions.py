"""Test functions as in CUTEst (Gould, Orban and Toint, 2015), from the formulas in the literature.

Most are from Moré, Garbow and Hillstrom (1981), Conn, Gould and Toint (1988) and Averick and others (MINPACK-2, 1992).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from levelport_lab.bench.minimizers.problems import PROBLEMS, Loss, Problem, problem, zeros


def ones(size: int) -> Tensor:
    """A start with equal entries."""
    return torch.ones(size, dtype=torch.float64)


def repeated(pattern: list[float], size: int) -> Tensor:
    """A start that repeats a pattern."""
    return torch.tensor(pattern, dtype=torch.float64).repeat(size // len(pattern))


def whole(first: int, last: int) -> Tensor:
    """The numbers from ``first`` to ``last``."""
    return torch.arange(first, last + 1, dtype=torch.float64)


def function(start: Tensor, registry: dict[str, Problem] = PROBLEMS) -> Callable[[Loss], Loss]:
    """Enter the decorated function of x with its start."""

    def enter(f: Loss) -> Loss:
        problem("function", f.__name__, registry=registry)(lambda: (f, start.clone()))
        return f

    return enter


@function(repeated([-1.2, 1.0], 1000))
def extended_rosenbrock_1000(x: Tensor) -> Tensor:
    a, b = x[0::2], x[1::2]
    return (100.0 * (b - a.square()).square() + (1.0 - a).square()).sum()


@function(repeated([-1.2, 1.0], 100))
def chained_rosenbrock_100(x: Tensor) -> Tensor:
    a, b = x[:-1], x[1:]
    return (100.0 * (b - a.square()).square() + (1.0 - a).square()).sum()


@function(whole(1, 300) / 301.0)
def genrose_300(x: Tensor) -> Tensor:
    a, b = x[:-1], x[1:]
    return 1.0 + (100.0 * (b - a.square()).square() + (b - 1.0).square()).sum()


@function(ones(1000))
def arwhead_1000(x: Tensor) -> Tensor:
    a = x[:-1]
    return ((a.square() + x[-1].square()).square() - 4.0 * a + 3.0).sum()


@function(2.0 * ones(5000))
def engval1_5000(x: Tensor) -> Tensor:
    a, b = x[:-1], x[1:]
    return ((a.square() + b.square()).square() - 4.0 * a + 3.0).sum()


@function(ones(500))
def bdqrtic_500(x: Tensor) -> Tensor:
    a, b, c, d = x[:-4], x[1:-3], x[2:-2], x[3:-1]
    square = a.square() + 2 * b.square() + 3 * c.square() + 4 * d.square() + 5 * x[-1].square()
    return ((-4.0 * a + 3.0).square() + square.square()).sum()


@function(4.0 * ones(1000))
def liarwhd_1000(x: Tensor) -> Tensor:
    return (4.0 * (x.square() - x[0]).square() + (x - 1.0).square()).sum()


@function(1.0 - whole(1, 50) / 50)
def variably_dimensioned_50(x: Tensor) -> Tensor:
    sloped = whole(1, 50) @ (x - 1.0)
    return (x - 1.0).square().sum() + sloped**2 + sloped**4


@function(whole(1, 100))
def penalty_one_100(x: Tensor) -> Tensor:
    return 1e-5 * (x - 1.0).square().sum() + (x.square().sum() - 0.25).square()


KNOTS = whole(1, 100) * (1.0 / 101.0)
"""Where the boundary value problem is discretized."""


@function(KNOTS * (KNOTS - 1.0))
def boundary_value_100(x: Tensor) -> Tensor:
    padded = torch.cat([zeros(1), x, zeros(1)])
    return (2.0 * x - padded[:-2] - padded[2:] + 0.5 * (1.0 / 101.0) ** 2 * (x + KNOTS + 1.0) ** 3).square().sum()


@function(-ones(50))
def chained_rosenbrock_weighted_50(x: Tensor) -> Tensor:
    alphas = 1.0 + 0.5 * torch.sin(whole(1, 49))  # in the manner of CHNROSNB, whose weights are tabulated
    return (16.0 * alphas.square() * (x[:-1] - x[1:].square()).square() + (x[1:] - 1.0).square()).sum()


@function(zeros(200))
def fletchcr_200(x: Tensor) -> Tensor:
    return (100.0 * (x[1:] - x[:-1] + 1.0 - x[:-1].square()).square()).sum() + x[0].square()


@function(ones(1000))
def power_1000(x: Tensor) -> Tensor:
    return (whole(1, 1000) * x.square()).sum().square()


@function(repeated([-4.0, 2.0], 20))
def hilbert_20(x: Tensor) -> Tensor:
    index = whole(1, 20)
    H = 1.0 / (index[:, None] + index[None] - 1.0)
    return x @ (H @ x) + 1e-6 * (x - 1.0).square().sum()


def grid(boundary: Tensor, registry: dict[str, Problem] = PROBLEMS) -> Callable[[Loss], Loss]:
    """Enter the decorated function of a square grid as one of its inside, which starts where ``boundary`` has it."""

    def enter(energy: Loss) -> Loss:
        def f(x: Tensor) -> Tensor:
            u = boundary.clone()
            u[1:-1, 1:-1] = x.view(len(u) - 2, len(u) - 2)
            return energy(u)

        start = boundary[1:-1, 1:-1].reshape(-1)
        problem("function", energy.__name__, registry=registry)(lambda: (f, start.clone()))
        return energy

    return enter


@grid(torch.zeros(42, 42, dtype=torch.float64))
def p_laplacian_1600(u: Tensor) -> Tensor:
    h = 1.0 / 41.0
    right, down = (u[:-1, 1:] - u[:-1, :-1]) / h, (u[1:, :-1] - u[:-1, :-1]) / h
    return h**2 * (((right.square() + down.square() + 1e-4) ** 1.5).sum() / 3.0 - u[1:-1, 1:-1].sum())


SIDE = torch.linspace(-1.0, 1.0, 32, dtype=torch.float64)
"""The side of the phase field."""


@grid(SIDE[:, None] + 0.5 * SIDE[None] ** 3)
def phase_field_900(u: Tensor) -> Tensor:
    right, down = u[:, 1:] - u[:, :-1], u[1:] - u[:-1]
    return 0.5 * (right.square().sum() + down.square().sum()) + 0.02 * (u.square() - 1.0).square().sum()
