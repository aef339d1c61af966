"""Back to the level: the root of f(x - t n) = f(w) along the normal n, by secants on values, from either side.

The first step solves the parabola f - ‖g‖ t + ½ λ t², whose curvature λ the caller knows; the later ones are secants,
kept inside the bracket once there is one. A value costs half a gradient, and only the point returned needs its own.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from levelport.objective import Point
from levelport.solvers.contract import TeleportProblem

_BAND = 1e-10  # of the decrease that a Newton step predicts; costs half as much of the gradient norm
_MAX_VALUES = 10


def parabola_root(excess: float, slope: float, curvature: float) -> float:
    """The smaller t with slope·t - ½ curvature·t² = excess, or that of the tangent where the parabola has none."""
    below = slope * slope - 2.0 * curvature * excess
    return 2.0 * excess / (slope + math.sqrt(below)) if below > 0.0 else excess / slope


def shifted(x: Tensor, v: Tensor, by: float) -> Tensor:
    """x + by·v, infinite where ``by`` is beyond the range of x: torch refuses such a factor in its fused form."""
    return torch.add(x, v, alpha=by) if abs(by) <= torch.finfo(x.dtype).max else x + by * v


def level_band(problem: TeleportProblem, size: float, curvature: float) -> float:
    """How far from the level f may end, at a point with this gradient norm and curvature.

    1e-10 of ‖g‖²/(2|λ|), the decrease that a Newton step predicts: it costs 5e-11 of the gradient norm, and rounding
    does not decide whether a point is inside; never below the resolution of f, which is all where ``curvature`` is 0.
    """
    band = 4.0 * torch.finfo(problem.objective.dtype).eps * abs(problem.level)
    if curvature != 0.0:
        band = max(band, _BAND * 0.5 * size * (size / abs(curvature)))
    return min(band, 0.5 * problem.slack) if problem.level_set else band


def retract(problem: TeleportProblem, point: Point, curvature: float | None = None) -> Point:
    """A point near ``point`` with f(w) - band ≤ f ≤ f(w), :func:`level_band`, or the nearest to that which was found.

    ``curvature`` is λ near the point; without it the point's own is taken if it is known, else 0.
    """
    size = point.gradient_norm
    if not point.finite or size == 0.0:
        return point
    if curvature is None:
        known = point.knows_hessian_normal
        curvature = float(torch.dot(point.normal, point.hessian_normal)) if known else 0.0
    band = level_band(problem, size, curvature)
    ceiling, aim = (band, 0.0) if problem.level_set else (0.0, -0.5 * band)
    excess = point.value - problem.level
    if -band <= excess <= ceiling:
        return point
    normal = point.normal
    best = point if problem.feasible(point.value) else None
    above, below = (0.0 if excess > 0.0 else None), (0.0 if excess <= 0.0 else None)
    before, t = (0.0, excess), parabola_root(excess - aim, size, curvature)
    for _ in range(_MAX_VALUES):
        trial = problem.objective.at(shifted(point.x, normal, -t), curvature=True)
        excess = trial.value - problem.level
        if not math.isfinite(excess):
            t = 0.5 * (before[0] + t)
            continue
        if -band <= excess <= ceiling and trial.finite:
            return trial
        if problem.feasible(trial.value) and (best is None or trial.value > best.value):
            best = trial
        above, below = (t, below) if excess > 0.0 else (above, t)
        rate = (before[1] - excess) / (t - before[0]) if t != before[0] else size
        before, t = (t, excess), t + (excess - aim) / (rate if rate > 0.0 else size)
        if above is not None and below is not None and not min(above, below) < t < max(above, below):
            t = 0.5 * (above + below)
    return best if best is not None and best.finite else point
