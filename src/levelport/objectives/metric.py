"""Another norm for the gradient, by a change of variables that is exact.

In the metric diag(m), m > 0, lengths are ‖s‖² = Σ mᵢ sᵢ² and gradients have the dual norm ‖g‖² = Σ gᵢ²/mᵢ. With
z = √m x and F(z) = f(z/√m),

    ∇F(z) = ∇f(x)/√m,      ∇²F(z) v = (∇²f(x) (v/√m))/√m,

so the teleportation problem of F in the ordinary norm is that of f in the metric, and a gradient step of F is the
preconditioned step x - η ∇f(x)/m of f: Adam's, where m is what Adam divides by.
"""

from __future__ import annotations

import torch
from torch import Tensor

from levelport.objective import Objective, ObjectiveError, Point, WrappedObjective, WrappedPoint
from levelport.objectives.structure import Structure, Variables


class InMetric(WrappedObjective):
    """F(z) = f(z/√m). Any solver and optimizer takes it; the ledger is shared with f.

    Args:
        objective: f.
        metric: m, flat, positive.
    """

    def __init__(self, objective: Objective, metric: Tensor) -> None:
        if metric.shape != (objective.dimension,):
            raise ObjectiveError(
                f"metric must have one entry for each of the {objective.dimension} variables, not the shape "
                f"{tuple(metric.shape)}."
            )
        weights = metric.to(dtype=objective.dtype, device=objective.device)
        if not bool((torch.isfinite(weights) & (weights > 0)).all()):
            raise ObjectiveError(
                f"metric must be positive and finite in every entry, in {objective.dtype} as x is: it weights lengths."
            )
        super().__init__(objective)
        self.root = weights.sqrt()

    @classmethod
    def like(cls, x: Variables, objective: Objective, metric: Variables) -> InMetric:
        """``metric`` in the structure of the user's variables ``x``."""
        return cls(objective, Structure(x).flatten_like("metric", metric))

    def at(self, x: Tensor, *, curvature: bool = False) -> Point:
        return _MetricPoint(x, self, self.inner.at(x / self.root, curvature=curvature))

    def around(self, point: Point) -> Point:
        """The point of F that stands for ``point`` of f. Cached values are kept."""
        return _MetricPoint(point.x * self.root, self, point)

    @staticmethod
    def underneath(point: Point) -> Point:
        """The point of f that a point of F stands for."""
        while not isinstance(point, _MetricPoint):  # differences of gradients wrap it once more
            assert point.inner is not None, "a point of an objective in this metric"
            point = point.inner
        return point.inner


class _MetricPoint(WrappedPoint):
    """A point of f; gradients and products are rescaled here."""

    def __init__(self, x: Tensor, objective: InMetric, inner: Point) -> None:
        super().__init__(x, inner)
        self._root = objective.root

    def _evaluate_gradient(self) -> tuple[float, Tensor]:
        gradient = self.inner.gradient / self._root  # first: the value comes with it
        return self.inner.value, gradient

    def _evaluate_hvp(self, v: Tensor) -> Tensor:
        return self.inner.hvp(v / self._root) / self._root
