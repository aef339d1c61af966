"""Gradient descent with the Armijo line search as the paper runs it.

A step size η is good enough if (Armijo, 1966)

    f(x - η g) ≤ f(x) - c η ‖g‖²,      g = ∇f(x).

Each search starts from the last step size (:mod:`levelport.numerics.armijo`).

Right after a teleport the curvature λ along g is known, and 1/λ is the Newton step. There the largest acceptable
step is the wrong one: along g the quadratic model accepts everything up to 2(1 - c)/λ, and the decrease is best at
1/λ. So that search starts at 1/λ, does not grow, and forgives rounding errors of f in the first trial. The search after
it starts from the last ordinary step size again: 1/λ is short because the gradient there is steep.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from levelport import checks
from levelport.numerics.armijo import Decrease, armijo_search
from levelport.objective import Objective, Point
from levelport.optim.closures import FlatOptimizer
from levelport.optim.step_rule import Step, StepRule, newton_size

_LONGEST = 1e6  # step size of a search, so that one on a function without a minimum ends


@dataclass(frozen=True)
class Armijo(StepRule):
    """Gradient steps by an Armijo line search, for :func:`levelport.minimize`.

    Args:
        c: the share of the predicted decrease that is asked for; ½ is the paper's Algorithm 1, and exact for
            quadratics.
        initial: the first step size to try.
        grow, shrink: factors of the search.
        max_step: the largest step size. None is 10⁶ for searches, whatever the curvature says after a teleport.
        use_curvature: start at 1/λ after a teleport.
    """

    c: float = 0.5
    initial: float = 1.0
    grow: float = 1.25
    shrink: float = 0.8
    max_step: float | None = None
    use_curvature: bool = True

    safe_after_teleport = True

    def __post_init__(self) -> None:
        check_search(self.c, self.initial, self.grow, self.shrink, _LONGEST if self.max_step is None else self.max_step)
        checks.flag("use_curvature", self.use_curvature)

    def advance(self, objective: Objective, point: Point, state: Any, newton: float | None) -> Step:
        known = newton if self.use_curvature else None
        size_of_gradient = point.gradient_norm
        decrease = Decrease.at(point.value, self.c, objective.dtype)
        by_slopes: bool | None = None

        def attempt(size: float) -> Point | None:
            nonlocal by_slopes
            # The accepted trial becomes the next point, so its gradient reuses this forward pass.
            trial = objective.at(point.x - size * point.gradient)
            first_order = size * size_of_gradient * size_of_gradient  # in this order: the square may leave the range
            if by_slopes is None:  # the first trial decides: a step that had to become tiny is no excuse
                by_slopes = known is None and decrease.is_noise(trial.value, first_order)
            if by_slopes:
                # For a quadratic the condition says the same of slopes, which rounding has not reached yet
                # (Hager and Zhang's approximate condition, 2005): ⟨∇f(x - η g), g⟩ ≥ (2c - 1) ‖g‖².
                slope = float(torch.dot(trial.gradient, point.normal))
                good = slope >= (2.0 * self.c - 1.0) * size_of_gradient
                good = good and trial.value <= point.value + decrease.rounding
            else:
                good = decrease.holds(trial.value, first_order, forgive=size == known)
            return trial if good else None

        found = armijo_search(
            attempt,
            known or state or self.initial,
            grow=self.grow if known is None else 1.0,
            shrink=self.shrink,
            max_step=self.max_step or (_LONGEST if known is None else math.inf),
            hopeless=lambda size: not by_slopes and decrease.cannot_show(size * size_of_gradient * size_of_gradient),
        )
        if found is None:
            return Step(None, state, 0.0)
        size, trial = found
        return Step(trial, size if known is None else state, size)


class ArmijoSGD(FlatOptimizer):
    """SGD with the Armijo line search. ``step`` needs a loss-only closure.

    Args:
        params: parameters or groups; one search for all, in which no group moves by more than its own ``lr`` times its
            gradient.
        lr: the largest step size; what LR schedulers change.
        c, initial, grow, shrink: see :class:`Armijo`.

    ``param_groups[0]["step_size"]`` is the step size last taken (0 if none was acceptable, and the parameters did not
    move), ``["next_trial"]`` where the next search starts.
    """

    def __init__(
        self,
        params: Any,
        lr: float = _LONGEST,
        *,
        c: float = 0.5,
        initial: float = 1.0,
        grow: float = 1.25,
        shrink: float = 0.8,
    ) -> None:
        check_search(c, initial, grow, shrink, float(lr))
        settings = {"lr": lr, "c": c, "grow": grow, "shrink": shrink}
        super().__init__(params, {**settings, "next_trial": initial, "newton_step": None, "step_size": 0.0})

    def after_teleport(self, curvature: float) -> None:
        """Start the next search at 1/λ."""
        self.param_groups[0]["newton_step"] = newton_size(curvature)

    # torch's own signature has closures that return float.
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor:  # type: ignore[override]
        """Evaluate the loss, search, and take the step."""
        step_loss = self.loss_of(closure)
        loss = step_loss()
        # The search belongs to all groups; the first one keeps its settings.
        search = self.param_groups[0]
        bounds = [float(group["lr"]) for group in self.param_groups]
        moving = [self.moving(group) for group in self.param_groups]
        squared = [sum(float(gradient.double().square().sum()) for _, gradient in group) for group in moving]
        origin = [[p.detach().clone() for p, _ in group] for group in moving]
        known, search["newton_step"] = search["newton_step"], None
        search["step_size"] = 0.0
        if not (math.isfinite(float(loss)) and 0.0 < sum(squared) < math.inf):
            return loss  # no step can show a decrease
        decrease = Decrease.at(float(loss), search["c"], loss.dtype)

        def move(size: float) -> None:
            for group, saved, bound in zip(moving, origin, bounds, strict=True):
                for (p, gradient), start in zip(group, saved, strict=True):
                    p.detach().copy_(start - min(size, bound) * gradient)

        def attempt(size: float) -> bool | None:
            move(size)
            first_order = sum(min(size, bound) * part for bound, part in zip(bounds, squared, strict=True))
            return decrease.holds(step_loss.value(), first_order, forgive=size == known) or None

        found = armijo_search(
            attempt,
            known or search["next_trial"],
            grow=search["grow"] if known is None else 1.0,
            shrink=search["shrink"],
            max_step=max(bounds),
            hopeless=lambda size: decrease.cannot_show(size * sum(squared)),
        )
        size = 0.0 if found is None else found[0]
        move(size)
        search["step_size"] = size
        if found is not None and known is None:
            search["next_trial"] = size
        return loss


def check_search(c: float, initial: float, grow: float, shrink: float, max_step: float) -> None:
    """Raise where a search with these settings makes no sense."""
    checks.positive(initial=initial)
    checks.number("max_step", max_step, above=0.0)
    checks.number("c", c, above=0.0, below=1.0, why="it is the share of the predicted decrease")
    checks.number("grow", grow, at_least=1.0)
    checks.number("shrink", shrink, above=0.0, below=1.0)
