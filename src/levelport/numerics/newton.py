"""Newton's method: its linear system by conjugate gradients, and the whole way to a minimum, to the last digit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from levelport.objective import Objective, Point
from levelport.vectors import inner, norm


@dataclass
class NewtonStep:
    """A truncated solution of the Newton system.

    Attributes:
        step: s; zero if the very first direction had no positive curvature.
        decrease: what the quadratic model predicts for s, ½ gᵀ(∇²f)⁻¹g when solved exactly.
        negative: whether a direction of negative curvature ended the solve; one that is flat ends it, too.
        curvature: gᵀ∇²f g/‖g‖² where that was the very first one; 0 otherwise.
    """

    step: Tensor
    decrease: float = 0.0
    negative: bool = False
    curvature: float = 0.0

    def or_downhill(self, gradient: Tensor) -> Tensor:
        """s, or -∇f where the solve found nothing: a direction of descent in either case."""
        return self.step if self.decrease > 0.0 else -gradient


def hessian_by_columns(point: Point) -> Tensor:
    """∇²f as a symmetric matrix, one HVP per column."""
    identity = torch.eye(point.x.numel(), dtype=point.x.dtype, device=point.x.device)
    matrix = torch.stack([point.hvp(column) for column in identity])
    return 0.5 * (matrix + matrix.T)


def newton_step(point: Point, *, tolerance: float, max_hvps: int) -> NewtonStep:
    """Solve ∇²f s = -∇f at ``point`` to a relative residual of ``tolerance``, with at most ``max_hvps`` products."""
    if point.gradient_norm == 0.0:
        return NewtonStep(torch.zeros_like(point.x))
    # In units of the gradient where its square may leave the range.
    largest = torch.finfo(point.x.dtype).max ** (1.0 / 3.0)
    unit = 1.0 if 1.0 / largest < point.gradient_norm < largest else point.gradient_norm
    residual = -point.gradient / unit
    result = NewtonStep(torch.zeros_like(residual))
    first = point.gradient_norm / unit
    search, energy = residual, first * first
    for _ in range(max_hvps):
        image = point.hvp(search)
        curvature, bound = torch.stack([torch.dot(search, image), norm(search) * norm(image)]).tolist()
        noise = torch.finfo(residual.dtype).eps * bound  # below it the sign of the curvature means nothing
        if not curvature > noise:
            result.negative = curvature < -noise
            if result.negative and result.decrease == 0.0:
                result.curvature = curvature / energy
            break
        length = energy / curvature
        result.step.add_(length * search)  # a factor alpha= must not exceed the range of the dtype
        residual = residual - length * image
        result.decrease += 0.5 * length * energy
        following = inner(residual, residual)
        if following <= (tolerance * first) ** 2:
            break
        search = residual + (following / energy) * search
        energy = following
    if unit != 1.0:
        result.step.mul_(unit)
        result.decrease *= unit * unit
    return result


@dataclass(frozen=True)
class Minimum:
    """A minimizer as found: ``value`` is an upper bound on f* and ``gradient_norm`` says how good.

    For μ-strongly convex f, value - f* ≤ gradient_norm²/(2μ) and ‖x - w*‖ ≤ gradient_norm/μ. ``convex`` is False if
    negative curvature was met on the way: then this is a local minimum at best. ``steps`` counts Newton steps.
    """

    x: Tensor
    value: float
    gradient_norm: float
    convex: bool
    steps: int = 0


def find_minimum(
    objective: Objective,
    start: Tensor | None = None,
    *,
    max_steps: int = 300,
    direction_at: Callable[[Point], Tensor] | None = None,
) -> Minimum:
    """Newton's method from ``start`` (0 by default) until neither the value nor the gradient gets smaller.

    Far away steps are halved until the value falls enough (Armijo). Close to the minimum rounding hides the value's
    decrease; there full steps are taken as long as the gradient norm still falls. The Newton system is solved by
    conjugate gradients, or by ``direction_at``.
    """
    if start is None:
        start = torch.zeros(objective.dimension, dtype=objective.dtype, device=objective.device)
    point = objective.at(start, curvature=True)
    initial, convex = point.gradient_norm, True
    for step in range(max_steps):
        if point.gradient_norm == 0.0:
            return Minimum(point.x, point.value, 0.0, convex, step)
        if direction_at is not None:
            direction = direction_at(point)
        else:
            # Accurate enough for superlinear convergence.
            forcing = 1e-2 * min(0.1, math.sqrt(point.gradient_norm / initial))
            solved = newton_step(point, tolerance=forcing, max_hvps=min(2000, 10 * objective.dimension))
            convex, direction = convex and not solved.negative, solved.or_downhill(point.gradient)
            if solved.curvature < 0.0:  # a length that does not depend on the unit of f
                direction = direction / -solved.curvature
        following = _armijo(objective, point, direction)
        if following is None:
            following = objective.at(point.x + direction, curvature=True)
            if not (following.finite and following.gradient_norm < 0.9 * point.gradient_norm):
                return Minimum(point.x, point.value, point.gradient_norm, convex, step)
        point = following
    return Minimum(point.x, point.value, point.gradient_norm, convex, max_steps)


def _armijo(objective: Objective, point: Point, direction: Tensor) -> Point | None:
    slope = inner(point.gradient, direction)
    resolution = 8 * torch.finfo(objective.dtype).eps * max(abs(point.value), 1e-300)
    length = 1.0
    while length * abs(slope) > resolution:
        x = point.x + length * direction
        if torch.equal(x, point.x):
            return None
        trial = objective.at(x, curvature=True)
        if trial.value <= point.value + 1e-4 * length * slope and trial.finite:
            return trial
        length *= 0.5
    return None
