"""Ascent of log ‖∇f‖ in coordinates of a family of moves that leave f alone.

With w(a) the point at coordinates a and J its derivative there, the slope of log ‖∇f(w(a))‖ is Jᵀ ∇²f n/‖∇f‖ with
n = ∇f/‖∇f‖: one Hessian-vector product per step. Steps are normalised, doubled after a success and quartered after a
trial that breaks the level or does not enlarge the gradient; coordinates stay in a ball, because ‖∇f‖ has no maximum.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

from levelport.objective import Point
from levelport.solvers.certificate import Certificate
from levelport.solvers.contract import Monitor, Outcome, TeleportProblem
from levelport.solvers.result import TeleportStatus
from levelport.vectors import all_finite, norm

_TRIALS = 8


def ascend_gradient(
    problem: TeleportProblem,
    monitor: Monitor,
    *,
    chart: Callable[[Tensor], Tensor],
    pull: Callable[[Tensor, Tensor], Tensor],
    length: Callable[[Tensor], float],
    coordinates: Tensor,
    reach: float,
    steps: int,
) -> Outcome:
    """The point with the largest gradient found, and why the ascent ended.

    Args:
        chart: a ↦ w(a); the coordinates passed in give the start.
        pull: (a, v) ↦ Jᵀv.
        length: of coordinates, homogeneous; it is kept within ``reach``.
        steps: at most so many.
    """
    point, step = problem.start, 0.1 * reach
    recorded: Point | None = None

    def ended(status: TeleportStatus, detail: str = "") -> Outcome:
        if point is not recorded:
            monitor.record(point, Certificate.at(point), step)
        return Outcome(point, status, detail)

    for _ in range(steps):
        # One product for this step and one for the certificate of the point returned; the start's is known.
        if (stop := monitor.should_stop(hvps_needed=1 if point.knows_hessian_normal else 2)) is not None:
            return ended(stop)
        monitor.record(point, certificate := Certificate.at(point), step)
        recorded = point
        if problem.meets_target(point, certificate):
            return ended(TeleportStatus.TARGET_REACHED)
        if (stop := monitor.should_stop(hvps_needed=0)) is not None:  # the callback has just been asked
            return ended(stop)
        direction = pull(coordinates, point.hessian_normal)
        size = length(direction) if all_finite(direction) else math.nan
        if not size > problem.tol * float(norm(point.hessian_normal)):
            return ended(TeleportStatus.STALLED)
        trial: Point | None = None
        for _ in range(_TRIALS):
            tried = coordinates + (step / size) * direction
            tried = tried * min(1.0, reach / length(tried))
            trial = problem.objective.at(chart(tried), curvature=True)
            if problem.feasible(trial.value) and monitor.offer(trial):
                break
            trial, step = None, 0.25 * step
        if trial is None:
            return ended(TeleportStatus.STALLED)
        small = trial.gradient_norm < 1.01 * point.gradient_norm
        point, coordinates, step = trial, tried, min(2.0 * step, reach)
        if small and length(coordinates) >= 0.99 * reach:
            return ended(TeleportStatus.TRUST_RADIUS)
    return ended(TeleportStatus.BUDGET_SPENT, f"by the {steps} steps that were asked for")
