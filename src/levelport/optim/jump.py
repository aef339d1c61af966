"""The teleport inside an optimizer: from a point that is already evaluated to one that is, too.

:func:`levelport.teleport` starts from a tensor and returns one. An optimizer has the value and gradient at its point
and needs them at the next, so this does the same work on :class:`~levelport.objective.Point` and evaluates neither end
twice.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

from levelport.objective import Objective, Point
from levelport.teleport import Certificate, Progress, Status, Task, Teleporter, TeleportResult, solver_named
from levelport.teleport.front_door import _slack, _solve, _uphold_guarantee


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

    def begin(self) -> Jump:
        """The teleports of one run; this one remembers nothing from one to the next."""
        return self

    def __call__(self, objective: Objective, start: Point) -> tuple[TeleportResult, Point]:
        """Teleport from ``start``; the result (its ``x`` is flat) and the point it ends at."""
        method: Teleporter = solver_named(self.solver) if isinstance(self.solver, str) else self.solver
        began, before = time.perf_counter(), objective.cost
        task = Task(
            objective=objective,
            start=start,
            level_set=self.level_set,
            tol=self.tol,
            slack=_slack(method, start.value, self.level_set, objective.dtype),
            max_hvps=self.max_hvps,
            radius=self.radius,
            target_gain=self.target_gain,
            target_alignment=self.target_alignment,
        )
        outcome = _solve(method, task, Progress(task))
        if getattr(method, "final", "feasible") != "last":
            outcome = _uphold_guarantee(outcome, task)
        point = outcome.point
        if outcome.status is Status.NON_FINITE_START:
            certificate = Certificate(math.nan, math.nan, math.nan)
        else:
            certificate = Certificate.at(point)
        result = TeleportResult(
            x=point.x,
            status=outcome.status,
            value=point.value,
            value_start=start.value,
            gradient_norm=point.gradient_norm,
            gradient_norm_start=start.gradient_norm,
            certificate=certificate,
            cost=replace(objective.cost - before, seconds=time.perf_counter() - began),
            detail=outcome.detail,
        )
        return result, point
