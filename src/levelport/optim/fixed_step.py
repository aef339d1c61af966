"""Gradient descent with a fixed step, with and without momentum. The torch optimizer for both is torch's SGD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from levelport.objective import Objective, Point
from levelport.optim.step_rule import Step, after_teleport, check_positive
from levelport.solvers import TeleportResult


@dataclass(frozen=True)
class FixedStep:
    """x⁺ = x - lr ∇f(x).

    Args:
        lr: the step size.
        first_step: "curvature" takes the first step after a teleport with 1/λ instead, λ = ⟨g, ∇²f g⟩/‖g‖²: at a KKT
            point of the teleport that is a Newton step. "lr" keeps the step fixed.
    """

    lr: float
    first_step: Literal["lr", "curvature"] = "lr"

    def __post_init__(self) -> None:
        check_positive(lr=self.lr)
        if self.first_step not in ("lr", "curvature"):
            raise ValueError(f"first_step must be 'lr' or 'curvature', not {self.first_step!r}.")

    def advance(self, objective: Objective, point: Point, state: Any, teleport: TeleportResult | None) -> Step:
        known = after_teleport(teleport) if self.first_step == "curvature" else None
        size = self.lr if known is None else known
        return Step(objective.at(point.x - size * point.gradient), None, size)


@dataclass(frozen=True)
class Momentum:
    """Heavy ball as torch's SGD has it: b ← momentum b + (1 - dampening) ∇f(x), b₀ = ∇f(x₀); x⁺ = x - lr b.

    Args:
        lr: the step size.
        momentum, dampening: the paper's experiments take 0.9 for both.
        at_teleport: "keep" the direction across a teleport, or "reset" it to the gradient there.
    """

    lr: float
    momentum: float = 0.9
    dampening: float = 0.9
    at_teleport: Literal["keep", "reset"] = "keep"

    def __post_init__(self) -> None:
        check_positive(lr=self.lr)
        if not 0.0 <= self.momentum < 1.0 or not 0.0 <= self.dampening <= 1.0:
            raise ValueError(
                f"momentum must lie in [0, 1) and dampening in [0, 1], not {self.momentum} and {self.dampening}."
            )
        if self.at_teleport not in ("keep", "reset"):
            raise ValueError(f"at_teleport must be 'keep' or 'reset', not {self.at_teleport!r}.")

    def advance(self, objective: Objective, point: Point, state: Any, teleport: TeleportResult | None) -> Step:
        buffer: Tensor | None = None if teleport is not None and self.at_teleport == "reset" else state
        gradient = point.gradient
        buffer = gradient if buffer is None else self.momentum * buffer + (1.0 - self.dampening) * gradient
        return Step(objective.at(point.x - self.lr * buffer), buffer, self.lr)
