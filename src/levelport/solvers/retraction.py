"""Back to the level: Newton's method for f(x - t g) = f(w) along the gradient g, from either side."""

from __future__ import annotations

import torch

from levelport.objective import Point
from levelport.solvers.contract import TeleportProblem


def retract(problem: TeleportProblem, point: Point, *, max_gradients: int = 6) -> Point:
    """A point near ``point`` with f(w) - band ≤ f ≤ f(w), or the nearest that was found.

    Each step costs one gradient. The band is 1e-8 of ‖g‖²/(2λ), the decrease that a Newton step promises from here, and
    never below the resolution of f: the loss of gradient norm that it allows is of the order 1e-8.
    """
    objective, level = problem.objective, problem.level
    resolution = 4.0 * torch.finfo(objective.dtype).eps * abs(level)
    best = point
    for _ in range(max_gradients):
        size = point.gradient_norm
        if not point.finite or size == 0.0:
            break
        band = max(1e-8 * _newton_decrease(point), resolution)
        if problem.level_set:
            band = min(band, 0.5 * problem.slack)
        excess = point.value - level
        if -band <= excess <= (band if problem.level_set else 0.0):
            return point
        aim = 0.0 if problem.level_set else -0.5 * band
        step = (excess - aim) / size
        trial = objective.at(point.x - (step / size) * point.gradient, curvature=True)
        if not trial.finite or abs(trial.value - level) > max(abs(excess), 2.0 * band):
            break
        point = trial
        if problem.feasible(point.value) and (not problem.feasible(best.value) or point.value > best.value):
            best = point
    return best if problem.feasible(best.value) else point


def _newton_decrease(point: Point) -> float:
    """½ ‖g‖²/λ with λ from the point's HVP if it has been spent, else 0."""
    if not point.knows_hessian_normal:
        return 0.0
    curvature = float(torch.dot(point.normal, point.hessian_normal))
    return 0.5 * point.gradient_norm * (point.gradient_norm / curvature) if curvature > 0.0 else 0.0
