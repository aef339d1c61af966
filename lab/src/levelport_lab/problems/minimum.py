"""Minima and Hessians of linear models in closed form.

The Hessian of (1/n) Σ ℓ(zᵢ, yᵢ) + penalty ‖W‖² with logits Z = XW is

    (1/n) Σᵢ (∂²ℓ/∂z²)ᵢ ⊗ xᵢxᵢᵀ + 2 penalty I,

a d×d matrix for one output and a (dK)×(dK) matrix for K classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from levelport.numerics import newton
from levelport.numerics.newton import Minimum, hessian_by_columns
from levelport.objective import Objective, Point
from levelport.objectives.linear import LinearObjective

DENSE_LIMIT = 3000
"""Largest number of parameters of a linear model for which the Hessian is formed and factorized."""


def find_minimum(objective: Objective, start: Tensor | None = None, *, dense_limit: int = DENSE_LIMIT) -> Minimum:
    """Newton's method from ``start`` (0 by default), to the last digit: :func:`levelport.numerics.newton.find_minimum`.

    The Hessian of a linear model is factorized up to ``dense_limit`` parameters.
    """
    if not isinstance(objective, LinearObjective) or objective.dimension > dense_limit:
        return newton.find_minimum(objective, start)

    def factorized(point: Point) -> Tensor:
        H = hessian_matrix(objective, point.x)
        factor, failed = torch.linalg.cholesky_ex(H)
        if not bool(failed):
            return -torch.cholesky_solve(point.gradient[:, None], factor)[:, 0]
        # A singular Hessian (dependent features without a penalty): the shortest step, as the pseudo-inverse has it.
        return -torch.linalg.lstsq(H, point.gradient[:, None], driver="gelsd").solution[:, 0]

    return newton.find_minimum(objective, start, direction_at=factorized)


def hessian_matrix(objective: Objective, x: Tensor) -> Tensor:
    """∇²f(x): in closed form for linear models, by d HVPs otherwise."""
    if isinstance(objective, LinearObjective):
        return _linear_hessian(objective, x)
    return hessian_by_columns(objective.at(x, curvature=True))


def weighted_gram(objective: LinearObjective, weights: Tensor) -> Tensor:
    """XᵀDX/n + 2 penalty I for one curvature per sample: the Hessian of a model with one output."""
    X = objective.X
    H = X.T @ (weights.expand(len(X))[:, None] * X) / objective.samples
    H.diagonal().add_(2.0 * objective.penalty)
    return H


def _linear_hessian(objective: LinearObjective, x: Tensor) -> Tensor:
    X, n, outputs = objective.X, objective.samples, objective.loss.outputs
    Z = objective.predict(x, X)
    curvature = objective.loss.curvature(Z)
    if outputs == 1:
        return weighted_gram(objective, curvature)
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
