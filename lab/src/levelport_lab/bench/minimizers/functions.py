"""Test functions as in CUTEst (Gould, Orban and Toint, 2015), from the formulas in the literature.

Most are from Moré, Garbow and Hillstrom (1981), Conn, Gould and Toint (1988) and Averick and others (MINPACK-2, 1992).
"""

from __future__ import annotations

import torch
from torch import Tensor

from levelport_lab.bench.minimizers.problems import Loss, Made, problem, zeros


def ones(size: int) -> Tensor:
    """A start with equal entries."""
    return torch.ones(size, dtype=torch.float64)


def repeated(pattern: list[float], size: int) -> Tensor:
    """A start that repeats a pattern."""
    return torch.tensor(pattern, dtype=torch.float64).repeat(size // len(pattern))


def whole(first: int, last: int) -> Tensor:
    """The numbers from ``first`` to ``last``."""
    return torch.arange(first, last + 1, dtype=torch.float64)


@problem("function")
def extended_rosenbrock_1000() -> Made:
    def f(x: Tensor) -> Tensor:
        a, b = x[0::2], x[1::2]
        return (100.0 * (b - a.square()).square() + (1.0 - a).square()).sum()

    return f, repeated([-1.2, 1.0], 1000)


@problem("function")
def chained_rosenbrock_100() -> Made:
    def f(x: Tensor) -> Tensor:
        a, b = x[:-1], x[1:]
        return (100.0 * (b - a.square()).square() + (1.0 - a).square()).sum()

    return f, repeated([-1.2, 1.0], 100)


@problem("function")
def genrose_300() -> Made:
    def f(x: Tensor) -> Tensor:
        a, b = x[:-1], x[1:]
        return 1.0 + (100.0 * (b - a.square()).square() + (b - 1.0).square()).sum()

    return f, whole(1, 300) / 301.0


@problem("function")
def extended_powell_400() -> Made:
    def f(x: Tensor) -> Tensor:
        a, b, c, d = x[0::4], x[1::4], x[2::4], x[3::4]
        return ((a + 10 * b) ** 2 + 5 * (c - d) ** 2 + (b - 2 * c) ** 4 + 10 * (a - d) ** 4).sum()

    return f, repeated([3.0, -1.0, 0.0, 1.0], 400)


@problem("function")
def woods_400() -> Made:
    def f(x: Tensor) -> Tensor:
        a, b, c, d = x[0::4], x[1::4], x[2::4], x[3::4]
        first = 100 * (b - a**2) ** 2 + (1 - a) ** 2 + 90 * (d - c**2) ** 2 + (1 - c) ** 2
        return (first + 10 * (b + d - 2) ** 2 + 0.1 * (b - d) ** 2).sum()

    return f, repeated([-3.0, -1.0, -3.0, -1.0], 400)


def _dixmaan(size: int, alpha: float, beta: float, gamma: float, delta: float, powers: tuple[int, ...]) -> Made:
    m = size // 3
    scale = whole(1, size) / size
    p, q, r, s = (scale**k for k in powers)

    def f(x: Tensor) -> Tensor:
        first = (alpha * p * x.square()).sum()
        second = (beta * q[:-1] * x[:-1].square() * (x[1:] + x[1:].square()).square()).sum()
        third = (gamma * r[: 2 * m] * x[: 2 * m].square() * x[m : 3 * m] ** 4).sum()
        return 1.0 + first + second + third + (delta * s[:m] * x[:m] * x[2 * m : 3 * m]).sum()

    return f, 2.0 * ones(size)


@problem("function")
def dixmaana_3000() -> Made:
    return _dixmaan(3000, 1.0, 0.0, 0.125, 0.125, (0, 0, 0, 0))


@problem("function")
def dixmaane_1500() -> Made:
    return _dixmaan(1500, 1.0, 0.0, 0.125, 0.125, (1, 0, 0, 1))


@problem("function")
def dixmaanj_600() -> Made:
    return _dixmaan(600, 1.0, 0.0625, 0.0625, 0.0625, (2, 0, 0, 2))


@problem("function")
def arwhead_1000() -> Made:
    def f(x: Tensor) -> Tensor:
        a = x[:-1]
        return ((a.square() + x[-1].square()).square() - 4.0 * a + 3.0).sum()

    return f, ones(1000)


@problem("function")
def engval1_5000() -> Made:
    def f(x: Tensor) -> Tensor:
        a, b = x[:-1], x[1:]
        return ((a.square() + b.square()).square() - 4.0 * a + 3.0).sum()

    return f, 2.0 * ones(5000)


@problem("function")
def bdqrtic_500() -> Made:
    def f(x: Tensor) -> Tensor:
        a, b, c, d = x[:-4], x[1:-3], x[2:-2], x[3:-1]
        square = a.square() + 2 * b.square() + 3 * c.square() + 4 * d.square() + 5 * x[-1].square()
        return ((-4.0 * a + 3.0).square() + square.square()).sum()

    return f, ones(500)


@problem("function")
def cragglvy_500() -> Made:
    def f(x: Tensor) -> Tensor:
        a, b, c, d = x[0:-3:2], x[1:-2:2], x[2:-1:2], x[3::2]
        first = (torch.exp(a) - b) ** 4 + 100 * (b - c) ** 6 + torch.tan(c - d) ** 4
        return (first + a**8 + (d - 1) ** 2).sum()

    start = 2.0 * ones(500)
    start[0] = 1.0
    return f, start


@problem("function")
def edensch_2000() -> Made:
    def f(x: Tensor) -> Tensor:
        a, b = x[:-1], x[1:]
        return 16.0 + ((a - 2) ** 4 + (a * b - 2 * b) ** 2 + (b + 1) ** 2).sum()

    return f, zeros(2000)


@problem("function")
def freudenstein_roth_200() -> Made:
    def f(x: Tensor) -> Tensor:
        a, b = x[:-1], x[1:]
        first = -13.0 + a + ((5.0 - b) * b - 2.0) * b
        second = -29.0 + a + ((b + 1.0) * b - 14.0) * b
        return (first.square() + second.square()).sum()

    return f, repeated([0.5, -2.0], 200)


@problem("function")
def liarwhd_1000() -> Made:
    return lambda x: (4.0 * (x.square() - x[0]).square() + (x - 1.0).square()).sum(), 4.0 * ones(1000)


@problem("function")
def nondia_500() -> Made:
    def f(x: Tensor) -> Tensor:
        return (x[0] - 1.0).square() + (100.0 * (x[0] - x[:-1].square()).square()).sum()

    return f, -ones(500)


@problem("function")
def schmidt_vetters_1000() -> Made:
    def f(x: Tensor) -> Tensor:
        a, b, c = x[:-2], x[1:-1], x[2:]
        first = -1.0 / (1.0 + (a - b).square()) - torch.sin(0.5 * (torch.pi * b + c))
        return (first - torch.exp(-(((a + c) / b - 2.0).square()))).sum()

    return f, 0.5 * ones(1000)


@problem("function")
def tridia_2000() -> Made:
    def f(x: Tensor) -> Tensor:
        return (x[0] - 1.0).square() + (whole(2, 2000) * (2.0 * x[1:] - x[:-1]).square()).sum()

    return f, ones(2000)


@problem("function")
def variably_dimensioned_50() -> Made:
    weights = whole(1, 50)

    def f(x: Tensor) -> Tensor:
        sloped = weights @ (x - 1.0)
        return (x - 1.0).square().sum() + sloped**2 + sloped**4

    return f, 1.0 - weights / 50


@problem("function")
def penalty_one_100() -> Made:
    return lambda x: 1e-5 * (x - 1.0).square().sum() + (x.square().sum() - 0.25).square(), whole(1, 100)


@problem("function")
def brown_almost_linear_50() -> Made:
    def f(x: Tensor) -> Tensor:
        return (x[:-1] + x.sum() - 51.0).square().sum() + (torch.prod(x) - 1.0).square()

    return f, 0.5 * ones(50)


@problem("function")
def broyden_tridiagonal_500() -> Made:
    def f(x: Tensor) -> Tensor:
        padded = torch.cat([zeros(1), x, zeros(1)])
        return ((3.0 - 2.0 * x) * x - padded[:-2] - 2.0 * padded[2:] + 1.0).square().sum()

    return f, -ones(500)


@problem("function")
def boundary_value_100() -> Made:
    h = 1.0 / 101.0
    t = whole(1, 100) * h

    def f(x: Tensor) -> Tensor:
        padded = torch.cat([zeros(1), x, zeros(1)])
        return (2.0 * x - padded[:-2] - padded[2:] + 0.5 * h**2 * (x + t + 1.0) ** 3).square().sum()

    return f, t * (t - 1.0)


@problem("function")
def chained_rosenbrock_weighted_50() -> Made:
    alphas = 1.0 + 0.5 * torch.sin(whole(1, 49))  # in the manner of CHNROSNB, whose weights are tabulated

    def f(x: Tensor) -> Tensor:
        return (16.0 * alphas.square() * (x[:-1] - x[1:].square()).square() + (x[1:] - 1.0).square()).sum()

    return f, -ones(50)


@problem("function")
def fletchcr_200() -> Made:
    return lambda x: (100.0 * (x[1:] - x[:-1] + 1.0 - x[:-1].square()).square()).sum() + x[0].square(), zeros(200)


@problem("function")
def eigenvalues_110() -> Made:
    A = torch.diag(whole(1, 10))

    def f(x: Tensor) -> Tensor:
        D, Q = x[:10], x[10:].view(10, 10)
        eye = torch.eye(10, dtype=x.dtype)
        return ((Q.T * D) @ Q - A).square().sum() + (Q.T @ Q - eye).square().sum()

    return f, torch.cat([ones(10), torch.eye(10, dtype=torch.float64).reshape(-1) + 0.01 * whole(1, 100).sin()])


@problem("function")
def power_1000() -> Made:
    return lambda x: (whole(1, 1000) * x.square()).sum().square(), ones(1000)


@problem("function")
def hilbert_20() -> Made:
    index = whole(1, 20)
    H = 1.0 / (index[:, None] + index[None] - 1.0)
    return lambda x: x @ (H @ x) + 1e-6 * (x - 1.0).square().sum(), repeated([-4.0, 2.0], 20)


def _grid(side: int, boundary: Tensor, energy: Loss) -> Made:
    """A function of the inside of a square grid whose boundary is given."""

    def f(x: Tensor) -> Tensor:
        u = boundary.clone()
        u[1:-1, 1:-1] = x.view(side, side)
        return energy(u)

    return f, boundary[1:-1, 1:-1].reshape(-1).clone()


@problem("function")
def minimal_surface_4900() -> Made:
    t = torch.linspace(0.0, 1.0, 72, dtype=torch.float64)
    boundary = torch.zeros(72, 72, dtype=torch.float64)
    boundary[0], boundary[-1] = torch.sin(torch.pi * t), -torch.sin(torch.pi * t)
    boundary[:, 0], boundary[:, -1] = t * (1.0 - t), torch.sin(2.0 * torch.pi * t)

    def area(u: Tensor) -> Tensor:
        right, down = 71.0 * (u[:-1, 1:] - u[:-1, :-1]), 71.0 * (u[1:, :-1] - u[:-1, :-1])
        back, up = 71.0 * (u[1:, 1:] - u[1:, :-1]), 71.0 * (u[1:, 1:] - u[:-1, 1:])
        halves = torch.sqrt(1.0 + right.square() + down.square()) + torch.sqrt(1.0 + back.square() + up.square())
        return 0.5 * halves.sum() / 71.0**2

    return _grid(70, boundary, area)


@problem("function")
def exponential_diffusion_900() -> Made:
    h = 1.0 / 31.0

    def energy(u: Tensor) -> Tensor:
        right, down = u[:, 1:] - u[:, :-1], u[1:] - u[:-1]
        return 0.5 * (right.square().sum() + down.square().sum()) + 5.0 * h**2 * (torch.exp(u) - 3.0 * u).sum()

    return _grid(30, torch.zeros(32, 32, dtype=torch.float64), energy)


@problem("function")
def p_laplacian_1600() -> Made:
    h = 1.0 / 41.0

    def energy(u: Tensor) -> Tensor:
        right, down = (u[:-1, 1:] - u[:-1, :-1]) / h, (u[1:, :-1] - u[:-1, :-1]) / h
        return h**2 * (((right.square() + down.square() + 1e-4) ** 1.5).sum() / 3.0 - u[1:-1, 1:-1].sum())

    return _grid(40, torch.zeros(42, 42, dtype=torch.float64), energy)


@problem("function")
def phase_field_900() -> Made:
    t = torch.linspace(-1.0, 1.0, 32, dtype=torch.float64)

    def energy(u: Tensor) -> Tensor:
        right, down = u[:, 1:] - u[:, :-1], u[1:] - u[:-1]
        return 0.5 * (right.square().sum() + down.square().sum()) + 0.02 * (u.square() - 1.0).square().sum()

    return _grid(30, (t[:, None] + 0.5 * t[None] ** 3).clone(), energy)
