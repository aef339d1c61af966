"""Newton's method for linear models, to the limit of float64.

The Hessian of (1/n) Σ ℓ(zᵢ, yᵢ) + reg ‖W‖² with logits Z = XW is

    (1/n) Σᵢ (∂²ℓ/∂z²)ᵢ ⊗ xᵢxᵢᵀ + 2 reg I,

a d×d matrix for one output and a (dK)×(dK) matrix for K classes. It is formed and factorised while it is small,
and applied by conjugate gradients where it is not.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from levelport.numerics.newton import newton_step
from levelport.objective import Point
from levelport.objectives.linear import LinearObjective

DENSE_LIMIT = 3000
"""Largest number of parameters for which the Hessian is formed."""


@dataclass(frozen=True)
class NewtonResult:
    """Where Newton's method ended, and after how many steps."""

    x: Tensor
    steps: int


def minimise(objective: LinearObjective, *, max_steps: int = 200, dense_limit: int = DENSE_LIMIT) -> NewtonResult:
    """Minimise from 0 until neither the value nor the gradient gets smaller.

    Far away steps are halved until the value falls enough (Armijo). Close to the minimum rounding hides the value's
    decrease; there full steps are taken as long as the gradient norm still falls.
    """
    point = objective.at(torch.zeros(objective.dimension, dtype=objective.dtype))
    for step in range(max_steps):
        direction = _newton_direction(objective, point, dense_limit)
        following = _armijo(objective, point, direction)
        if following is None:
            following = objective.at(point.x + direction)
            if not following.gradient_norm < 0.9 * point.gradient_norm:
                return NewtonResult(point.x, step)
        point = following
    return NewtonResult(point.x, max_steps)


def _armijo(objective: LinearObjective, point: Point, direction: Tensor) -> Point | None:
    slope = float(point.gradient @ direction)
    resolution = 8 * torch.finfo(objective.dtype).eps * max(abs(point.value), 1e-300)
    length = 1.0
    while length * abs(slope) > resolution:
        trial = objective.at(point.x + length * direction)
        if trial.value <= point.value + 1e-4 * length * slope:
            return trial
        length *= 0.5
    return None


def _newton_direction(objective: LinearObjective, point: Point, dense_limit: int) -> Tensor:
    if objective.dimension > dense_limit:
        # Accurate enough for superlinear convergence.
        return newton_step(point, tolerance=1e-2 * min(0.1, point.gradient_norm**0.5), max_hvps=2000).step
    H = hessian(objective, point.x)
    factor, failed = torch.linalg.cholesky_ex(H)
    if not bool(failed):
        return -torch.cholesky_solve(point.gradient[:, None], factor)[:, 0]
    # A singular Hessian (dependent features without a penalty): the shortest step, as the pseudo-inverse has it.
    return -torch.linalg.lstsq(H, point.gradient[:, None], driver="gelsd").solution[:, 0]


def hessian(objective: LinearObjective, x: Tensor) -> Tensor:
    """∇²f(x) as a matrix."""
    X, n, outputs = objective.X, objective.samples, objective.loss.outputs
    Z = objective.predict(x, X)
    curvature = objective.loss.curvature(Z)
    if outputs == 1:
        H = X.T @ (curvature.expand(n)[:, None] * X) / n
    else:
        H = X.new_zeros(objective.features, outputs, objective.features, outputs)
        for k in range(outputs):
            unit = torch.zeros_like(Z)
            unit[:, k] = 1.0
            column = objective.loss.apply(curvature, unit)  # column k of every sample's ∂²ℓ/∂z²
            for l in range(outputs):
                H[:, l, :, k] = X.T @ (column[:, l, None] * X) / n
        H = H.reshape(objective.dimension, objective.dimension)
    H.diagonal().add_(2.0 * objective.penalty)
    return H
