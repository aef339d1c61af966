"""``levelport.teleport``: a solver's run, with the guarantee upheld and the certificate made.

:func:`teleport` translates between the user's variables and flat vectors. :func:`move_from` is the work behind it and
behind the teleports of optimizers, which have the value and the gradient at their point already and need them at the
next.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

import torch
from torch import Tensor

from levelport import checks
from levelport.numerics.lanczos import KrylovModel
from levelport.objective import Objective, Point
from levelport.objectives.differences import GradientDifferences
from levelport.objectives.distributed import DistributedObjective
from levelport.objectives.function import as_objective
from levelport.objectives.isolation import full_precision
from levelport.objectives.metric import InMetric
from levelport.objectives.structure import X
from levelport.solvers.auto import Auto
from levelport.solvers.contract import Callback, Monitor, Outcome, Solver
from levelport.solvers.krylov import Krylov
from levelport.solvers.problem import Certificate, Limits, State, TeleportProblem
from levelport.solvers.result import TeleportResult, TeleportStatus
from levelport.solvers.sqp import SQP
from levelport.vectors import all_finite, norm

SOLVERS: dict[str, Callable[[], Solver]] = {"auto": Auto, "krylov": Krylov, "sqp": SQP}
"""Solvers by name, with their default settings."""

_LEVEL_SET_SLACK = 1e-9  # relative distance from the level that counts as on it


def teleport(
    fun: Callable[[Any], Tensor] | Objective,
    x: X,
    solver: str | Solver = "auto",
    *,
    level_set: bool = False,
    metric: X | None = None,
    callback: Callback | None = None,
) -> TeleportResult[X]:
    """Move ``x`` to where the gradient is largest without raising the loss.

    Solves max ‖∇f(y)‖ subject to f(y) ≤ f(x) locally, with Hessian-vector products only.

    Args:
        fun: f, a differentiable function of ``x`` that returns a scalar tensor, or an :class:`Objective`.
        x: a tensor, or a list or dict of tensors; for an Objective, a flat vector. Never modified.
        solver: "auto" (ours), "sqp" (the paper's), "krylov" (cheap and rough: what optimizers take before a step), or
            one with limits of its own: ``Auto(max_hvps=200, tol=1e-9)``, see :class:`Solver`.
        level_set: stay on the level set {f = f(x)} instead of the sub-level set {f ≤ f(x)}.
        metric: positive weights m in the structure of ``x``: lengths are √(Σ mᵢ sᵢ²) and gradient norms √(Σ gᵢ²/mᵢ), in
            the result as well; None takes the ordinary norm.
        callback: called as ``callback(row, point)`` in every iteration; a true answer stops the solve.

    Returns:
        A point with f(y) ≤ f(x) + slack and ‖∇f(y)‖ ≥ ‖∇f(x)‖, both evaluated at the very tensor returned, or ``x``
        itself with a status that says why. The slack is the solver's own: 0 for "auto", ``1e-6·max(|f(x)|, tiny)`` for
        "sqp", whose iterates approach the level from outside; in level-set mode it is the allowed distance from the
        level.

    Raises:
        ObjectiveError: the function is not a deterministic, twice differentiable scalar.
        ValueError: an argument makes no sense.

    Example:
        >>> import torch
        >>> booth = lambda w: (w[0] + 2 * w[1] - 7) ** 2 + (2 * w[0] + w[1] - 5) ** 2
        >>> result = teleport(booth, torch.tensor([7.5, -4.0], dtype=torch.float64))
        >>> result.success, round(result.gradient_norm, 4)
        (True, 57.6281)
    """
    chosen = solver_named(solver)
    checks.flag("level_set", level_set)
    if callback is not None:
        checks.function("callback", callback, of="row, point")
    objective, structure, flat = as_objective(fun, x)
    if isinstance(objective, DistributedObjective) and math.isfinite(chosen.max_seconds):
        raise ValueError("max_seconds cannot be used across ranks, whose clocks differ; use max_hvps.")
    start = objective.at(flat, curvature=True)
    if metric is None:
        move = move_from(start, objective, chosen, level_set=level_set, callback=callback)
        point = move.point
    else:
        weighted = InMetric.like(x, objective, metric)
        seen = None if callback is None else lambda row, point: callback(row, weighted.underneath(point))
        move = move_from(weighted.around(start), weighted, chosen, level_set=level_set, callback=seen)
        point = weighted.underneath(move.point)
    # The same result around the user's own kind of variables, which the type of ``replace`` does not allow to change.
    return cast("TeleportResult[X]", replace(move.result, x=structure.unflatten(point.x)))  # type: ignore[arg-type]


def solver_named(solver: str | Solver) -> Solver:
    """Return the solver of that name, or ``solver`` itself."""
    if isinstance(solver, str):
        if solver not in SOLVERS:
            raise checks.unknown_name("solver", solver, SOLVERS)
        return SOLVERS[solver]()
    if isinstance(solver, type):
        raise ValueError(f"solver is the class {solver.__name__}; pass an instance of it: {solver.__name__}().")
    if not isinstance(solver, Solver):
        raise ValueError(
            f"solver must be one of the names {', '.join(SOLVERS)} or a levelport.solvers.Solver, not the "
            f"{type(solver).__name__} {solver!r}."
        )
    return solver


@dataclass(frozen=True)
class Move:
    """A teleport as optimizers see it.

    Attributes:
        result: for people; its ``x`` is flat.
        point: where it ends, evaluated.
        lower: where it ends at the start, a lower point that the solver found and that is no teleport; or None.
        state: what the solver wants to see at the next teleport of the run.
        model: the quadratic model of f around the start, if the solver made one: ``model.ritz_pairs()`` are products
            that have been paid for.
    """

    result: TeleportResult[Tensor]
    point: Point
    lower: Point | None = None
    state: State = field(default_factory=dict)
    model: KrylovModel | None = None


def move_from(
    start: Point,
    objective: Objective,
    solver: Solver,
    state: State | None = None,
    *,
    level_set: bool = False,
    callback: Callback | None = None,
    certify: bool = True,
) -> Move:
    """Teleport from the evaluated point ``start``.

    Args:
        start, objective, solver: from where, on what and how.
        state: :attr:`Move.state` of the teleport before this one of the same run; None begins a run.
        level_set, callback: see :func:`teleport`.
        certify: whether to spend a product on the certificate where the solver has an estimate of its own.
    """
    began, before = time.perf_counter(), objective.cost
    with full_precision(objective.device):
        objective, start = _products(objective, start, solver)
        problem = TeleportProblem(
            objective=objective,
            start=start,
            level_set=level_set,
            slack=_slack(solver, start, level_set, objective.dtype),
            state=state or {},
            **{limit.name: getattr(solver, limit.name) for limit in fields(Limits)},
        )
        monitor = Monitor(problem, callback)
        outcome = _solve(solver, problem, monitor)
        if solver.keeps_guarantee and outcome.point is not start and not problem.fulfilled_by(outcome.point):
            detail = f"the solver ended with: {outcome.status.value}"
            stayed = Outcome(start, TeleportStatus.NO_FEASIBLE_GAIN, detail)
            outcome = replace(stayed, state=outcome.state, model=outcome.model)
        point = outcome.point
        if outcome.status is TeleportStatus.NON_FINITE_START:
            certificate = Certificate()
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
        moved=point is not start,
        trace=tuple(monitor.trace),
    )
    return Move(result, point, outcome.lower if point is start else None, outcome.state, outcome.model)


def _products(objective: Objective, start: Point, solver: Solver) -> tuple[Objective, Point]:
    """f and the start with Hessian-vector products of the kind that the solver asks for."""
    exact = objective.dtype != torch.float64 or objective.cheap_products
    if isinstance(objective, GradientDifferences) or solver.hvp == "exact" or (solver.hvp is None and exact):
        return objective, start
    differences = GradientDifferences(objective)
    return differences, differences.around(start)


def _solve(solver: Solver, problem: TeleportProblem, monitor: Monitor) -> Outcome:
    """Answer hopeless starts at once; otherwise verify the function and run the solver."""
    start, state = problem.start, problem.state
    if not (start.finite and all_finite(start.x)):
        detail = f"f = {start.value}, ‖∇f‖ = {start.gradient_norm}, largest |x| = {float(start.x.abs().max())}"
        return Outcome(start, TeleportStatus.NON_FINITE_START, detail, state=state)
    problem.objective.verify_deterministic(start)
    if start.gradient_norm == 0.0:
        return Outcome(start, TeleportStatus.STATIONARY_START, state=state)
    doubt = problem.objective.verify_curvature(start)
    if not all_finite(start.hessian_normal):
        detail = "the Hessian-vector product at the start is not finite"
        return Outcome(start, TeleportStatus.NON_FINITE_START, detail, state=state)
    outcome = solver.solve(problem, monitor)
    if not isinstance(outcome, Outcome):
        raise TypeError(
            f"{type(solver).__name__}.solve returned a {type(outcome).__name__}; it must return an Outcome, such as "
            "Outcome(monitor.best, TeleportStatus.BUDGET_SPENT)."
        )
    return outcome if doubt is None else replace(outcome, detail="; ".join(filter(None, (outcome.detail, doubt))))


def _known_by(certificate: Certificate, outcome: Outcome, problem: TeleportProblem) -> TeleportStatus:
    """The status of a solver that took no product at its answer, now that there is one."""
    status = outcome.status
    if status in (TeleportStatus.PREDICTED, TeleportStatus.NOT_WORTHWHILE):
        if problem.meets_target(outcome.point, certificate):
            return TeleportStatus.TARGET_REACHED
        if status is TeleportStatus.PREDICTED and _certifies(certificate, outcome.point, problem):
            return TeleportStatus.CONVERGED
    return status


def _certifies(certificate: Certificate, point: Point, problem: TeleportProblem) -> bool:
    """Return True if the KKT conditions hold at ``point``: H g = λ g and, with λ > 0, on the level.

    On the level: what f is short of it is no more than ``tol`` of the decrease ‖g‖²/(2λ) of a Newton step.
    """
    if not certificate.aligned(level_set=problem.level_set, tol=problem.tol):
        return False
    size = point.gradient_norm
    depth = (problem.level - point.value) / size  # in this order: squares may leave the range
    return depth * (certificate.curvature / size) <= 0.5 * problem.tol


def _slack(solver: Solver, start: Point, level_set: bool, dtype: torch.dtype) -> float:
    """Return the allowed distance of f from the level: the solver's slack, and in level-set mode that of rounding."""
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
