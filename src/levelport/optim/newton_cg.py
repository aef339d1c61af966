"""Newton's method with conjugate gradients: second order, with Hessian-vector products only.

The direction d solves ∇²f d = -∇f approximately: CG stops at a relative residual of min(½, √‖∇f‖) (superlinear
convergence: Dembo and Steihaug, 1983), at a limit of HVPs, or where it meets a direction of non-positive curvature.
In that case the direction found so far is taken, or -∇f if there is none: both descend.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from levelport import checks
from levelport.numerics.newton import newton_step
from levelport.numerics.strong_wolfe import strong_wolfe
from levelport.objective import Objective, Point
from levelport.objectives.parameters import ParametersObjective
from levelport.optim.closures import FlatOptimizer, StepLoss
from levelport.optim.step_rule import Arrival, Step, StepRule


def newton_direction(point: Point, max_hvps: int) -> Tensor:
    """d ≈ -(∇²f)⁻¹ ∇f at ``point`` by truncated CG; always a descent direction."""
    solved = newton_step(point, tolerance=min(0.5, math.sqrt(point.gradient_norm)), max_hvps=max_hvps)
    return solved.or_downhill(point.gradient)


@dataclass(frozen=True)
class Newton(StepRule):
    """The step rule for :func:`levelport.minimize`.

    Args:
        max_hvps: Hessian-vector products per step.
        step: a fixed step length (the paper takes 0.8), or "strong-wolfe".
    """

    max_hvps: int = 50
    step: float | Literal["strong-wolfe"] = "strong-wolfe"

    def __post_init__(self) -> None:
        checks.whole("max_hvps", self.max_hvps, at_least=1)
        check_line_search(self.step)

    @property
    def safe_after_teleport(self) -> bool:
        return True

    def advance(self, objective: Objective, point: Point, state: Any, arrival: Arrival | None) -> Step:
        direction = newton_direction(point, self.max_hvps)
        if self.step != "strong-wolfe":
            return Step(objective.at(point.x + self.step * direction, curvature=True), None, self.step)
        found = strong_wolfe(lambda x: objective.at(x, curvature=True), point, direction)
        return Step(None, None, 0.0) if found is None else Step(found[1], None, found[0])


class NewtonCG(FlatOptimizer):
    """Newton-CG as a torch optimizer. ``step`` needs a loss-only closure.

    Args:
        params: parameters or groups; one direction for all.
        lr: the step length, each group's own; with a line search, the first trial, which must be the same for all.
        max_hvps: Hessian-vector products per step.
        line_search: None takes the step ``lr``; "strong-wolfe" searches.

    ``param_groups[0]["hvps"]`` counts the HVPs spent, ``["step_size"]`` is the length last taken.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1.0,
        *,
        max_hvps: int = 50,
        line_search: Literal["strong-wolfe"] | None = "strong-wolfe",
    ) -> None:
        checks.positive(lr=lr)
        checks.whole("max_hvps", max_hvps, at_least=1)
        if line_search is not None:
            check_line_search(line_search)
        defaults = {"lr": lr, "max_hvps": max_hvps, "line_search": line_search, "hvps": 0, "step_size": 0.0}
        super().__init__(params, defaults)

    # torch's own signature has closures that return float.
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor:  # type: ignore[override]
        """Evaluate the loss, solve for the direction and take the step."""
        step_loss = StepLoss.of(self.required(closure), self.all_parameters())
        loss = step_loss()
        settings = self.param_groups[0]
        objective = ParametersObjective(
            self.parameters(), step_loss.raw, noise="replay", random_state=step_loss.random_state
        )
        start = objective.at(objective.current(), curvature=True)
        end, size = start.x, 0.0
        try:
            direction = newton_direction(start, settings["max_hvps"])
            lengths = [float(group["lr"]) for group in self.param_groups]
            if settings["line_search"] is None:
                end, size = start.x + self._spread(lengths) * direction, lengths[0]
            elif len(set(lengths)) > 1:
                raise ValueError(
                    f"with a line search all groups must have the same lr, not {lengths}; or use line_search=None."
                )
            else:
                found = strong_wolfe(objective.at, start, direction, initial=lengths[0])
                if found is not None:
                    size, end = found[0], found[1].x
        finally:
            objective.load(end)
            step_loss.charge(objective.cost)
        settings["hvps"] += objective.cost.hvps
        settings["step_size"] = size
        return loss

    def _spread(self, lengths: list[float]) -> Tensor:
        """Every group's lr, once per entry of its parameters."""
        parts = [
            torch.full_like(p.detach().reshape(-1), length)
            for group, length in zip(self.param_groups, lengths, strict=True)
            for p in group["params"]
            if p.requires_grad
        ]
        return torch.cat(parts)


def check_line_search(step: float | str) -> None:
    """Raise unless ``step`` is a positive length or the name of the search."""
    if isinstance(step, str):
        checks.one_of("a line search", step, ("strong-wolfe",))
    else:
        checks.positive(step=step)
