"""The inverse Hessian at the minimizer where it is too large to form: conjugate gradients whose directions are kept.

Conjugate gradients on H w = p give directions sᵢ with sᵢᵀHsⱼ = δᵢⱼ (normalized here). With sᵢ and yᵢ = H sᵢ as rows of
S and Y,

    B⁻¹ = SᵀS + γ (I - SᵀY)(I - YᵀS)

is the exact inverse on their span and about γ I beside it: what BFGS makes of the same pairs. The next right-hand side
starts from SᵀS p, and its directions γ (I - SᵀY) r are conjugate to all kept ones. So quantities share every product
that was taken, both ends of one need no more than the first, and d products would make the whole inverse.

Each product raises ⟨p, B⁻¹p⟩ by a known amount, and the error is what all further ones would add. It is judged by what
the last quarter of them added (Hestenes and Stiefel): the residual says little where the Hessian is ill-conditioned. On
a multinomial regression with condition 1e7 it had fallen to 1e-4 where the width was still a third short.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from levelport.goals.chart import Region, Site

_NUMBERS = 4 * 10**7  # kept at the most, in S and Y together
_MOST = 2000  # directions kept at the most
_WINDOW = 2  # least number of products whose contributions are compared


class Recycled:
    """B⁻¹ of F at the minimizer ``start``; :meth:`solve` extends it."""

    def __init__(self, region: Region, start: Site) -> None:
        self._region, self._start = region, start
        self._room = max(20, min(_MOST, _NUMBERS // (2 * start.z.numel())))
        self._S = self._Y = start.z.new_empty(0, start.z.numel())
        self._scale = 1.0
        self._solved: Tensor | None = None  # the last right-hand side, to solve for its negative at no cost

    def __call__(self, q: Tensor) -> Tensor:
        """B⁻¹ q."""
        a = self._S @ q
        r = (q - self._Y.T @ a).mul_(self._scale)
        return self._S.T @ (a - self._Y @ r) + r

    def solve(self, p: Tensor, *, relative: float, stop: Callable[[float], bool]) -> bool:
        """Extend B⁻¹ until ⟨p, B⁻¹p⟩ is known to an error of about ``relative``; whether that was reached.

        ``stop`` is asked before every product, with the value so far.
        """
        if self._solved is not None and (torch.equal(p, self._solved) or torch.equal(p, -self._solved)):
            return True
        if 2 * len(self._S) > self._room:  # make room for others
            self._S, self._Y = self._S[-self._room // 2 :], self._Y[-self._room // 2 :]
        a = self._S @ p
        r, value, gains = p - self._Y.T @ a, float(a @ a), list[float]()
        eps = torch.finfo(self._start.point.x.dtype).eps
        while len(self._S) < self._room and not stop(value):
            search = r - self._S.T @ (self._Y @ r)
            energy = float(r @ search)
            if value > 0.0 and self._scale * energy <= eps * value:
                return True
            image = self.image(search)
            curvature, size = float(search @ image), float(image @ image)
            if not (size > 0.0 and curvature > eps * math.sqrt(float(search @ search)) * math.sqrt(size)):
                break
            along = energy / curvature
            gains.append(along * energy)
            value += gains[-1]
            r = r - along * image
            root = 1.0 / math.sqrt(curvature)
            self._S = torch.cat([self._S, root * search[None]])
            self._Y = torch.cat([self._Y, root * image[None]])
            self._scale = curvature / size
            window = max(_WINDOW, len(gains) // 4)
            if len(gains) >= window and sum(gains[-window:]) <= relative * value:
                self._solved = p
                return True
        return False

    def image(self, s: Tensor) -> Tensor:
        """H s."""
        chart = self._region.chart
        return chart.pull(self._start.point.hvp(chart.push(s).to(self._region.objective.dtype))) / self._region.unit
