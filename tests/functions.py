"""Test functions of the plane with known minimizers, and convex quadratics with known teleports."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from levelport import FunctionObjective
from levelport.objective import Objective, Point


def booth(w: Tensor) -> Tensor:
    """A convex quadratic with Hessian eigenvalues 2 and 18 and minimum 0 at (1, 3)."""
    x, y = w
    return (x + 2 * y - 7) ** 2 + (2 * x + y - 5) ** 2


def goldstein_price(w: Tensor) -> Tensor:
    """Non-convex, minimum 3 at (0, -1), values up to 10⁶ in [-2, 2]²."""
    x, y = w
    first = 1 + (x + y + 1) ** 2 * (19 - 14 * x + 3 * x**2 - 14 * y + 6 * x * y + 3 * y**2)
    second = 30 + (2 * x - 3 * y) ** 2 * (18 - 32 * x + 12 * x**2 + 48 * y - 36 * x * y + 27 * y**2)
    return first * second


def rosenbrock(w: Tensor) -> Tensor:
    """A curved valley with minimum 0 at (1, …, 1)."""
    return (100 * (w[1:] - w[:-1] ** 2) ** 2 + (1 - w[:-1]) ** 2).sum()


def himmelblau(w: Tensor) -> Tensor:
    """Four minima of value 0."""
    x, y = w
    return (x**2 + y - 11) ** 2 + (x + y**2 - 7) ** 2


def beale(w: Tensor) -> Tensor:
    """Minimum 0 at (3, ½)."""
    x, y = w
    return (1.5 - x + x * y) ** 2 + (2.25 - x + x * y**2) ** 2 + (2.625 - x + x * y**3) ** 2


def huber(w: Tensor) -> Tensor:
    """Σ h(wᵢ), h(t) = -t⁴/8 + 3t²/4 + 3/8 for |t| < 1 and |t| otherwise: curvature vanishes beyond the knee."""
    inner = -(w**4) / 8 + 3 * w**2 / 4 + 3 / 8
    return torch.where(w.abs() < 1, inner, w.abs()).sum()


def flat_huber(w: Tensor) -> Tensor:
    """h(w₁), constant in every other coordinate."""
    return huber(w[:1])


FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], tuple[float, float]]] = {
    "booth": (booth, (7.5, -4.0)),
    "goldstein-price": (goldstein_price, (0.0, 0.0)),
    "rosenbrock": (rosenbrock, (-1.2, 1.0)),
    "himmelblau": (himmelblau, (0.0, 0.0)),
    "beale": (beale, (1.0, 1.0)),
    "huber": (huber, (0.9, 0.3)),
    "flat-huber": (flat_huber, (0.9, 0.3)),
}
"""The functions by name, each with its usual start."""


class Quadratic(Objective):
    """f(w) = ½ (w - w*)ᵀ Q diag(λ) Qᵀ (w - w*) + f* with all derivatives in closed form."""

    deterministic = True

    def __init__(self, eigenvalues: Tensor, eigenvectors: Tensor, minimizer: Tensor, minimum: float = 0.0) -> None:
        super().__init__()
        self.eigenvalues, self.eigenvectors = eigenvalues, eigenvectors
        self.hessian = (eigenvectors * eigenvalues) @ eigenvectors.T
        self.minimizer, self.minimum = minimizer, minimum
        self.dimension = len(eigenvalues)
        self.dtype, self.device = eigenvalues.dtype, eigenvalues.device

    @classmethod
    def random(cls, eigenvalues: Tensor, seed: int, minimum: float = 0.0) -> Quadratic:
        """The given spectrum with random orthonormal eigenvectors and a Gaussian minimizer."""
        generator = torch.Generator().manual_seed(seed)
        d = len(eigenvalues)
        orthonormal = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64)).Q.to(eigenvalues)
        minimizer = torch.randn(d, generator=generator, dtype=torch.float64).to(eigenvalues)
        return cls(eigenvalues, orthonormal, minimizer, minimum)

    def at(self, x: Tensor, *, curvature: bool = False) -> Point:
        return _QuadraticPoint(x, self)

    def largest_gradient_norm(self, x: Tensor) -> float:
        """sqrt(2 λ_max (f(x) - f*)): the optimal value of the teleportation problem from ``x``."""
        residual = x - self.minimizer
        gap = 0.5 * float(residual @ (self.hessian @ residual))
        return math.sqrt(2.0 * float(self.eigenvalues.max()) * gap)


class _QuadraticPoint(Point):
    def __init__(self, x: Tensor, objective: Quadratic) -> None:
        super().__init__(x, objective.ledger)
        self._objective = objective

    def _evaluate_value(self) -> Tensor:
        residual = self.x - self._objective.minimizer
        return 0.5 * torch.dot(residual, self._objective.hessian @ residual) + self._objective.minimum

    def _evaluate_gradient(self) -> tuple[float | Tensor, Tensor]:
        value = self._value if self._value is not None else self._evaluate_value()
        return value, self._objective.hessian @ (self.x - self._objective.minimizer)

    def _evaluate_hvp(self, v: Tensor) -> Tensor:
        return self._objective.hessian @ v


def tanh_network(width: int) -> tuple[FunctionObjective, Tensor]:
    """A tanh layer and a linear one with a penalty, in float64: width² + width variables."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(8, width, generator=generator, dtype=torch.float64)
    start = {
        "A": torch.randn(width, width, generator=generator, dtype=torch.float64) / width**0.5,
        "b": torch.randn(width, generator=generator, dtype=torch.float64) / width**0.5,
    }
    targets = torch.sin(torch.arange(8.0, dtype=torch.float64))

    def loss(p: dict[str, Tensor]) -> Tensor:
        fit = (torch.tanh(X @ p["A"]) @ p["b"] - targets).square().mean()
        return fit + 1e-3 * (p["A"].square().sum() + p["b"].square().sum())

    objective = FunctionObjective(loss, like=start)
    return objective, objective.structure.flatten(start)
