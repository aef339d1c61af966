"""The Polyak step size: long when f is far above its minimum, bounded by lr.

    x⁺ = x - min(lr, (f(x) - f*)/‖∇f(x)‖²) ∇f(x)

(Polyak, Introduction to Optimization, 1987; with stochastic losses and a bound: Loizou et al., AISTATS 2021.) The
paper's runs take f* = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from levelport import checks
from levelport.objective import Objective, Point
from levelport.optim.closures import FlatOptimizer
from levelport.optim.step_rule import Step, StepRule


def polyak_step(value: float, f_star: float, gradient_norm: float) -> float:
    """(f - f*)/‖g‖², or 0 where f is already at or below f* or the gradient vanishes."""
    # Divided twice: the square may leave the range.
    return max(0.0, value - f_star) / gradient_norm / gradient_norm if gradient_norm > 0.0 else 0.0


@dataclass(frozen=True)
class Polyak(StepRule):
    """Gradient steps of Polyak's size, for :func:`levelport.minimize`.

    Args:
        max_step: the bound lr.
        f_star: f*, or a lower bound of it.
    """

    max_step: float
    f_star: float = 0.0

    def __post_init__(self) -> None:
        checks.number("max_step", self.max_step, above=0.0)
        checks.number("f_star", self.f_star)

    def advance(self, objective: Objective, point: Point, state: Any, newton: float | None) -> Step:
        size = min(self.max_step, polyak_step(point.value, self.f_star, point.gradient_norm))
        return Step(objective.at(point.x - size * point.gradient), None, size)


class PolyakSGD(FlatOptimizer):
    """SGD with the Polyak step size. ``step`` needs a closure, loss-only or standard.

    Args:
        params: parameters or groups; the norm runs over all of them, the bound ``lr`` is each group's own.
        lr: the largest step.
        f_star: f*, or a lower bound of it.

    ``param_groups[i]["step_size"]`` is the step last taken.
    """

    def __init__(self, params: Any, lr: float = 1.0, f_star: float = 0.0) -> None:
        checks.positive(lr=lr)
        checks.number("f_star", f_star)
        super().__init__(params, {"lr": lr, "f_star": f_star, "step_size": 0.0})

    # torch's own signature has closures that return float.
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor:  # type: ignore[override]
        """Evaluate the loss and take one step."""
        loss = self.loss_of(closure, either=True)()
        size = self.gradient_norm()
        for group in self.param_groups:
            group["step_size"] = min(float(group["lr"]), polyak_step(float(loss), group["f_star"], size))
            for p, gradient in self.moving(group):
                p.detach().sub_(gradient, alpha=group["step_size"])
        return loss
