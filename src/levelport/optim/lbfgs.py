"""L-BFGS with a strong-Wolfe line search: the cheapest way through most smooth problems, with no teleport in it.

    x⁺ = x - t B⁻¹ ∇f(x),

B⁻¹ from the last pairs of steps and gradient changes (:mod:`levelport.numerics.lbfgs`), t by
:mod:`levelport.numerics.strong_wolfe`, t = 1 first. Any schedule of teleports can be combined with it; the pairs
survive a teleport, because they describe f and not the path.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from levelport import checks
from levelport.numerics.lbfgs import QuasiNewton
from levelport.numerics.strong_wolfe import strong_wolfe
from levelport.objective import Objective, Point
from levelport.optim.step_rule import Step, after_teleport
from levelport.solvers import TeleportResult
from levelport.vectors import norm


@dataclass(frozen=True)
class LBFGS:
    """The step rule for :func:`levelport.minimize`.

    Args:
        memory: pairs kept, two vectors of x's size each; None takes 60, or down to 10 for large models.
    """

    memory: int | None = None

    def __post_init__(self) -> None:
        if self.memory is not None:
            checks.whole("memory", self.memory, at_least=1, why="None chooses it by the size of x")

    def advance(self, objective: Objective, point: Point, state: Any, teleport: TeleportResult | None) -> Step:
        model = state if isinstance(state, QuasiNewton) else QuasiNewton(self._pairs(objective.dimension))
        if model.informed:
            found = strong_wolfe(objective.at, point, -model.apply(point.gradient))
            if found is None:
                model.forget()  # it leads astray: what it knows is of other regions
        if not model.informed:
            size = point.gradient_norm
            initial = after_teleport(teleport) or min(1.0, 1.0 / size if size > 0.0 else 1.0)
            if size > 0.0:  # no less than what shows in x, whatever its unit
                initial = max(initial, math.sqrt(torch.finfo(objective.dtype).eps) * (float(norm(point.x)) / size))
            found = strong_wolfe(objective.at, point, -point.gradient, initial=initial)
        if found is None:
            return Step(None, model, 0.0)
        length, new = found
        model.update(new.x - point.x, new.gradient - point.gradient)
        return Step(new, model, length)

    def _pairs(self, dimension: int) -> int:
        """Sixty pairs of up to 140 000 numbers, then as many as fit into 2²⁴ numbers, at least ten."""
        return self.memory or max(10, min(60, 2**23 // dimension))
