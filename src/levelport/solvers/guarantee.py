"""A solver's run from an evaluated point, with the guarantee upheld and the certificate made.

This is the work behind :func:`levelport.teleport` and behind the teleports of optimizers, which have the value and the
gradient at their point already and need them at the next.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace

import torch

from levelport.objective import Objective, Point
from levelport.solvers.contract import Callback, Outcome, Progress, Task, Teleporter
from levelport.solvers.result import Certificate, Status, TeleportResult
from levelport.solvers.sqp import SQP


def teleport_from(
    start: Point,
    objective: Objective,
    method: Teleporter,
    *,
    level_set: bool = False,
    max_hvps: int = 50,
    max_seconds: float = math.inf,
    tol: float = 1e-6,
    radius: float | None = None,
    target_gain: float = math.inf,
    target_alignment: float = math.inf,
    callback: Callback | None = None,
) -> tuple[TeleportResult, Point]:
    """Teleport from ``start``; the result (its ``x`` is flat) and the point it ends at. Arguments are not checked."""
    began, before = time.perf_counter(), objective.cost
    task = Task(
        objective=objective,
        start=start,
        level_set=level_set,
        tol=tol,
        slack=_slack(method, start.value, level_set, objective.dtype),
        max_hvps=max_hvps,
        deadline=began + max_seconds,
        radius=radius,
        target_gain=target_gain,
        target_alignment=target_alignment,
    )
    progress = Progress(task, callback)
    outcome = _solve(method, task, progress)
    if not (isinstance(method, SQP) and method.final == "last"):
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
        trace=tuple(progress.trace),
    )
    return result, point


def _solve(method: Teleporter, task: Task, progress: Progress) -> Outcome:
    """Answer hopeless starts at once; otherwise verify the function and run the solver."""
    start = task.start
    if not start.finite:
        return Outcome(start, Status.NON_FINITE_START, f"f = {start.value}, ‖∇f‖ = {start.gradient_norm}")
    task.objective.verify_deterministic(start)
    if start.gradient_norm == 0.0:
        return Outcome(start, Status.STATIONARY_START)
    task.objective.verify_curvature(start)
    if not bool(torch.isfinite(start.hessian_normal).all()):
        return Outcome(start, Status.NON_FINITE_START, "the Hessian-vector product at the start is not finite")
    return method.solve(task, progress)


def _uphold_guarantee(outcome: Outcome, task: Task) -> Outcome:
    """The start itself in place of a point that raises the loss or shrinks the gradient."""
    point, start = outcome.point, task.start
    if point is start or outcome.status is Status.NON_FINITE_START:
        return outcome
    if _fulfils(point, task):
        return outcome
    return Outcome(start, Status.NO_FEASIBLE_GAIN, f"the solver ended with: {outcome.status.value}")


def _fulfils(point: Point, task: Task) -> bool:
    return (
        point.finite
        and bool(torch.isfinite(point.x).all())
        and task.feasible(point.value)
        and task.within_radius(point)
        and point.gradient_norm >= task.start.gradient_norm
    )


def _slack(method: Teleporter, value: float, level_set: bool, dtype: torch.dtype) -> float:
    """How far f may lie from the level: the least that the mode and the solver can live with."""
    if not math.isfinite(value):
        return 0.0
    magnitude = max(abs(value), torch.finfo(dtype).tiny)
    if isinstance(method, SQP):
        return 1e-6 * magnitude
    return max(1e-9, 1e2 * torch.finfo(dtype).eps) * magnitude if level_set else 0.0
