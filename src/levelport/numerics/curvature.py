"""∇²f as a matrix: in closed form for linear models, column by column for the rest.

The Hessian of (1/n) Σ ℓ(zᵢ, yᵢ) + penalty ‖W‖² with logits Z = XW is

    (1/n) Σᵢ (∂²ℓ/∂z²)ᵢ ⊗ xᵢxᵢᵀ + 2 penalty I,

a d×d matrix for one output and a (dK)×(dK) matrix for K classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from levelport.objective import Objective, Point
from levelport.objectives.linear import LinearObjective


def hessian_matrix(objective: Objective, x: Tensor) -> Tensor:
    """∇²f(x): in closed form for linear models, by d HVPs otherwise."""
    if isinstance(objective, LinearObjective):
        return _linear_hessian(objective, x)
    return hessian_by_columns(objective.at(x, curvature=True))


def hessian_by_columns(point: Point) -> Tensor:
    """∇²f as a symmetric matrix, one HVP per column."""
    identity = torch.eye(point.x.numel(), dtype=point.x.dtype, device=point.x.device)
    matrix = torch.stack([point.hvp(column) for column in identity])
    return 0.5 * (matrix + matrix.T)


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
