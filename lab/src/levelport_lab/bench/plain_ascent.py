"""Two textbook methods for comparison: Riemannian nonlinear conjugate gradients and L-BFGS on the level set, from w.

They share nothing with the default solver but the final retraction to the level. At x with
n = ∇f/‖∇f‖ and r = (H n - ⟨n, H n⟩ n)/‖∇f‖, the gradient of log ‖∇f‖ along the level set:

* direction: d = r + β d₋ with Polak and Ribière's β₊, or d = B⁻¹ r by L-BFGS with 30 pairs; both in the tangent space;
* trial: x + a d, brought back along n by the secant method on values, then a gradient;
* Armijo's rule on log ‖∇f‖ with halving; after a failed search one restart along r, then the end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from levelport.numerics.lbfgs import QuasiNewton
from levelport.objective import Point
from levelport.solvers.contract import Monitor, Outcome, Solver
from levelport.solvers.problem import Certificate, TeleportProblem, retract
from levelport.solvers.result import TeleportStatus

_PAIRS = 30  # of L-BFGS: as many as the default solver keeps on these problems


@dataclass(frozen=True)
class PlainAscent(Solver):
    """Nonlinear conjugate gradients ("cg") or L-BFGS ("lbfgs") from w, with a line search and a retraction."""

    method: Literal["cg", "lbfgs"]

    def solve(self, problem: TeleportProblem, monitor: Monitor) -> Outcome:
        """Climb until the budget is spent or no step helps."""
        point, model, restarted = problem.start, QuasiNewton(_PAIRS), False
        previous: tuple[Tensor, Tensor, Tensor] | None = None  # x, r and d of the iteration before
        length = math.nan
        status = TeleportStatus.STALLED
        while True:
            certificate = Certificate.at(point)
            monitor.record(point, certificate, length)
            monitor.offer(point)
            if certificate.misalignment <= problem.tol:
                status = TeleportStatus.CONVERGED
                break
            if (stop := monitor.should_stop(hvps_needed=2)) is not None:
                status = stop
                break
            normal, ascent = point.normal, _ascent(point)
            direction = ascent
            if previous is not None and self.method == "lbfgs":
                s, y = _tangent(point.x - previous[0], normal), _tangent(previous[1] - ascent, normal)
                model.update(s, y)
                direction = _tangent(model.apply(ascent), normal)
            elif previous is not None:
                change = ascent - _tangent(previous[1], normal)
                beta = float(torch.dot(ascent, change) / torch.dot(previous[1], previous[1]))
                direction = ascent + max(0.0, beta) * _tangent(previous[2], normal)
            if float(torch.dot(direction, ascent)) <= 0.0:
                direction = ascent
            size = float(torch.linalg.vector_norm(direction))
            if not (math.isfinite(length) and length > 0.0):
                length = 0.5 * point.gradient_norm / float(torch.linalg.vector_norm(point.hessian_normal))
            first = 1.0 if self.method == "lbfgs" and model.informed else 2.0 * length / size
            found = _search(problem, point, direction, float(torch.dot(direction, ascent)), first)
            if found is None:
                if restarted:
                    break
                model, previous, restarted = QuasiNewton(_PAIRS), None, True
                length *= 0.1
                continue
            previous, restarted = (point.x, ascent, direction), False
            point, length = found[0], found[1] * size
        monitor.offer(retract(problem, point))
        return Outcome(monitor.best, status)


def _ascent(point: Point) -> Tensor:
    return _tangent(point.hessian_normal, point.normal) / point.gradient_norm


def _tangent(v: Tensor, normal: Tensor) -> Tensor:
    return v - torch.dot(v, normal) * normal


def _search(
    problem: TeleportProblem, here: Point, direction: Tensor, slope: float, step: float
) -> tuple[Point, float] | None:
    """Halve until log ‖∇f‖ has grown by a fraction of the predicted growth."""
    normal, size = here.normal, here.gradient_norm
    curvature = abs(float(torch.dot(normal, here.hessian_normal)))
    length = float(torch.linalg.vector_norm(direction))
    for _ in range(15):
        # The error |f - f(w)| may cost a tenth of the growth, and a twentieth of the change of f along the step.
        tolerance = 0.05 * step * length * size
        if curvature > 0.0:
            tolerance = min(tolerance, 0.1 * min(step * slope, 1.0) * size * size / curvature)
        there = _back(problem, here.x + step * direction, normal, size, step * length, tolerance)
        if there is not None and there.finite and there.gradient_norm > 0.0:
            growth = math.log(there.gradient_norm / size)
            if growth >= 1e-4 * step * slope:
                return there, step
        step *= 0.5
    return None


def _back(
    problem: TeleportProblem, x: Tensor, normal: Tensor, rate: float, length: float, tolerance: float
) -> Point | None:
    """x + t n near the level, by secants on values; None if that is further than ``length`` away."""
    trial = problem.objective.at(x, curvature=True)
    t, excess = 0.0, trial.value - problem.level
    for _ in range(5):
        if not math.isfinite(excess):
            return None
        if abs(excess) <= tolerance:
            return trial
        if not rate > 0.0 or abs(t - excess / rate) > length:
            return None
        change = -excess / rate
        trial = problem.objective.at(x + (t + change) * normal, curvature=True)
        rate = (trial.value - problem.level - excess) / change
        t, excess = t + change, trial.value - problem.level
    return None
