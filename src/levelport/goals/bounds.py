"""Bounds on parameters by a smooth change of variables, as MINUIT has them.

Each entry of x is a function of an entry of u that cannot leave its bounds:

    lo ≤ x ≤ hi:   x = mid + half·sin u,
    lo ≤ x:        x = lo + s (√(u² + 1) - 1),        x ≤ hi:   x = hi - s (√(u² + 1) - 1),

where the scale s is the distance of the minimizer from its bound; if it lies on it, the length t along which f rises by
``rise``: |g| t + ½ h t² = rise with the gradient and the curvature of that entry. With x' and x'' the derivatives by u,
entry by entry,

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
_MOST = 100  # entries beside bounds up to which their curvatures are taken, a product for each


class Bounds:
    """lower ≤ x ≤ upper for flat vectors; infinite where there is none."""

    def __init__(self, lower: Tensor, upper: Tensor) -> None:
        self.lower, self.upper = lower, upper
        low, high = torch.isfinite(lower), torch.isfinite(upper)
        self._two, self._one = low & high, low ^ high
        self._edge, self._sign = torch.where(low, lower, upper), torch.where(low, 1.0, -1.0).to(lower.dtype)  # of one
        self._scale = torch.ones_like(lower)

    @classmethod
    def read(cls, bounds: Any, structure: Structure[Any], x: Tensor) -> Bounds:
        """From a pair (lower, upper) of numbers, None or variables like x, or from a list of a pair per entry."""
        if isinstance(bounds, Mapping) or not hasattr(bounds, "__len__") or len(bounds) == 0:
            raise ValueError(_FORM)
        if isinstance(bounds[0], tuple | list) and len(bounds) == x.numel() and all(len(pair) == 2 for pair in bounds):
            numbers = [(-math.inf if a is None else a, math.inf if b is None else b) for a, b in bounds]
            lower, upper = torch.tensor(numbers, dtype=x.dtype, device=x.device).unbind(1)
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
        near = 1e-6 * torch.where(self._two, 0.5 * (self.upper - self.lower), self._scale) + tol
        return (self._two | self._one) & ((x - self.lower <= near) | (self.upper - x <= near))

    def near(self, u: Tensor, share: float) -> Tensor:
        """Return a mask of the entries of u in which x is all but stationary, beside a bound: |x'| < share |x''|."""
        _, first, second = self.outer(u)
        return first.abs() < share * second.abs()

    def set_scale(self, point: Point, rise: float, share: float = _BESIDE) -> None:
        """The scale s of one-sided bounds: t up to ``share`` of t; to first order where many entries may be beside."""
        distance, g = self._sign * (point.x - self._edge), point.gradient.abs()
        curvature = torch.zeros_like(g)
        beside = (self._one & ~(distance * g > share * rise)).nonzero().flatten()
        for entry in beside if len(beside) <= _MOST else ():
            direction = torch.zeros_like(g)
            direction[entry] = 1.0
            curvature[entry] = point.hvp(direction)[entry].clamp_min(0.0)
        length = 2.0 * rise / (g + torch.hypot(g, (2.0 * rise * curvature).sqrt()))
        length = torch.where((length > 0.0) & torch.isfinite(length), length, 1.0)
        self._scale = torch.where(self._one, torch.where(distance > share * length, distance, length), self._scale)

    def inner(self, x: Tensor) -> Tensor:
        """u of x."""
        half, mid = 0.5 * (self.upper - self.lower), 0.5 * (self.upper + self.lower)
        u = torch.where(self._two, torch.asin(((x - mid) / half).clamp(-1.0, 1.0)), x)
        ratio = self._sign * (x - self._edge) / self._scale
        return torch.where(self._one, (ratio * (ratio + 2.0)).clamp_min(0.0).sqrt(), u)

    def outer(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x, x' and x'' at u."""
        half, mid = 0.5 * (self.upper - self.lower), 0.5 * (self.upper + self.lower)
        root = (u * u + 1.0).sqrt()
        scale = self._sign * self._scale
        x = torch.where(self._one, self._edge + scale * (u * u / (root + 1.0)), u)
        x = torch.where(self._two, mid + half * torch.sin(u), x)
        first = torch.where(self._one, scale * u / root, torch.ones_like(u))
        first = torch.where(self._two, half * torch.cos(u), first)
        second = torch.where(self._one, scale / root**3, torch.zeros_like(u))
        second = torch.where(self._two, -half * torch.sin(u), second)
        return torch.minimum(torch.maximum(x, self.lower), self.upper), first, second


_FORM = (
    "bounds must be a pair (lower, upper), each a number, None, or in the structure of x; or a list with a pair "
    "(lower, upper) for every entry of x."
)


def _side(side: Any, fill: float, structure: Structure[Any], x: Tensor) -> Tensor:
    if side is None or isinstance(side, int | float):
        return torch.full_like(x, fill if side is None else float(side))
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
