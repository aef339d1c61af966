"""The teleport inside an optimizer: from a point that is already evaluated to one that is, too.

:func:`levelport.teleport` starts from a tensor and returns one. An optimizer has the value and gradient at its point
and needs them at the next, so this works on :class:`~levelport.objective.Point` and evaluates neither end twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from levelport.objective import Objective, Point
from levelport.solvers import Teleporter, TeleportResult, solver_named
from levelport.solvers.guarantee import teleport_from
from levelport.solvers.recycled import IsEnough, never


@dataclass(frozen=True)
class Jump:
    """How an optimizer teleports.

    Args:
        solver: "auto" (ours), "sqp" (the paper's), or a configured solver.
        max_hvps: budget of Hessian-vector products per teleport.
        tol: KKT tolerance, on sin ∠(∇f, ∇²f ∇f).
        level_set: stay on {f = f(w)} instead of {f ≤ f(w)}.
        radius: largest distance; None lets the solver derive it.
        target_gain, target_alignment: good enough, see :func:`levelport.teleport`.
    """

    solver: str | Teleporter = "auto"
    max_hvps: int = 50
    tol: float = 1e-6
    level_set: bool = False
    radius: float | None = None
    target_gain: float = math.inf
    target_alignment: float = math.inf

    def __post_init__(self) -> None:
        if isinstance(self.solver, str):
            solver_named(self.solver)
        if self.max_hvps < 1:
            raise ValueError(f"max_hvps must be at least 1, not {self.max_hvps}.")
        if not 0.0 < self.tol < 1.0:
            raise ValueError(f"tol must lie between 0 and 1, not {self.tol}: it bounds the sine of an angle.")

    def begin(self, enough: IsEnough = never) -> Jump:
        """The teleports of one run; these remember nothing, and do not ask whether a point is ``enough``."""
        return self

    def __call__(self, objective: Objective, start: Point) -> tuple[TeleportResult, Point]:
        """Teleport from ``start``; the result (its ``x`` is flat) and the point it ends at."""
        method: Teleporter = solver_named(self.solver) if isinstance(self.solver, str) else self.solver
        return teleport_from(
            start,
            objective,
            method,
            level_set=self.level_set,
            max_hvps=self.max_hvps,
            tol=self.tol,
            radius=self.radius,
            target_gain=self.target_gain,
            target_alignment=self.target_alignment,
        )
