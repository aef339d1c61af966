"""Gradient descent with a fixed step size, with and without momentum (in torch: SGD), or a fixed step length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from levelport import checks
from levelport.objective import Objective, Point
from levelport.optim.first_step import StabilityLimit
from levelport.optim.step_rule import Step, StepRule


@dataclass(frozen=True)
class FixedStep(StepRule):
    """x⁺ = x - lr ∇f(x).

    Args:
        lr: the step size.
    """

    lr: float

    def __post_init__(self) -> None:
        checks.positive(lr=self.lr)

    @property
    def stability_limit(self) -> StabilityLimit:
        return StabilityLimit.fixed(self.lr)

    def advance(self, objective: Objective, point: Point, state: Any, newton: float | None) -> Step:
        return Step(objective.at(point.x - self.lr * point.gradient), None, self.lr)


@dataclass(frozen=True)
class Momentum(StepRule):
    """Heavy ball as torch's SGD has it: b ← momentum b + (1 - dampening) ∇f(x), b₀ = ∇f(x₀); x⁺ = x - lr b.

    Args:
        lr: the step size.
        momentum, dampening: the paper's experiments take 0.9 for both.
    """

    lr: float
    momentum: float = 0.9
    dampening: float = 0.9

    def __post_init__(self) -> None:
        checks.positive(lr=self.lr)
        checks.number("momentum", self.momentum, at_least=0.0, below=1.0)
        checks.number("dampening", self.dampening, at_least=0.0, at_most=1.0)

    @property
    def stability_limit(self) -> StabilityLimit:
        return StabilityLimit.fixed(self.lr, self.momentum, self.dampening)

    def advance(self, objective: Objective, point: Point, state: Any, newton: float | None) -> Step:
        new = point.gradient
        buffer = new if state is None else self.momentum * state + (1.0 - self.dampening) * new
        return Step(objective.at(point.x - self.lr * buffer), buffer, self.lr)


@dataclass(frozen=True)
class Normalized(StepRule):
    """x⁺ = x - lr ∇f(x)/‖∇f(x)‖: the direction is the gradient's, the length is lr, however steep the slope.

    Args:
        lr: the length of a step.
    """

    lr: float

    def __post_init__(self) -> None:
        checks.positive(lr=self.lr)

    def advance(self, objective: Objective, point: Point, state: Any, newton: float | None) -> Step:
        size = self.lr / point.gradient_norm if point.gradient_norm > 0.0 else 0.0
        return Step(objective.at(point.x - size * point.gradient), None, size)
