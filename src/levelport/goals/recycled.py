"""The inverse Hessian at the minimizer where it is too large to form: conjugate gradients whose directions are kept.

Conjugate gradients on H w = p give directions sᵢ with sᵢᵀHsⱼ = δᵢⱼ (normalised here). With sᵢ and yᵢ = H sᵢ as rows of
S and Y,

    B⁻¹ = SᵀS + γ (I - SᵀY)(I - YᵀS)

is the exact inverse on their span and about γ I beside it: what BFGS makes of the same pairs. The next right-hand side
starts from SᵀS p, and its directions γ (I - SᵀY) r are conjugate to all kept ones. So quantities share every product
that was taken, both ends of one need no more than the first, and d products would make the whole inverse.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from levelport.goals.chart import Region, Site

_NUMBERS = 10**8  # kept at the most, in S and Y together
_MOST = 500  # directions kept at the most


class Recycled:
    """B⁻¹ of F at the minimizer ``start``; :meth:`solve` extends it."""

    def __init__(self, region: Region, start: Site) -> None:
        self._region, self._start = region, start
        self._room = max(20, min(_MOST, _NUMBERS // (2 * start.z.numel())))
        self._S = self._Y = start.z.new_empty(0, start.z.numel())
        self._scale = 1.0

    def __call__(self, q: Tensor) -> Tensor:
        """B⁻¹ q."""
        a = self._S @ q
        r = (q - self._Y.T @ a).mul_(self._scale)
        return self._S.T @ (a - self._Y @ r) + r

    def solve(self, p: Tensor, *, relative: float, absolute: float = 0.0, products: int = 200) -> float:
        """Extend B⁻¹ until ⟨p, B⁻¹p⟩ is known to an error of about these tolerances; return it."""
        if len(self._S) + products > self._room:
            self._S, self._Y = self._S[:0], self._Y[:0]
            products = min(products, self._room)
        a = self._S @ p
        r, solved = p - self._Y.T @ a, float(a @ a)
        eps = torch.finfo(self._start.point.x.dtype).eps
        for _ in range(products):
            search = r - self._S.T @ (self._Y @ r)
            energy = float(r @ search)
            if not self._scale * energy > max(relative * solved, absolute) and len(self._S):
                break
            image = self._times(search)
            curvature = float(search @ image)
            if not curvature > eps * math.sqrt(float(search @ search) * float(image @ image)):
                break
            along = float(r @ search) / curvature
            solved += along * energy
            r = r - along * image
            root = 1.0 / math.sqrt(curvature)
            self._S = torch.cat([self._S, root * search[None]])
            self._Y = torch.cat([self._Y, root * image[None]])
            self._scale = curvature / float(image @ image)
        return solved

    def _times(self, s: Tensor) -> Tensor:
        chart = self._region.chart
        return chart.pull(self._start.point.hvp(chart.push(s).to(self._region.objective.dtype))) / self._region.unit
