"""What is minimized over the region: a scalar function of x with its gradient, and ready-made ones.

Goals are objectives, so that they count what they cost. An entry of x, or any other linear function ⟨c, x⟩, needs no
evaluation and costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property

import torch
from torch import Tensor, nn

from levelport.goals.chart import Chart, Site
from levelport.objective import Objective, Point
from levelport.objectives.structure import Variables, tensors


def sine_of_opposition(pg: float, pp: float, gg: float) -> float:
    """sin ∠(p, -g) from ⟨p, g⟩, ⟨p, p⟩ and ⟨g, g⟩ in any metric; 1 if p and g do not oppose each other.

    The roots are divided by one after the other, because the product of two tiny squares is zero.
    """
    cosine = pg / math.sqrt(pp) / math.sqrt(gg) if pp > 0.0 and gg > 0.0 else 0.0
    return math.sqrt(max(0.0, 1.0 - cosine * cosine)) if cosine < 0.0 else 1.0


class LinearGoal(Objective):
    """h(x) = ⟨c, x⟩ in closed form, free of charge."""

    deterministic = True

    def __init__(self, direction: Tensor) -> None:
        super().__init__()
        self.direction = direction
        self.dimension, self.dtype, self.device = direction.numel(), direction.dtype, direction.device

    @classmethod
    def entry(cls, index: int, like: Tensor) -> LinearGoal:
        """The entry x[index]."""
        direction = torch.zeros_like(like)
        direction[index] = 1.0
        return cls(direction)

    def at(self, x: Tensor, *, curvature: bool = False) -> Point:
        return _LinearPoint(x, self)


class _LinearPoint(Point):
    def __init__(self, x: Tensor, goal: LinearGoal) -> None:
        super().__init__(x, type(goal.ledger)())  # not counted
        self._goal = goal

    def _evaluate_value(self) -> Tensor:
        return torch.dot(self._goal.direction, self.x)

    def _evaluate_gradient(self) -> tuple[float | Tensor, Tensor]:
        return self._evaluate_value(), self._goal.direction

    def _evaluate_hvp(self, v: Tensor) -> Tensor:
        return torch.zeros_like(v)


class Aim:
    """A goal with a sign, seen in a chart: what a search lowers."""

    def __init__(self, goal: Objective, sign: float, chart: Chart) -> None:
        self.goal = goal
        self.sign = sign
        self.chart = chart
        self.constant = sign * chart.pull(goal.direction) if isinstance(goal, LinearGoal) else None
        """The gradient, where it does not depend on x."""

    def at(self, site: Site) -> Reading:
        """Its value and gradient at the very x of ``site``."""
        return Reading(self.goal.at(site.point.x), self)


class Reading:
    """sign·h and its gradient in z."""

    def __init__(self, point: Point, aim: Aim) -> None:
        self.point = point
        self._aim = aim

    @property
    def value(self) -> float:
        """sign·h."""
        return self._aim.sign * self.point.value

    @property
    def finite(self) -> bool:
        """True if h and its gradient are numbers."""
        return math.isfinite(self.point.value) if self._aim.constant is not None else self.point.finite

    @cached_property
    def gradient(self) -> Tensor:
        """sign·∇h in z."""
        known = self._aim.constant
        return self._aim.sign * self._aim.chart.pull(self.point.gradient) if known is None else known


class Norm:
    """‖x‖², the squared Euclidean norm over all tensors of x, as a goal."""

    def __call__(self, x: Variables) -> Tensor:
        return torch.stack([leaf.square().sum() for leaf in tensors(x)]).sum()

    def __repr__(self) -> str:
        return "Norm()"


class Distance:
    """‖x - other‖² as a goal; ``other`` has the structure of x, or is a module with the same parameters."""

    def __init__(self, other: Variables | nn.Module) -> None:
        variables = list(other.parameters()) if isinstance(other, nn.Module) else other
        self._keys = list(variables) if isinstance(variables, Mapping) else None
        self.other = torch.cat([leaf.detach().reshape(-1) for leaf in tensors(variables)]).clone()

    def __call__(self, x: Variables) -> Tensor:
        if isinstance(x, Mapping) and self._keys is not None:
            if set(x) != set(self._keys):
                raise ValueError(f"Distance: other must have the keys of x, {list(x)}, not {self._keys}.")
            x = [x[key] for key in self._keys]  # in the order of ``other``
        here = torch.cat([leaf.reshape(-1) for leaf in tensors(x)])
        if here.shape != self.other.shape:
            raise ValueError(f"Distance: other has {self.other.numel()} entries, but x has {here.numel()}.")
        return (here - self.other.to(here)).square().sum()

    def __repr__(self) -> str:
        return f"Distance({self.other.numel()} entries)"
