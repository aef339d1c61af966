"""Starting points in other basins: points at the level that an ascent from w does not reach.

An ascent ends at the maximum on its own side of the valley. From a point x on the level, where H n ≈ λ n, two searches
for other starting points are cheap:

* :func:`far_side`. Along the normal f(x - t n) = f(w) - ‖g‖ t + ½ λ t² + … returns to the level at t = 2‖g‖/λ. A few
  values find the place.
* :func:`steepest_side`, from the bottom of the valley b = x - (‖g‖/λ) n. A few Lanczos steps there find the directions
  v of the largest curvature θ = ⟨v, H v⟩. In these directions, both ways, the gradient at the level is largest, and on
  a quadratic the level is at the distance √(2 (f(w) - f(b))/θ).

An ascent that has ended in the interior, H n = 0, is at an inflection of the slope between the level and the bottom,
where no λ tells the distance to the bottom: steps down the normal, each twice as long, lead near it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from levelport.numerics.lanczos import KrylovModel
from levelport.objective import Point
from levelport.solvers.contract import Monitor
from levelport.solvers.problem import Frame, TeleportProblem, log_gain, merit, shifted
from levelport.vectors import norm

PRODUCTS = 8
"""Hessian-vector products of :func:`steepest_side`."""

_DIRECTIONS = 3  # that steepest_side tries, each both ways
_BAND = 0.1  # part of the valley's depth below the level, in which a point counts as at the level
_MIDDLE = 1.0 - 0.25 * _BAND  # of the way from the bottom, on a quadratic: away from both ends of the band
_MAX_VALUES = 8
_MAX_STEPS = 30  # down to the level, from a point drawn at random
_DRAWS = 4  # points drawn for each that is chosen
_APART = 0.1  # of the problem's own length: points nearer than that lead to the same maximum
_MUCH_LOWER = 0.7  # in log ‖∇f‖: an ascent from the far side rarely makes up for that
_MIRRORED = 2e-4  # in log ‖∇f‖: the far side is the mirror image of this one, as on a quadratic


def far_side(problem: TeleportProblem, frame: Frame) -> Point | None:
    """The point across the valley, or None where there is none that is worth an ascent. Costs a few values."""
    size, curvature = frame.point.gradient_norm, frame.certificate.curvature
    if curvature <= 0.0:
        return None
    t = -(1.0 + _MIDDLE) * size / curvature
    there = _at_level(problem, frame.point.x, frame.normal, t, 0.5 * size * (size / curvature))
    return there if there is not None and _worth_an_ascent(frame, there, problem) else None


def steepest_side(problem: TeleportProblem, frame: Frame, above: float) -> Point | None:
    """The point with the longest gradient in the directions of largest curvature, if its log gain exceeds ``above``.

    Costs :data:`PRODUCTS` products, and some three values and a gradient per direction and side.
    """
    bottom = _bottom(problem, frame)
    if bottom is None:
        return None
    base, depth, steepest = bottom.x, problem.level - bottom.value, _steepest(bottom)
    del bottom  # its gradient and its product are no longer needed
    found = None
    for theta, vector in steepest:
        for sign in (1.0, -1.0):
            there = _at_level(problem, base, vector, sign * _MIDDLE * math.sqrt(2.0 * depth / theta), depth)
            if there is None:
                continue
            there.release()
            if (gain := _gain_on_level(problem, there, theta)) > above:
                above, found = gain, there
    return found


def sampled(problem: TeleportProblem, monitor: Monitor, length: float, count: int, seed: int = 0) -> list[Point]:
    """At most ``count`` points at the level or below it, far from each other, the longest gradients first.

    Points are drawn around w, at distances of the order of ``length``, and brought down to the level by steps
    (f - f(w)) ∇f/‖∇f‖². Costs values and gradients only, some ten per point drawn.
    """
    generator, start = torch.Generator("cpu").manual_seed(seed), problem.start
    found = []
    for _ in range(_DRAWS * count):
        if monitor.should_stop() is not None:
            break
        draw = torch.randn(start.x.numel(), generator=generator, dtype=torch.float64, device="cpu").to(start.x)
        spread = 2.0 ** float(torch.randint(-2, 3, (), generator=generator, device="cpu"))
        point = _lowered(problem, problem.objective.at(start.x + spread * length * draw, curvature=True))
        if point is not None:
            point.release()
            found.append(point)
    chosen: list[Point] = []
    for point in sorted(found, key=lambda point: -point.gradient_norm):
        if all(float(norm(point.x - other.x)) > _APART * length for other in chosen):
            chosen.append(point)
    return chosen[:count]


def _lowered(problem: TeleportProblem, point: Point) -> Point | None:
    """A point at the level, from any point: down by Newton steps for f = f(w), or up along the gradient; or None."""
    for _ in range(_MAX_STEPS):
        if not (point.finite and point.gradient_norm > 0.0):
            return None
        excess, size = point.value - problem.level, point.gradient_norm
        if excess <= 0.0:
            break
        step = (excess / size + 1e-3 * _BAND * excess / size) / size
        point = problem.objective.at(shifted(point.x, point.gradient, -step), curvature=True)
    if point.value > problem.level:
        return None
    depth = problem.level - point.value
    up = _at_level(problem, point.x, point.normal, depth / point.gradient_norm, depth)
    best = point if up is None or up.gradient_norm < point.gradient_norm else up
    return best if problem.within_radius(best) else None


def _steepest(point: Point) -> list[tuple[float, Tensor]]:
    """The largest positive Ritz values and their vectors, after :data:`PRODUCTS` products."""
    model = KrylovModel(point, PRODUCTS)
    while not model.exhausted and model.extend():
        pass
    point.release()
    largest = [(float(model.ritz_values[-i]), -i) for i in range(1, min(_DIRECTIONS, model.size) + 1)]
    return [(theta, model.ritz_vector(index)) for theta, index in largest if theta > 0.0]


def _bottom(problem: TeleportProblem, frame: Frame) -> Point | None:
    """The lowest of some points down the normal; None where none is below the level and lower than ``frame``.

    The first is where the parabola along the normal has its bottom, or in the interior as far down as the level is up;
    steps are doubled while f falls.
    """
    here, curvature = frame.point, frame.certificate.curvature
    size, depth = here.gradient_norm, problem.level - here.value
    resolution = 1e2 * torch.finfo(problem.objective.dtype).eps * abs(problem.level)
    if not frame.finite or (curvature <= 0.0 if frame.on_level else depth <= resolution):
        return None
    t = size / curvature if frame.on_level else depth / size
    lowest, value = None, min(here.value, problem.level - resolution)
    for _ in range(_MAX_VALUES):
        point = problem.objective.at(shifted(here.x, frame.normal, -t), curvature=True)
        if point.value < value:
            lowest, value, t = point, point.value, 2.0 * t
        elif lowest is not None:
            break
        else:
            t *= 0.25
    return lowest if lowest is not None and lowest.finite and lowest.gradient_norm > 0.0 else None


def _at_level(problem: TeleportProblem, base: Tensor, direction: Tensor, t: float, depth: float) -> Point | None:
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


def _gain_on_level(problem: TeleportProblem, point: Point, curvature: float) -> float:
    """log of the gain that ``point`` will have on the level, where ‖∇f‖² has grown by 2θ per unit of f."""
    size = point.gradient_norm
    left = 1.0 + 2.0 * curvature * ((problem.level - point.value) / size) / size
    return log_gain(point, problem) + 0.5 * math.log(left)


def _worth_an_ascent(frame: Frame, there: Point, problem: TeleportProblem) -> bool:
    """Return True unless the gradient across the valley is much smaller, or the far side mirrors this one.

    On a quadratic, where it does, ‖g - t H n‖² = ‖g‖² + ‖t P H n‖² once both points are put onto the level.
    """
    t = float(torch.dot(frame.normal, frame.point.x - there.x))
    higher = merit(frame, there, problem) - merit(frame, frame.point, problem)
    mirrored = math.log(math.hypot(1.0, t * frame.certificate.kkt_residual))
    return higher > -_MUCH_LOWER and abs(higher - mirrored) > _MIRRORED
