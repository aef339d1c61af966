"""A solver's run from an evaluated point, with the guarantee upheld and the certificate made.

This is the work behind :func:`levelport.teleport` and behind the teleports of optimizers, which have the value and the
gradient at their point already and need them at the next.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from levelport.objective import Objective, Point
from levelport.objectives.isolation import full_precision
from levelport.solvers.certificate import Certificate
from levelport.solvers.contract import Callback, Monitor, Outcome, Solver, TeleportProblem
from levelport.solvers.result import TeleportResult, TeleportStatus
from levelport.solvers.settings import Settings
from levelport.vectors import all_finite, norm

_LEVEL_SET_SLACK = 1e-9  # relative distance from the level that counts as on it


@dataclass(frozen=True)
class Move:
    """A teleport as optimizers see it.

    Attributes:
        result: for people; its ``x`` is flat.
        point: where it ends, evaluated.
        lower: where it ends at the start, a lower point that the solver found and that is no teleport; or None.
    """

    result: TeleportResult[Tensor]
    point: Point
    lower: Point | None


def teleport_from(
    start: Point, objective: Objective, solver: Solver, settings: Settings, callback: Callback | None = None
) -> tuple[TeleportResult, Point]:
    """Teleport from ``start`` by ``solver``; the result (its ``x`` is flat) and the point it ends at."""
    move = move_from(start, objective, solver, settings, callback)
    return move.result, move.point


def move_from(
    start: Point,
    objective: Objective,
    solver: Solver,
    settings: Settings,
    callback: Callback | None = None,
    *,
    certify: bool = True,
) -> Move:
    """The same with what an optimizer can use besides. Without ``certify`` the solver's own certificate will do."""
    with full_precision(objective.device):
        return _move(start, objective, solver, settings, callback, certify)


def _move(
    start: Point,
    objective: Objective,
    solver: Solver,
    settings: Settings,
    callback: Callback | None,
    certify: bool,
) -> Move:
    began, before = time.perf_counter(), objective.cost
    objective, start = solver.view(objective, start)
    problem = TeleportProblem(
        objective=objective,
        start=start,
        level_set=settings.level_set,
        tol=settings.tol,
        slack=_slack(solver, start, settings.level_set, objective.dtype),
        max_hvps=settings.max_hvps,
        deadline=began + settings.max_seconds,
        radius=settings.radius,
        target_gain=settings.target_gain,
        target_alignment=settings.target_alignment,
        least_decrease=settings.least_decrease,
    )
    monitor = Monitor(problem, callback)
    outcome = _solve(solver, problem, monitor)
    if solver.keeps_guarantee:
        outcome = _uphold_guarantee(outcome, problem)
    point = outcome.point
    if outcome.status is TeleportStatus.NON_FINITE_START:
        certificate = Certificate.unknown()
    elif certify or outcome.certificate is None:
        certificate = Certificate.at(point)
        outcome = replace(outcome, status=_known_by(certificate, outcome, problem))
    else:
        certificate = outcome.certificate
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
        curvature_start=Certificate.at(start).curvature if start.product_sizes is not None else math.nan,
        trace=tuple(monitor.trace),
    )
    return Move(result, point, outcome.lower if point is start else None)


def _solve(solver: Solver, problem: TeleportProblem, monitor: Monitor) -> Outcome:
    """Answer hopeless starts at once; otherwise verify the function and run the solver."""
    start = problem.start
    if not (start.finite and all_finite(start.x)):
        detail = f"f = {start.value}, ‖∇f‖ = {start.gradient_norm}, largest |x| = {float(start.x.abs().max())}"
        return Outcome(start, TeleportStatus.NON_FINITE_START, detail)
    problem.objective.verify_deterministic(start)
    if start.gradient_norm == 0.0:
        return Outcome(start, TeleportStatus.STATIONARY_START)
    doubt = problem.objective.verify_curvature(start)
    if not all_finite(start.hessian_normal):
        detail = "the Hessian-vector product at the start is not finite"
        return Outcome(start, TeleportStatus.NON_FINITE_START, detail)
    outcome = solver.solve(problem, monitor)
    return outcome if doubt is None else replace(outcome, detail="; ".join(filter(None, (outcome.detail, doubt))))


def _known_by(certificate: Certificate, outcome: Outcome, problem: TeleportProblem) -> TeleportStatus:
    """The status of a solver that took no product at its answer, now that there is one."""
    status = outcome.status
    if status in (TeleportStatus.PREDICTED, TeleportStatus.NOT_WORTHWHILE):
        if problem.meets_target(outcome.point, certificate):
            return TeleportStatus.TARGET_REACHED
        if status is TeleportStatus.PREDICTED and _is_kkt(outcome.point, certificate, problem):
            return TeleportStatus.CONVERGED
    return status


def _is_kkt(point: Point, certificate: Certificate, problem: TeleportProblem) -> bool:
    """Whether the KKT conditions hold at ``point``: H g = λ g and, with λ > 0, on the level.

    On the level: what f is short of it is no more than ``tol`` of the decrease ‖g‖²/(2λ) of a Newton step.
    """
    if not certificate.aligned(level_set=problem.level_set, tol=problem.tol):
        return False
    size = point.gradient_norm
    depth = (problem.level - point.value) / size  # in this order: squares may leave the range
    return depth * (certificate.curvature / size) <= 0.5 * problem.tol


def _uphold_guarantee(outcome: Outcome, problem: TeleportProblem) -> Outcome:
    """The start itself in place of a point that raises the loss or shrinks the gradient."""
    point, start = outcome.point, problem.start
    if point is start or problem.fulfilled_by(point):
        return outcome
    return Outcome(start, TeleportStatus.NO_FEASIBLE_GAIN, f"the solver ended with: {outcome.status.value}")


def _slack(solver: Solver, start: Point, level_set: bool, dtype: torch.dtype) -> float:
    """How far f may lie from the level: what the solver asks for, and in level-set mode what rounding asks for."""
    if not start.finite:
        return 0.0
    slack = solver.slack(start.value, dtype)
    if level_set:
        eps = torch.finfo(dtype).eps
        smallest = max(abs(start.value), torch.finfo(dtype).tiny)
        # Where f(w) is near 0, its own size says nothing: the last digits of x move f by eps·‖∇f‖‖x‖.
        resolution = 4.0 * eps * start.gradient_norm * float(norm(start.x))
        slack = max(slack, max(_LEVEL_SET_SLACK, 1e2 * eps) * smallest, resolution)
    return slack
