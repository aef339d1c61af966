"""Physics-informed networks in full batch: three equations in one variable, each with its conditions, by seed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from levelport_lab.bench.minimizers.networks import weights, with_derivatives
from levelport_lab.bench.minimizers.problems import Made

Residual = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

EQUATIONS: dict[str, tuple[float, Residual]] = {
    "oscillator": (2.0, lambda t, u, du, ddu: (ddu + 25.0 * u) / 10.0),  # u = cos 5t
    "van der Pol": (4.0, lambda t, u, du, ddu: ddu - (1.0 - u.square()) * du + u),
    "forced": (1.0, lambda t, u, du, ddu: (ddu + u.pow(3) - (6.0 * t).sin() * 20.0) / 10.0),
}
"""The end of the interval [0, T] and the residual; u(0) = 1, u'(0) = 0."""


def pinn(equation: str, seed: int) -> Made:
    """The mean squared residual at 100 points and the conditions, of a tanh network 1-20-20-1."""
    end, residual = EQUATIONS[equation]
    start, read = weights([1, 20, 20, 1], seed)
    t = torch.linspace(0.0, end, 100, dtype=torch.float64)[:, None]

    def loss(w: Tensor) -> Tensor:
        u, du, ddu = with_derivatives(read(w), t)
        conditions = (u[0] - 1.0).square().sum() + du[0].square().sum()
        return residual(t, u, du, ddu).square().mean() + conditions

    return loss, start
