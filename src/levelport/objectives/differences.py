"""Hessian-vector products from differences of gradients: one gradient each, where automatic ones cost two.

    ∇²f(x) v ≈ (∇f(x + ε v) - ∇f(x))/ε,      ε = √u (length + ‖x‖)/‖v‖,      u the unit roundoff.

The error has two parts: ½ ε ‖v‖² ‖∇³f‖ because f is no quadratic, and about u ‖∇f‖/ε because gradients are rounded.
This ε makes both of the order √u, 1e-8 in float64: far below what a solver's tolerance of 1e-6 sees. In float32
√u is 3e-4, which is no curvature to build on, so other precisions are refused. On piecewise smooth f a difference now
and then straddles a kink and reports the jump of the gradient over ε; an automatic product never sees kinks.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from levelport.objective import Objective, ObjectiveError, Point, WrappedObjective, WrappedPoint
from levelport.vectors import read


class GradientDifferences(WrappedObjective):
    """The same f, with Hessian-vector products by differences of gradients.

    The cost counts what was evaluated: a product counts as the one gradient that it costs, not as an HVP. Budgets of
    Hessian-vector products (``max_hvps``) bound the number of products all the same, however they are made: the ledger
    counts these in ``differences``, and a solve compares ``Ledger.products``, the sum of both kinds, with its
    budget. So ``max_hvps=50`` means the same search at about half the price.

    Args:
        objective: f in float64. The ledger is shared with it.
        length: a length over which f changes, for starts near the origin; ‖x‖ is added to it.

    Example:
        >>> from levelport.objectives import FunctionObjective
        >>> x = torch.ones(3, dtype=torch.float64)
        >>> f = GradientDifferences(FunctionObjective(lambda x: (x**4).sum(), like=x))
        >>> f.at(x).hvp(x).round(decimals=4)
        tensor([12., 12., 12.], dtype=torch.float64)
        >>> f.cost.gradients, f.cost.hvps
        (2, 0)
    """

    def __init__(self, objective: Objective, *, length: float = 1.0) -> None:
        if objective.dtype != torch.float64:
            raise ObjectiveError(
                f"differences of gradients need float64; this objective works in {objective.dtype}, in which half the "
                "digits leave no curvature. Convert the model and the data by .double(), or use the objective itself."
            )
        if not (math.isfinite(length) and length > 0.0):
            raise ObjectiveError(f"length must be a positive number, not {length}.")
        super().__init__(objective)
        self.length = float(length)
        self.cheap_products = True  # a product costs one gradient

    def at(self, x: Tensor, *, curvature: bool = False) -> Point:
        # The graph of the gradient is what differences do without.
        return _DifferencePoint(x, self, self.inner.at(x))

    def around(self, point: Point) -> Point:
        """``point`` of the objective underneath with products of this kind. Cached values are kept."""
        return point if isinstance(point, _DifferencePoint) else _DifferencePoint(point.x, self, point)


class _DifferencePoint(WrappedPoint):
    """A point of the objective underneath; only products are made here."""

    def __init__(self, x: Tensor, objective: GradientDifferences, inner: Point) -> None:
        super().__init__(x, inner)
        self._objective = objective

    def _evaluate_gradient(self) -> tuple[float, Tensor]:
        gradient = self.inner.gradient  # first: the value comes with it
        return self.inner.value, gradient

    def _evaluate_hvp(self, v: Tensor) -> Tensor:
        self._objective.ledger.differences += 1
        position, size = read([], [self.x, v])
        if size == 0.0:
            return torch.zeros_like(v)
        step = math.sqrt(torch.finfo(self.x.dtype).eps) * (self._objective.length + position) / size
        there = self._objective.inner.at(torch.add(self.x, v, alpha=step))
        gradient = there.gradient
        if not math.isfinite(there.value):  # beyond the domain of f, which may go on behind x
            step = -step
            gradient = self._objective.inner.at(torch.add(self.x, v, alpha=step)).gradient
        return (gradient - self.gradient) / step
