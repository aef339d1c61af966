"""L-BFGS around a known scale: an approximate inverse Hessian from a base and pairs of steps and gradient changes.

In the coordinates of :mod:`levelport.goals.chart` the base is the identity, since the Hessian at the minimizer is;
where no Hessian was taken it is γ I with γ = sᵀy/yᵀy of the newest pair. Pairs without positive curvature are
skipped, or damped (Powell 1978) where the caller asks for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

_LEAST_COSINE = 1e-8  # between s and y; below it the pair says nothing about curvature
_FLATTEST = 1e-12  # curvature in units of an identity base: B⁻¹g, which steps subtract, would lose its digits
_MEMORY = 60
_DAMPED = 0.1  # share of the base's curvature that damping leaves


class Pairs:
    """B⁻¹ from a base and pairs.

    Attributes:
        scale: the base's factor γ; one that is not given is taken from the newest pair, and None until there is one.
        base: multiplied by γ; the identity if None.
    """

    def __init__(
        self, base: Callable[[Tensor], Tensor] | None = None, *, scale: float | None = None, memory: int = _MEMORY
    ) -> None:
        self.scale = scale
        self.base = base
        self._memory, self._fixed = memory, scale is not None
        self._pairs: list[tuple[Tensor, Tensor, float]] = []

    def __len__(self) -> int:
        return len(self._pairs)

    def forget(self, scale: float | None = None) -> None:
        """Drop all pairs; a factor that was not given starts again from ``scale``."""
        self._pairs = []
        if not self._fixed:
            self.scale = scale

    def learn(self, s: Tensor, y: Tensor, *, damp: bool = False) -> bool:
        """Keep the pair if it shows positive curvature, damped or not; whether it was kept."""
        sy, ss, yy = float(s @ y), float(s @ s), float(y @ y)
        if not (ss > 0.0 and yy > 0.0 and math.isfinite(sy) and math.isfinite(yy)):
            return False
        if damp and self.scale is not None and sy <= _LEAST_COSINE * math.sqrt(ss) * math.sqrt(yy):
            sBs = ss / self.scale
            if not sBs > sy:
                return False
            share = (1.0 - _DAMPED) * sBs / (sBs - sy)
            y = share * y + ((1.0 - share) / self.scale) * s
            sy, yy = float(s @ y), float(y @ y)
        if not (sy > _LEAST_COSINE * math.sqrt(ss) * math.sqrt(yy) and yy > 0.0):
            return False
        if self._fixed and self.base is None and self.scale is not None and sy * self.scale < _FLATTEST * ss:
            y = y + (_FLATTEST / self.scale - sy / ss) * s
            sy = float(s @ y)
        if len(self._pairs) == self._memory:
            self._pairs.pop(0)
        self._pairs.append((s, y, 1.0 / sy))
        if not self._fixed:
            self.scale = sy / yy
        return True

    def solve(self, q: Tensor) -> Tensor:
        """B⁻¹ q by the two-loop recursion, a new vector."""
        q = q.clone()
        factors: list[float] = []
        for s, y, inverse in reversed(self._pairs):
            factors.append(inverse * float(s @ q))
            q.add_(y, alpha=-factors[-1])
        if self.base is not None:
            q = self.base(q)
        q.mul_(1.0 if self.scale is None else self.scale)
        for (s, y, inverse), factor in zip(self._pairs, reversed(factors), strict=True):
            q.add_(s, alpha=factor - inverse * float(y @ q))
        return q

    def least_curvature(self, g: Tensor) -> float:
        """The least eigenvalue of B, around the identity, on the plane ⟨g, d⟩ = 0; 1 beside the span of the pairs.

        In an orthonormal basis of the span, whose first vector is along g, B is updated as BFGS does:
        B + yyᵀ/sᵀy - Bs(Bs)ᵀ/sᵀBs.
        """
        known = torch.stack([g, *(vector for s, y, _ in self._pairs for vector in (s, y))], dim=1)
        _, R = torch.linalg.qr(known)
        B = torch.eye(len(R), dtype=R.dtype, device=R.device)
        for (_, _, inverse), s, y in zip(self._pairs, R.T[1::2], R.T[2::2], strict=True):
            Bs = B @ s
            sBs = float(s @ Bs)
            if not sBs > 0.0:  # as far as its digits tell
                return 0.0
            B = B.addr(y, y, alpha=inverse).addr_(Bs, Bs, alpha=-1.0 / sBs)
        if not math.isfinite(float(B.sum())):
            return 0.0
        least = torch.linalg.eigvalsh(B[1:, 1:])
        return min(1.0, float(least[0])) if len(least) else 1.0
