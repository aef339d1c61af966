"""Test functions as in CUTEst (Gould, Orban and Toint, 2015), from the formulas in the literature.

Most are from Moré, Garbow and Hillstrom (1981), Conn, Gould and Toint (1988) and Averick and others (MINPACK-2, 1992).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from levelport_lab.bench.minimizers.problems import Loss, problem, zeros


def ones(size: int) -> Tensor:
    """A start with equal entries."""
    return torch.ones(size, dtype=torch.float64)


def repeated(pattern: list[float], size: int) -> Tensor:
    """A start that repeats a pattern."""
    return torch.tensor(pattern, dtype=torch.float64).repeat(size // len(pattern))


def whole(first: int, last: int) -> Tensor:
    """The numbers from ``first`` to ``last``."""
    return torch.arange(first, last + 1, dtype=torch.float64)


def function(start: Tensor) -> Callable[[Loss], Loss]:
    """Enter the decorated function of x with its start."""

    def enter(f: Loss) -> Loss:
        problem("function", f.__name__)(lambda: (f, start.clone()))
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


@function(repeated([3.0, -1.0, 0.0, 1.0], 400))
def extended_powell_400(x: Tensor) -> Tensor:
    a, b, c, d = x[0::4], x[1::4], x[2::4], x[3::4]
    return ((a + 10 * b) ** 2 + 5 * (c - d) ** 2 + (b - 2 * c) ** 4 + 10 * (a - d) ** 4).sum()


@function(repeated([-3.0, -1.0, -3.0, -1.0], 400))
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


@function(2.0 * ones(3000))
def dixmaana_3000(x: Tensor) -> Tensor:
    return dixmaan(x, 1.0, 0.0, 0.125, 0.125, (0, 0, 0, 0))


@function(2.0 * ones(1500))
def dixmaane_1500(x: Tensor) -> Tensor:
    return dixmaan(x, 1.0, 0.0, 0.125, 0.125, (1, 0, 0, 1))


@function(2.0 * ones(600))
def dixmaanj_600(x: Tensor) -> Tensor:
    return dixmaan(x, 1.0, 0.0625, 0.0625, 0.0625, (2, 0, 0, 2))


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


@function(torch.cat([ones(1), 2.0 * ones(499)]))
def cragglvy_500(x: Tensor) -> Tensor:
    a, b, c, d = x[0:-3:2], x[1:-2:2], x[2:-1:2], x[3::2]
    first = (torch.exp(a) - b) ** 4 + 100 * (b - c) ** 6 + torch.tan(c - d) ** 4
    return (first + a**8 + (d - 1) ** 2).sum()


@function(zeros(2000))
def edensch_2000(x: Tensor) -> Tensor:
    a, b = x[:-1], x[1:]
    return 16.0 + ((a - 2) ** 4 + (a * b - 2 * b) ** 2 + (b + 1) ** 2).sum()


@function(repeated([0.5, -2.0], 200))
def freudenstein_roth_200(x: Tensor) -> Tensor:
    a, b = x[:-1], x[1:]
    first = -13.0 + a + ((5.0 - b) * b - 2.0) * b
    second = -29.0 + a + ((b + 1.0) * b - 14.0) * b
    return (first.square() + second.square()).sum()


@function(4.0 * ones(1000))
def liarwhd_1000(x: Tensor) -> Tensor:
    return (4.0 * (x.square() - x[0]).square() + (x - 1.0).square()).sum()


@function(-ones(500))
def nondia_500(x: Tensor) -> Tensor:
    return (x[0] - 1.0).square() + (100.0 * (x[0] - x[:-1].square()).square()).sum()


@function(0.5 * ones(1000))
def schmidt_vetters_1000(x: Tensor) -> Tensor:
    a, b, c = x[:-2], x[1:-1], x[2:]
    first = -1.0 / (1.0 + (a - b).square()) - torch.sin(0.5 * (torch.pi * b + c))
    return (first - torch.exp(-(((a + c) / b - 2.0).square()))).sum()


@function(ones(2000))
def tridia_2000(x: Tensor) -> Tensor:
    return (x[0] - 1.0).square() + (whole(2, 2000) * (2.0 * x[1:] - x[:-1]).square()).sum()


@function(1.0 - whole(1, 50) / 50)
def variably_dimensioned_50(x: Tensor) -> Tensor:
    sloped = whole(1, 50) @ (x - 1.0)
    return (x - 1.0).square().sum() + sloped**2 + sloped**4


@function(whole(1, 100))
def penalty_one_100(x: Tensor) -> Tensor:
    return 1e-5 * (x - 1.0).square().sum() + (x.square().sum() - 0.25).square()


@function(0.5 * ones(50))
def brown_almost_linear_50(x: Tensor) -> Tensor:
    return (x[:-1] + x.sum() - 51.0).square().sum() + (torch.prod(x) - 1.0).square()


@function(-ones(500))
def broyden_tridiagonal_500(x: Tensor) -> Tensor:
    padded = torch.cat([zeros(1), x, zeros(1)])
    return ((3.0 - 2.0 * x) * x - padded[:-2] - 2.0 * padded[2:] + 1.0).square().sum()


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


@function(torch.cat([ones(10), torch.eye(10, dtype=torch.float64).reshape(-1) + 0.01 * whole(1, 100).sin()]))
def eigenvalues_110(x: Tensor) -> Tensor:
    D, Q = x[:10], x[10:].view(10, 10)
    eye = torch.eye(10, dtype=x.dtype)
    return ((Q.T * D) @ Q - torch.diag(whole(1, 10))).square().sum() + (Q.T @ Q - eye).square().sum()


@function(ones(1000))
def power_1000(x: Tensor) -> Tensor:
    return (whole(1, 1000) * x.square()).sum().square()


@function(repeated([-4.0, 2.0], 20))
def hilbert_20(x: Tensor) -> Tensor:
    index = whole(1, 20)
    H = 1.0 / (index[:, None] + index[None] - 1.0)
    return x @ (H @ x) + 1e-6 * (x - 1.0).square().sum()


def grid(boundary: Tensor) -> Callable[[Loss], Loss]:
    """Enter the decorated function of a square grid as one of its inside, which starts where ``boundary`` has it."""

    def enter(energy: Loss) -> Loss:
        def f(x: Tensor) -> Tensor:
            u = boundary.clone()
            u[1:-1, 1:-1] = x.view(len(u) - 2, len(u) - 2)
            return energy(u)

        problem("function", energy.__name__)(lambda: (f, boundary[1:-1, 1:-1].reshape(-1).clone()))
        return energy

    return enter


def wire(knots: int) -> Tensor:
    """The frame of the minimal surface."""
    t = torch.linspace(0.0, 1.0, knots, dtype=torch.float64)
    boundary = torch.zeros(knots, knots, dtype=torch.float64)
    boundary[0], boundary[-1] = torch.sin(torch.pi * t), -torch.sin(torch.pi * t)
    boundary[:, 0], boundary[:, -1] = t * (1.0 - t), torch.sin(2.0 * torch.pi * t)
    return boundary


@grid(wire(72))
def minimal_surface_4900(u: Tensor) -> Tensor:
    right, down = 71.0 * (u[:-1, 1:] - u[:-1, :-1]), 71.0 * (u[1:, :-1] - u[:-1, :-1])
    back, up = 71.0 * (u[1:, 1:] - u[1:, :-1]), 71.0 * (u[1:, 1:] - u[:-1, 1:])
    halves = torch.sqrt(1.0 + right.square() + down.square()) + torch.sqrt(1.0 + back.square() + up.square())
    return 0.5 * halves.sum() / 71.0**2


@grid(torch.zeros(32, 32, dtype=torch.float64))
def exponential_diffusion_900(u: Tensor) -> Tensor:
    right, down = u[:, 1:] - u[:, :-1], u[1:] - u[:-1]
    h = 1.0 / 31.0
    return 0.5 * (right.square().sum() + down.square().sum()) + 5.0 * h**2 * (torch.exp(u) - 3.0 * u).sum()


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
