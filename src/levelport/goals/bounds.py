"""Bounds on parameters by a smooth change of variables, as MINUIT has them.

Each entry of x is a function of an entry of u that cannot leave its bounds:

    lo ≤ x:        x = lo + s (√(u² + 1) - 1),        x ≤ hi:   x = hi - s (√(u² + 1) - 1),
    lo ≤ x ≤ hi:   x = mid + half·sin u,   or with the minimizer near a side that side's formula of w = W sin(u/W),

where s is the distance of the minimizer from its bound and W takes x to the other side; so x keeps its digits in a box
of any width. If the minimizer lies on the bound, s is the length t along which f rises by ``rise``:
|g| t + ½ h t² = rise with the gradient and the curvature of that entry. With x' and x'' the derivatives by u, entry by
entry,

    ∇ᵤf = x'∘∇f,      ∇²ᵤf v = x'∘∇²f (x'∘v) + x''∘∇f∘v.

At a bound x' = 0: an end that runs into it is stationary in u, on this side of the level.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from levelport.objective import Objective, ObjectiveError, Point, WrappedObjective, WrappedPoint
from levelport.objectives.structure import Structure

_BESIDE = 1e-3  # distance from a bound, as a share of the length t, up to which the minimizer counts as on it
_NEAR = 0.1  # the same as a share of a box, up to which its formula is that of one side
_MOST = 100  # entries beside bounds up to which their curvatures are taken, a product for each


class Bounds:
    """lower ≤ x ≤ upper for flat vectors; infinite where there is none."""

    def __init__(self, lower: Tensor, upper: Tensor) -> None:
        self.lower, self.upper, self._width = lower, upper, upper - lower

    @classmethod
    def read(cls, bounds: Any, structure: Structure[Any], x: Tensor) -> Bounds:
        """From a pair (lower, upper) of numbers, None or variables like x, or from a list of a pair per entry."""
        if isinstance(bounds, Mapping) or not hasattr(bounds, "__len__") or len(bounds) == 0:
            raise ValueError(_FORM)
        if isinstance(bounds[0], tuple | list) and len(bounds) == x.numel() and all(len(pair) == 2 for pair in bounds):
            if not all(side is None or isinstance(side, int | float) for pair in bounds for side in pair):
                raise ValueError(_FORM)
            numbers = [(-math.inf if a is None else a, math.inf if b is None else b) for a, b in bounds]
            lower, upper = torch.tensor(numbers, dtype=torch.float64).to(x).unbind(1)
        elif len(bounds) == 2:
            lower, upper = (
                _side(side, fill, structure, x) for side, fill in zip(bounds, (-math.inf, math.inf), strict=True)
            )
        else:
            raise ValueError(_FORM)
        if not bool((lower < upper).all()):
            raise ValueError(
                "bounds: every lower bound must be below its upper bound; fix a parameter by leaving it out."
            )
        if bool(((x < lower) | (x > upper)).any()):
            raise ObjectiveError("x lies outside its bounds; pass the minimizer within them.")
        return cls(lower, upper)

    def at_bound(self, x: Tensor, tol: Tensor | float = 0.0) -> Tensor:
        """Return a mask of the entries on a bound, to a millionth of the scale or to ``tol``."""
        near = 1e-6 * self._scale + tol
        return (x - self.lower <= near) | (self.upper - x <= near)

    def near(self, u: Tensor, share: float) -> Tensor:
        """Return a mask of the entries of u in which x is all but stationary, beside a bound: |x'| < share |x''|."""
        _, first, second = self.outer(u)
        return first.abs() < share * second.abs()

    def set_scale(self, point: Point, rise: float, share: float = _BESIDE) -> None:
        """The formulas for the minimizer, s being t up to ``share`` of t; to first order where many may be beside."""
        below, above, g = point.x - self.lower, self.upper - point.x, point.gradient.abs()
        distance = torch.minimum(below, above)
        self._edge = torch.where(below <= above, self.lower, self.upper)
        self._sign = torch.where(below <= above, 1.0, -1.0).to(g.dtype)
        self._amid = distance > _NEAR * self._width  # of a box
        self._one = torch.isfinite(distance) & ~self._amid
        curvature = torch.zeros_like(g)
        beside = (self._one & ~(distance * g > share * rise)).nonzero().flatten()
        for entry in beside if len(beside) <= _MOST else ():
            direction = torch.zeros_like(g)
            direction[entry] = 1.0
            curvature[entry] = point.hvp(direction)[entry].clamp_min(0.0)
        length = 2.0 * rise / (g + torch.hypot(g, (2.0 * rise * curvature).sqrt()))
        length = torch.where((length > 0.0) & torch.isfinite(length), length, 1.0).minimum(self._width)
        scale = torch.where(self._one & (distance > share * length), distance, length)
        self._scale = torch.where(self._amid, 0.5 * self._width, scale)
        ratio = self._width / self._scale
        self._reach = (ratio * (ratio + 2.0)).sqrt()  # W, infinite without the other side

    def inner(self, x: Tensor) -> Tensor:
        """u of x."""
        mid = 0.5 * (self.upper + self.lower)
        ratio = self._sign * (x - self._edge) / self._scale
        w = (ratio * (ratio + 2.0)).clamp_min(0.0).sqrt()
        w = torch.where(torch.isinf(self._reach), w, self._reach * torch.asin((w / self._reach).clamp_max(1.0)))
        amid = torch.asin(((x - mid) / self._scale).clamp(-1.0, 1.0))
        return torch.where(self._one, w, torch.where(self._amid, amid, x))

    def outer(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x, x' and x'' at u."""
        mid, angle = 0.5 * (self.upper + self.lower), u / self._reach
        w = torch.where(torch.isinf(self._reach), u, self._reach * torch.sin(angle))
        root, cos = (w * w + 1.0).sqrt(), torch.cos(angle)
        scale = self._sign * self._scale
        one = (
            self._edge + scale * (w * w / (root + 1.0)),
            scale * w / root * cos,
            scale * cos * cos / root**3 - scale * w / root * torch.sin(angle) / self._reach,
        )
        amid = mid + self._scale * torch.sin(u), self._scale * torch.cos(u), -self._scale * torch.sin(u)
        free = u, torch.ones_like(u), torch.zeros_like(u)
        x, first, second = (
            torch.where(self._one, a, torch.where(self._amid, b, c)) for a, b, c in zip(one, amid, free, strict=True)
        )
        return torch.minimum(torch.maximum(x, self.lower), self.upper), first, second


_FORM = (
    "bounds must be a pair (lower, upper), each a number, None, or in the structure of x; or a list with a pair "
    "(lower, upper) for every entry of x."
)


def _side(side: Any, fill: float, structure: Structure[Any], x: Tensor) -> Tensor:
    if side is None or isinstance(side, int | float):
        # By float64, from which a number that is too large for the dtype becomes infinite.
        return torch.full_like(x, fill if side is None else float(side), dtype=torch.float64).to(x.dtype)
    flat = structure.flatten_like("each side of bounds", side)
    return torch.where(torch.isnan(flat), torch.full_like(flat, fill), flat)


class Bounded(WrappedObjective):
    """f as a function of u."""

    def __init__(self, objective: Objective, bounds: Bounds) -> None:
        super().__init__(objective)
        self.bounds = bounds

    def at(self, x: Tensor, *, curvature: bool = False) -> Point:
        outer, first, second = self.bounds.outer(x)
        return _BoundedPoint(x, self.inner.at(outer, curvature=curvature), first, second)


class _BoundedPoint(WrappedPoint):
    """A point of f, in other variables."""

    def __init__(self, x: Tensor, inner: Point, first: Tensor, second: Tensor) -> None:
        super().__init__(x, inner)
        self._first, self._second = first, second

    def _evaluate_gradient(self) -> tuple[float, Tensor]:
        gradient = self._first * self.inner.gradient
        return self.inner.value, gradient

    def _evaluate_hvp(self, v: Tensor) -> Tensor:
        return self._first * self.inner.hvp(self._first * v) + self._second * self.inner.gradient * v
