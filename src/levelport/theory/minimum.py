"""f* and w*, to the last digits: truncated Newton with backtracking, for the convex problems the theorems speak of."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from levelport.numerics.newton import newton_step
from levelport.objective import Objective, Point


@dataclass(frozen=True)
class Minimum:
    """A minimiser as found: ``value`` is an upper bound on f* and ``gradient_norm`` says how good.

    For μ-strongly convex f, value - f* ≤ gradient_norm²/(2μ) and ‖x - w*‖ ≤ gradient_norm/μ. ``convex`` is False if
    negative curvature was met on the way: then this is a local minimum at best and the theorems do not apply.
    """

    x: Tensor
    value: float
    gradient_norm: float
    convex: bool


def find_minimum(objective: Objective, start: Tensor, *, tol: float = 1e-13, max_iterations: int = 300) -> Minimum:
    """Minimise from ``start`` until ‖∇f‖ ≤ tol·‖∇f(start)‖ or until rounding stops it."""
    point = objective.at(start, curvature=True)
    initial, convex = point.gradient_norm, True
    for _ in range(max_iterations):
        if not point.gradient_norm > tol * initial:
            break
        forcing = min(0.1, math.sqrt(point.gradient_norm / initial))
        solved = newton_step(point, tolerance=forcing, max_hvps=10 * objective.dimension)
        convex = convex and not solved.negative
        following = _backtrack(objective, point, solved.or_downhill(point.gradient))
        if following is None:
            break
        point = following
    return Minimum(point.x, point.value, point.gradient_norm, convex)


def _backtrack(objective: Objective, point: Point, direction: Tensor) -> Point | None:
    slope = float(point.gradient @ direction)
    step = 1.0
    while step > 1e-12:
        trial = objective.at(point.x + step * direction, curvature=True)
        if trial.finite and trial.value <= point.value + 1e-4 * step * slope:
            return trial
        # Where f no longer resolves the decrease, a full Newton step that shrinks the gradient is progress.
        if step == 1.0 and trial.finite and trial.value <= point.value + 1e-15 * max(1.0, abs(point.value)):
            return trial if trial.gradient_norm < 0.5 * point.gradient_norm else None
        step *= 0.5
    return None
