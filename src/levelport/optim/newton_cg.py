"""Newton's method with conjugate gradients: second order, with Hessian-vector products only.

The direction d solves ∇²f d = -∇f approximately: CG stops at a relative residual of min(½, √‖∇f‖) (superlinear
convergence: Dembo and Steihaug, 1983), at a limit of HVPs, or where it meets a direction of non-positive curvature.
In that case the direction found so far is taken, or -∇f if there is none: both descend.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import Tensor

from levelport import checks
from levelport.numerics.newton import newton_step
from levelport.numerics.strong_wolfe import strong_wolfe
from levelport.objective import Objective, Point
from levelport.optim.step_rule import Step, StepRule


def newton_direction(point: Point, max_hvps: int) -> Tensor:
    """d ≈ -(∇²f)⁻¹ ∇f at ``point`` by truncated CG; always a descent direction."""
    solved = newton_step(point, tolerance=min(0.5, math.sqrt(point.gradient_norm)), max_hvps=max_hvps)
    return solved.or_downhill(point.gradient)


@dataclass(frozen=True)
class Newton(StepRule):
    """Newton steps by conjugate gradients, for :func:`levelport.minimize`.

    Args:
        max_hvps: Hessian-vector products per step.
        step: a fixed step length (the paper takes 0.8), or "strong-wolfe".
    """

    max_hvps: int = 50
    step: float | Literal["strong-wolfe"] = "strong-wolfe"

    safe_after_teleport = True

    def __post_init__(self) -> None:
        checks.whole("max_hvps", self.max_hvps, at_least=1)
        if isinstance(self.step, str):
            checks.one_of("a line search", self.step, ("strong-wolfe",))
        else:
            checks.positive(step=self.step)

    def within(self, max_cost: float) -> Newton:
        return self if max_cost >= 2.0 * self.max_hvps else replace(self, max_hvps=max(1, int(0.5 * max_cost)))

    def advance(self, objective: Objective, point: Point, state: Any, newton: float | None) -> Step:
        direction = newton_direction(point, self.max_hvps)
        if self.step != "strong-wolfe":
            return Step(objective.at(point.x + self.step * direction, curvature=True), None, self.step)
        found = strong_wolfe(lambda x: objective.at(x, curvature=True), point, direction)
        return Step(None, None, 0.0) if found is None else Step(found[1], None, found[0])
