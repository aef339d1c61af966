"""L-BFGS: an approximate inverse Hessian from a few past steps, whose scalars stay on the device.

The two-loop recursion (Nocedal and Wright, "Numerical Optimization", algorithm 7.4) walks through the pairs one by one,
which takes Python longer than the arithmetic. Written down for all pairs at once, its two loops are the forward and the
backward substitution of one triangular system. With the pairs as rows of S and Y, oldest first,

    R = upper triangle of S Yᵀ,  D = its diagonal;
    R α = S v,   q = γ(v - Yᵀ α);   Rᵀ δ = D α - Y q,   B⁻¹ v = q + Sᵀ δ,

γ = sᵀy/yᵀy of the newest pair. These are the very numbers of the two loops, in four products with matrices, and
applying them reads nothing back to the host. That suits many pairs; few are the business of
:mod:`levelport.numerics.tangent_lbfgs`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

_LEAST_COSINE = 1e-8  # between s and y; below it the pair says nothing about curvature


def tells_curvature(sy: float, ss: float, yy: float) -> bool:
    """Whether a pair with these products shows positive curvature that can be told from rounding.

    A tiny y may underflow when squared, and then the pair has no scale.
    """
    return sy > _LEAST_COSINE * (ss * yy) ** 0.5 and yy > 0.0 and sy / yy < math.inf


class _Rows(NamedTuple):
    """The pairs as rows of S and Y, which are a ring, and R with rows and columns oldest first."""

    S: Tensor
    Y: Tensor
    R: Tensor

    def first(self, count: int) -> _Rows:
        """The part in use. Only the upper triangle of R means anything."""
        return _Rows(self.S[:count], self.Y[:count], self.R[:count, :count])


class QuasiNewton:
    """B⁻¹ ≈ ∇²F⁻¹ from pairs (s, y) of steps and gradient changes of a function F to be minimised."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._rows: _Rows | None = None
        self._in_use: _Rows | None = None
        self._count = 0
        self._newest = -1  # its row
        self._scale = 1.0  # γ

    def __len__(self) -> int:
        return self._count

    @property
    def informed(self) -> bool:
        """Whether the length of a step can be trusted: there is a pair to scale it by."""
        return self._count > 0

    def update(self, s: Tensor, y: Tensor) -> bool:
        """Remember a pair unless it contradicts positive curvature; whether it was kept."""
        sy, ss, yy = torch.stack([torch.dot(s, y), torch.dot(s, s), torch.dot(y, y)]).tolist()
        if not tells_curvature(sy, ss, yy):
            return False
        rows = self._allocated(s)
        if self._count == self._memory:
            rows.R[:-1, :-1] = rows.R[1:, 1:].clone()
        else:
            self._count += 1
        self._newest = (self._newest + 1) % self._memory
        rows.S[self._newest] = s
        rows.Y[self._newest] = y
        if self._in_use is None or len(self._in_use.S) < self._count:
            self._in_use = rows.first(self._count)
        self._in_use.R[:, -1] = self._oldest_first(self._in_use.S @ y).to(rows.R.dtype)
        self._scale = sy / yy
        return True

    def forget(self) -> None:
        """Drop all pairs: they described another region."""
        self._count, self._newest, self._in_use = 0, -1, None

    def apply(self, v: Tensor) -> Tensor:
        """B⁻¹ v, a new vector."""
        if self._in_use is None:
            return v.clone()
        S, Y, R = self._in_use
        alpha = torch.linalg.solve_triangular(R, self._oldest_first(S @ v)[:, None].to(R.dtype), upper=True)[:, 0]
        q = torch.addmv(v, Y.T, self._by_row(alpha).to(v.dtype), alpha=-1.0).mul_(self._scale)
        right = (R.diagonal() * alpha).sub_(self._oldest_first(Y @ q))
        delta = torch.linalg.solve_triangular(R.T, right[:, None], upper=False)[:, 0]
        return torch.addmv(q, S.T, self._by_row(delta).to(v.dtype))

    def _allocated(self, like: Tensor) -> _Rows:
        if self._rows is None:
            S = like.new_empty(self._memory, like.numel())
            # Half precision has no triangular solves.
            R = like.new_zeros(self._memory, self._memory, dtype=torch.promote_types(like.dtype, torch.float32))
            self._rows = _Rows(S, torch.empty_like(S), R)
        return self._rows

    @property
    def _oldest(self) -> int:
        """Its row; 0 while the ring has not come round."""
        return (self._newest + 1) % self._memory if self._count == self._memory else 0

    def _oldest_first(self, by_row: Tensor) -> Tensor:
        return by_row if self._oldest == 0 else torch.roll(by_row, -self._oldest)

    def _by_row(self, oldest_first: Tensor) -> Tensor:
        return oldest_first if self._oldest == 0 else torch.roll(oldest_first, self._oldest)
