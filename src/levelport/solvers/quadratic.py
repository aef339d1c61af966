"""A shortcut for quadratics in few variables: the solution from a model that each evaluation confirms.

With f(b + z) = f(b) + ½ ⟨z, H z⟩, H positive definite and δ = f(w) - f(b), the largest gradient on the level is
√(2 θ δ), at b ± √(2 δ/θ) v for the largest eigenvalue θ of H and its eigenvector v. The Lanczos process at w finds b, θ
and v with at most d products. After the first they are differences of gradients, which are exact where f is a quadratic
whatever the length h of the difference, at half the cost. The value at the other end tells whether f is one:

    f(w + h v) - f(w) = ½ h ⟨∇f(w) + ∇f(w + h v), v⟩.

Where that fails, one gradient was spent. The last one of d products has one unknown number, ⟨v, H v⟩, for which that
value is enough.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from levelport.numerics.lanczos import KrylovModel
from levelport.objective import Objective, Point
from levelport.solvers.certificate import Certificate
from levelport.solvers.contract import Monitor, TeleportProblem
from levelport.solvers.retraction import level_band
from levelport.vectors import norm

FEW = 10
"""Variables up to which the shortcut is tried."""

_ROUNDING = 1e3  # units in the last place of f, of a sum over samples
_EXACT = 1e-6  # of δ, by which f at the solution may miss what the model predicts


class _SecantModel(KrylovModel):
    """The Lanczos model with products from differences of gradients; it stops growing where f is no quadratic."""

    def __init__(self, objective: Objective, start: Point) -> None:
        super().__init__(start, start.x.numel())
        self._objective = objective
        self._h = start.gradient_norm / float(norm(start.hessian_normal))

    def _image(self, v: Tensor) -> Tensor:
        if self.size == 0:
            return super()._image(v)
        here, h = self.point, self._h
        there, eps = self._objective.at(here.x + h * v), torch.finfo(v.dtype).eps
        if 1 < self.size == v.numel() - 1 and eps * abs(here.value) <= _EXACT**2 * h * here.gradient_norm:
            along = float(torch.dot(here.gradient, v))
            return self._off_diagonal[-1] * self._basis[-2] + 2.0 / h * ((there.value - here.value) / h - along) * v
        rise, slopes = there.value - here.value, float(torch.dot(here.gradient + there.gradient, v))
        scale = abs(here.value) + abs(there.value) + h * (here.gradient_norm + there.gradient_norm)
        confirmed = abs(rise - 0.5 * h * slopes) <= _ROUNDING * eps * scale
        return (there.gradient - here.gradient) / h if confirmed else torch.full_like(v, math.nan)


def solution(problem: TeleportProblem, monitor: Monitor) -> tuple[Point, bool] | None:
    """The solution on the side of w, evaluated, and whether the model spans all variables; None if f is no quadratic.

    Costs at most one gradient per variable.
    """
    start, objective = problem.start, problem.objective
    if not 2 <= start.x.numel() <= FEW or Certificate.at(start).misalignment <= problem.tol:
        return None
    model = _SecantModel(objective, start)
    while not model.exhausted:
        if monitor.should_stop() is not None or not model.extend() or not model.convex():
            return None
    coordinates, depth = model.descent()
    theta, v = model.largest, model.ritz_vector(-1)
    if not (math.isfinite(depth) and depth > 0.0):
        return None
    band = level_band(problem, math.sqrt(2.0 * theta) * math.sqrt(depth), theta)
    height = depth if problem.level_set else depth - 0.5 * band
    bottom = model.lift(coordinates)
    side = -1.0 if float(torch.dot(bottom, v)) > 0.0 else 1.0
    point = objective.at(start.x + bottom + side * math.sqrt(2.0 * max(height, 0.0) / theta) * v, curvature=True)
    exact = point.finite and abs(point.value - problem.level) <= _EXACT * depth and problem.within_radius(point)
    return (point, model.size == start.x.numel()) if exact and point.gradient_norm > 0.0 else None
