"""Both ends of the spectrum of ∇²f: by Lanczos or written out at a point, in closed form over all points."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from levelport.numerics.lanczos import Lanczos
from levelport.numerics.newton import hessian_by_columns
from levelport.objective import Point
from levelport.objectives.linear import LinearObjective, LogisticLoss, SoftmaxLoss, SquaredLoss

_WRITTEN_OUT = 400  # dimension up to which extremes writes the Hessian out, one HVP per column
_LARGEST = {SquaredLoss: 1.0, LogisticLoss: 0.25, SoftmaxLoss: 0.5}
"""sup ‖∂²ℓ/∂z²‖: attained everywhere, at z = 0, and in the limit of two equal logits far above the others."""


@dataclass(frozen=True)
class Extremes:
    """Smallest eigenvalue with its vector, and largest eigenvalue.

    Lanczos gives Ritz values, which lie *inside* the spectrum: the largest is a lower bound on λ_max, the smallest an
    upper bound on λ_min.
    """

    smallest: float
    largest: float
    lowest_vector: Tensor


def extremes(point: Point, *, max_products: int = 80) -> Extremes:
    """Both ends of the spectrum of ∇²f at ``point``: dense where that is affordable, Lanczos otherwise."""
    if point.x.numel() <= max(_WRITTEN_OUT, max_products):
        values, vectors = torch.linalg.eigh(hessian_by_columns(point))
        return Extremes(float(values[0]), float(values[-1]), vectors[:, 0])
    return extremes_by_lanczos(point.hvp, point.x, max_products)


def extremes_by_lanczos(
    product: Callable[[Tensor], Tensor], like: Tensor, products: int, seed: int = 0, *, without: Tensor | None = None
) -> Extremes:
    """Ritz values and vectors of that many products with a symmetric matrix, from a random start shaped ``like``.

    ``without`` is a unit vector that the matrix maps to zero and whose eigenvalue does not count.
    """
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(like.numel(), generator=generator, dtype=torch.float64).to(like)
    if without is not None:
        q = q - torch.dot(without, q) * without
    q = q / torch.linalg.vector_norm(q)
    process = Lanczos(product, q, products)
    while not process.exhausted and process.extend():
        pass
    values = process.ritz_values
    if len(values) == 0:
        return Extremes(math.nan, math.nan, q)
    return Extremes(float(values[0]), float(values[-1]), process.ritz_vector(0))


def smoothness(objective: LinearObjective) -> float:
    """L = sup ‖∂²ℓ/∂z²‖ · ‖X‖²/n + 2 penalty.

    Exact for squared and logistic loss, where all samples attain the largest curvature at once (the logistic ones at
    w = 0); an upper bound for softmax.
    """
    largest = _LARGEST.get(type(objective.loss))
    if largest is None:
        raise ValueError(f"No closed form of L is known for {type(objective.loss).__name__}.")
    X = objective.X.double()
    return largest * float(torch.linalg.eigvalsh(X.T @ X)[-1]) / objective.samples + 2.0 * objective.penalty
