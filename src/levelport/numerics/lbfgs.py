"""L-BFGS: an approximate inverse Hessian from pairs of steps and gradient changes, for f and in tangent spaces.

The two-loop recursion (Nocedal and Wright, "Numerical Optimization", algorithm 7.4) visits the pairs one by one, which
takes Python longer than the arithmetic. For all pairs at once, its loops are the two substitutions of one triangular
system. With the pairs as rows of S and Y, oldest first,

    R = upper triangle of S Yᵀ,  D = its diagonal;
    R α = S v,   q = H₀ (v - Yᵀ α);   Rᵀ δ = D α - Y q,   B⁻¹ v = q + Sᵀ δ.

These are the same numbers in four products with matrices, and nothing is read back to the host.

H₀ acts where no pair has been. By default it is γ I with γ = ⟨s, y⟩/⟨y, y⟩ of the newest pair, the shorter one of the
two step sizes of Barzilai and Borwein; the longer one is ⟨s, s⟩/⟨s, y⟩. The shorter one follows the stiffest directions
in s, but those a long memory knows already, and H₀ is left with the flat ones: ``longer=p`` takes shorter¹⁻ᵖ longerᵖ.

With ``diagonal=True`` it is γ W, because the entries of a network's parameters differ in scale: W_ii² is the ratio of
the running means of s_i²/‖s‖² and y_i²/‖y‖², that is, the geometric mean of both step sizes in one entry, within a
factor ten of 1. And γ is the longer step size, with lengths as W measures them, ⟨s, W⁻¹ s⟩/⟨s, y⟩: for callers that cut
back a direction which is too long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from levelport.vectors import dots, exact_dtype

_LEAST_COSINE = 1e-8  # between s and y; below it the pair says nothing about curvature
_KEPT = 0.9  # of the running sums of s² and y², per pair
_LEAST = 1e-6  # of their mean entry, which is added to them: entries that have not moved
_WIDEST = 10.0  # the largest entry of W, and the inverse of the smallest


def pair_products(s: Tensor, y: Tensor) -> Tensor:
    """⟨s, y⟩, ⟨s, s⟩ and ⟨y, y⟩ as one tensor on the device."""
    return torch.cat([dots(s[None], y), dots(s[None], s), dots(y[None], y)])


class QuasiNewton:
    """B⁻¹ ≈ ∇²F⁻¹ from the last pairs (s, y) of a function F to be minimized: y = ∇F(x + s) - ∇F(x), or y = ∇²F s.

    Args:
        memory: the number of pairs kept.
        diagonal: begin with a diagonal and the longer scale instead of a multiple of the identity.
        longer: exponent of the longer scale in that multiple, 0 to 1.
    """

    def __init__(self, memory: int, *, diagonal: bool = False, longer: float = 0.0) -> None:
        self._memory, self._diagonal, self._longer = memory, diagonal, longer
        self._S = self._Y = self._R = self._squares = torch.empty(0)
        self.forget()

    def forget(self) -> None:
        """Drop all pairs: they described another region."""
        self._count, self._newest = 0, -1  # the newest pair's row: S and Y are rings, R is ordered
        self._sy = self._gamma = math.nan  # of the newest pair
        self._weight = 0.0  # what the entries of a running sum add up to
        self._squares.zero_()

    def __len__(self) -> int:
        return self._count

    @property
    def informed(self) -> bool:
        """True if there is a pair, so that the length of a step can be trusted."""
        return self._count > 0

    def update(self, s: Tensor, y: Tensor, products: Sequence[float] | None = None) -> bool:
        """Keep a copy of the pair; return False, and keep nothing, if it shows no positive curvature.

        ``products`` are :func:`pair_products` for a caller that has read them from the device already.
        """
        sy, ss, yy = pair_products(s, y).tolist() if products is None else products
        # A tiny y may underflow when squared, and then the pair has no scale.
        lengths = math.sqrt(ss) * math.sqrt(yy)
        if not (sy > _LEAST_COSINE * lengths and yy > 0.0 and sy / yy < math.inf):
            return False
        self._allocate(s)
        if self._count == self._memory:
            self._R[:-1, :-1] = self._R[1:, 1:].clone()
        self._count = count = min(self._count + 1, self._memory)
        self._newest = (self._newest + 1) % self._memory
        self._S[self._newest], self._Y[self._newest] = s, y
        self._R[:count, count - 1] = self._oldest_first(dots(self._S[:count], y))
        # The two scales differ by the square of the cosine.
        self._sy, self._gamma = sy, sy / yy * max(lengths / sy, 1.0) ** (2.0 * self._longer)
        if self._diagonal:
            for sums, v, square in zip(self._squares, (s, y), (ss, yy), strict=True):
                sums.mul_(_KEPT).add_(v.div(math.sqrt(square)).square_())
            self._weight = _KEPT * self._weight + 1.0
        return True

    def apply(self, v: Tensor) -> Tensor:
        """B⁻¹ v, a new vector."""
        if self._count == 0:
            return v.clone()
        count = self._count
        S, Y, R = self._S[:count], self._Y[:count], self._R[:count, :count]
        alpha = torch.linalg.solve_triangular(R, self._oldest_first(dots(S, v))[:, None], upper=True)[:, 0]
        q = self._initial(torch.addmv(v, Y.T, self._by_row(alpha).to(v.dtype), alpha=-1.0))
        right = R.diagonal() * alpha - self._oldest_first(dots(Y, q))
        delta = torch.linalg.solve_triangular(R.T, right[:, None], upper=False)[:, 0]
        return q.addmv_(S.T, self._by_row(delta).to(v.dtype))

    def _initial(self, q: Tensor) -> Tensor:
        """H₀ q, in place."""
        if not self._diagonal:
            return q.mul_(self._gamma)
        W, s = self._weights(), self._S[self._newest]
        gamma = dots((s / W)[None], s)[0] / self._sy
        return q.mul_(W).mul_(gamma)

    def _weights(self) -> Tensor:
        """The diagonal of W."""
        steps, changes = self._squares
        least = max(_LEAST * self._weight / len(steps), torch.finfo(steps.dtype).tiny)
        return (steps + least).div_(changes + least).sqrt_().clamp_(1.0 / _WIDEST, _WIDEST)

    def _allocate(self, like: Tensor) -> None:
        if not len(self._S):
            self._S = like.new_empty(self._memory, like.numel())
            self._Y = torch.empty_like(self._S)
            self._R = like.new_zeros(self._memory, self._memory, dtype=exact_dtype(like.device))
            if self._diagonal:
                self._squares = like.new_zeros(2, like.numel())

    def _oldest_first(self, by_row: Tensor) -> Tensor:
        return torch.roll(by_row, -self._first) if self._first else by_row

    def _by_row(self, oldest_first: Tensor) -> Tensor:
        return torch.roll(oldest_first, self._first) if self._first else oldest_first

    @property
    def _first(self) -> int:
        """The row of the oldest pair."""
        return (self._newest + 1) % self._memory if self._count == self._memory else 0
