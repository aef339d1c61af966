"""Normalised gradient descent: the direction is the gradient's, the length is lr, however steep the slope.

x⁺ = x - lr ∇f(x)/‖∇f(x)‖
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from levelport import checks
from levelport.objective import Objective, Point
from levelport.optim.closures import FlatOptimizer, StepLoss
from levelport.optim.step_rule import Arrival, Step, StepRule


@dataclass(frozen=True)
class Normalized(StepRule):
    """The step rule for :func:`levelport.minimize`."""

    lr: float

    def __post_init__(self) -> None:
        checks.positive(lr=self.lr)

    def advance(self, objective: Objective, point: Point, state: Any, arrival: Arrival | None) -> Step:
        size = self.lr / point.gradient_norm if point.gradient_norm > 0.0 else 0.0
        return Step(objective.at(point.x - size * point.gradient), None, size)


class NormalizedSGD(FlatOptimizer):
    """SGD with steps of length ``lr``. Works with or without a closure, like torch's SGD.

    Args:
        params: parameters or groups; the norm runs over all of them, ``lr`` is each group's own.
        lr: the length of a step.
    """

    def __init__(self, params: Any, lr: float = 1e-2) -> None:
        checks.positive(lr=lr)
        super().__init__(params, {"lr": lr})

    # torch's own signature has closures that return float.
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:  # type: ignore[override]
        """Take one step along the gradients in ``.grad``, or those of ``closure`` (loss-only or standard)."""
        loss = StepLoss.of(closure, self.all_parameters(), either=True)() if closure is not None else None
        length = self.gradient_norm()
        if length > 0.0:
            for group in self.param_groups:
                self.descend(group, float(group["lr"]) / length)
        return loss
