"""Extreme eigenvalues of a Hessian from Hessian-vector products."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from levelport.objective import Point

DENSE_LIMIT = 400
"""Up to this dimension the Hessian is written out, one HVP per column."""


@dataclass(frozen=True)
class Extremes:
    """Smallest and largest eigenvalue with their vectors.

    ``exact`` (to rounding) if the Hessian was written out. Lanczos gives Ritz values, which lie *inside* the
    spectrum: the largest is a lower bound on λ_max, the smallest an upper bound on λ_min.
    """

    smallest: float
    largest: float
    lowest_vector: Tensor
    top_vector: Tensor
    exact: bool


def hessian_matrix(point: Point) -> Tensor:
    """∇²f(x) as a symmetric matrix; d HVPs."""
    identity = torch.eye(point.x.numel(), dtype=point.x.dtype, device=point.x.device)
    matrix = torch.stack([point.hvp(column) for column in identity])
    return 0.5 * (matrix + matrix.T)


def extremes(point: Point, *, max_products: int = 80, seed: int = 0) -> Extremes:
    """Both ends of the spectrum at ``point``: dense where that is affordable, Lanczos otherwise."""
    if point.x.numel() <= max(DENSE_LIMIT, max_products):
        values, vectors = torch.linalg.eigh(hessian_matrix(point))
        return Extremes(float(values[0]), float(values[-1]), vectors[:, 0], vectors[:, -1], exact=True)
    return lanczos(point, max_products, seed)


def lanczos(point: Point, products: int, seed: int = 0) -> Extremes:
    """Ritz values and vectors of a Krylov space of that many products, with full reorthogonalisation."""
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(point.x.numel(), generator=generator, dtype=torch.float64).to(point.x)
    basis = [q / torch.linalg.vector_norm(q)]
    diagonal: list[float] = []
    off: list[float] = []
    while True:
        image = point.hvp(basis[-1])
        diagonal.append(float(image @ basis[-1]))
        Q = torch.stack(basis)
        for _ in range(2):  # once is not enough in floating point
            image = image - Q.T @ (Q @ image)
        length = float(torch.linalg.vector_norm(image))
        if len(diagonal) == products or length <= 1e-12 * max(1e-300, max(abs(entry) for entry in diagonal)):
            break
        off.append(length)
        basis.append(image / length)
    T = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    if off:
        side = torch.tensor(off, dtype=torch.float64)
        T = T + torch.diag(side, 1) + torch.diag(side, -1)
    values, vectors = torch.linalg.eigh(T)
    lift = Q.T @ vectors.to(Q)
    return Extremes(float(values[0]), float(values[-1]), lift[:, 0], lift[:, -1], exact=False)
