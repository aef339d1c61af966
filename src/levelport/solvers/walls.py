"""Walls of the valley: places on the level that an ascent has not come from, found by looking instead of walking.

An ascent ends at the maximum on its own side. From a point x on the level, H n = λ n nearly, two looks are cheap:

* *Across*. Along the normal f(x - t n) = f(w) - ‖g‖ t + ½ λ t² + … comes back to the level at t = 2‖g‖/λ, on the
  opposite wall. A few values find the place.
* *Around*, from the bottom of the valley b = x - (‖g‖/λ) n. A few Lanczos steps there find the directions v in which f
  bends most, θ = ⟨v, H v⟩. The walls in these directions, both ways, are the steepest, and on a quadratic they stand at
  √(2 (f(w) - f(b))/θ). How long the gradient is there shows which of them is worth an ascent.

An ascent that has ended in the interior, H n = 0, is at an inflection of the slope between the level and the bottom.
It has no λ to tell how far down the bottom is: some steps down the normal, each twice as long, lead near it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from levelport.numerics.lanczos import KrylovModel
from levelport.objective import Point
from levelport.solvers.ascent import log_gain, merit
from levelport.solvers.certificate import Frame
from levelport.solvers.contract import TeleportProblem
from levelport.solvers.retraction import shifted

PRODUCTS = 8
"""Hessian-vector products of a look around."""

_DIRECTIONS = 3  # of a look around, each both ways
_BAND = 0.1  # part of the valley's depth below the level, in which a wall is met
_MIDDLE = 1.0 - 0.25 * _BAND  # of the way from the bottom, on a quadratic: roundings do not decide what comes next
_MAX_VALUES = 8
_MUCH_LOWER = 0.7  # in log ‖∇f‖
_MIRRORED = 2e-4  # likewise


def across(problem: TeleportProblem, frame: Frame) -> Point | None:
    """The opposite wall, or None where there is none or none that is worth an ascent of its own. Costs a few values."""
    size, curvature = frame.point.gradient_norm, frame.certificate.curvature
    if curvature <= 0.0:
        return None
    t = -(1.0 + _MIDDLE) * size / curvature
    there = _wall(problem, frame.point.x, frame.normal, t, 0.5 * size * (size / curvature))
    return there if there is not None and _another(frame, there, problem) else None


def around(problem: TeleportProblem, frame: Frame, above: float) -> Point | None:
    """The wall with the longest gradient of those seen from the bottom, if its log gain is larger than ``above``.

    Costs :data:`PRODUCTS` products, and some three values and a gradient per wall.
    """
    bottom = _bottom(problem, frame)
    if bottom is None:
        return None
    base, depth, steepest = bottom.x, problem.level - bottom.value, _steepest(bottom)
    del bottom  # its gradient and its product are no longer needed
    found = None
    for theta, vector in steepest:
        for sign in (1.0, -1.0):
            there = _wall(problem, base, vector, sign * _MIDDLE * math.sqrt(2.0 * depth / theta), depth)
            if there is None:
                continue
            there.release()
            if (height := _height(problem, there, theta)) > above:
                above, found = height, there
    return found


def _steepest(point: Point) -> list[tuple[float, Tensor]]:
    """The largest positive Ritz values and their vectors, after :data:`PRODUCTS` products."""
    model = KrylovModel(point, PRODUCTS)
    while not model.exhausted and model.extend():
        pass
    point.release()
    largest = [(float(model.ritz_values[-i]), -i) for i in range(1, min(_DIRECTIONS, model.size) + 1)]
    return [(theta, model.ritz_vector(index)) for theta, index in largest if theta > 0.0]


def _bottom(problem: TeleportProblem, frame: Frame) -> Point | None:
    """Below the level, where the parabola along the normal has its bottom, or nearer; None where nothing is below."""
    size, curvature = frame.point.gradient_norm, frame.certificate.curvature
    resolution = 1e2 * torch.finfo(problem.objective.dtype).eps * abs(problem.level)
    if frame.finite and not frame.on_level:
        below = frame.point.value < problem.level - resolution
        return _down_the_slope(problem, frame) if below else None
    if not (frame.finite and curvature > 0.0):
        return None
    t = size / curvature
    for _ in range(_MAX_VALUES):
        point = problem.objective.at(shifted(frame.point.x, frame.normal, -t), curvature=True)
        if point.value < problem.level - resolution:
            return point if point.finite and point.gradient_norm > 0.0 else None
        t *= 0.5
    return None


def _down_the_slope(problem: TeleportProblem, frame: Frame) -> Point | None:
    """The lowest of some points down the normal of a point in the interior; None where none is lower than that."""
    here, lowest = frame.point, None
    t = (problem.level - here.value) / here.gradient_norm
    for _ in range(_MAX_VALUES):
        point = problem.objective.at(shifted(here.x, frame.normal, -t), curvature=True)
        if point.value < (here if lowest is None else lowest).value:
            lowest, t = point, 2.0 * t
        elif lowest is not None:
            break
        else:
            t *= 0.25
    return lowest if lowest is not None and lowest.finite and lowest.gradient_norm > 0.0 else None


def _wall(problem: TeleportProblem, base: Tensor, direction: Tensor, t: float, depth: float) -> Point | None:
    """base + t·direction, t near the given one, between the level and a tenth of ``depth`` below it; or None.

    t is doubled until f is above the level, then the bracket halved.
    """
    inside, outside = 0.0, math.copysign(math.inf, t)
    for _ in range(_MAX_VALUES):
        there = problem.objective.at(shifted(base, direction, t), curvature=True)
        excess = there.value - problem.level
        if -_BAND * depth <= excess <= 0.0:
            return there if there.finite and there.gradient_norm > 0.0 and problem.within_radius(there) else None
        inside, outside = (t, outside) if excess < 0.0 else (inside, t)
        t = 0.5 * (inside + outside) if math.isfinite(outside) else 2.0 * t
    return None


def _height(problem: TeleportProblem, wall: Point, curvature: float) -> float:
    """log of the gain that ``wall`` will have on the level, where ‖∇f‖² has grown by 2θ per unit of f."""
    size = wall.gradient_norm
    left = 1.0 + 2.0 * curvature * ((problem.level - wall.value) / size) / size
    return log_gain(wall, problem) + 0.5 * math.log(left)


def _another(frame: Frame, there: Point, problem: TeleportProblem) -> bool:
    """Whether the opposite wall is worth an ascent of its own.

    It hardly ever is where its gradient is much smaller, as on most networks; and never if it is the mirror image of
    this one. On a quadratic, where it is, ‖g - t H n‖² = ‖g‖² + ‖t P H n‖² once both points are put onto the level.
    """
    t = float(torch.dot(frame.normal, frame.point.x - there.x))
    higher = merit(frame, there, problem) - merit(frame, frame.point, problem)
    mirrored = math.log(math.hypot(1.0, t * frame.certificate.kkt_residual))
    return higher > -_MUCH_LOWER and abs(higher - mirrored) > _MIRRORED
