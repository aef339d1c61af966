"""A line search for the strong Wolfe conditions.

Along a descent direction, with φ(t) = f(x + t d),

    φ(t) ≤ φ(0) + c₁ t φ'(0)       and       |φ'(t)| ≤ c₂ |φ'(0)|.

Bracket, then zoom by quadratic interpolation (Nocedal and Wright, Numerical Optimization, algorithms 3.5 and 3.6).
While the slope is still steep, the bracket grows to where the secant of the last two slopes has its root, by at most
ten times the last stride. The trial points carry their own values and gradients, so the accepted one is not evaluated
again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from levelport.objective import Point
from levelport.vectors import all_finite, inner

_C1 = 1e-4  # of the first condition
_MAX_TRIALS = 25


@dataclass(frozen=True)
class _Trial:
    t: float
    point: Point
    value: float
    slope: float = math.nan


def strong_wolfe(
    at: Callable[[Tensor], Point], start: Point, direction: Tensor, *, initial: float = 1.0, c2: float = 0.9
) -> tuple[float, Point] | None:
    """A step length that satisfies both conditions with its point; the best decrease found if trials run out.

    None if ``direction`` does not descend or nothing decreases f.
    """
    slope = inner(start.gradient, direction)
    if not slope < 0.0:
        return None
    origin = _Trial(0.0, start, start.value, slope)
    # Differences below this are rounding errors of f; there the slope alone decides.
    noise = 4.0 * torch.finfo(direction.dtype).eps * abs(start.value)
    best: _Trial | None = None
    # low has the smallest value so far, and its slope points towards high, once f has risen or the slope has turned.
    low, high, t = origin, None, initial
    for _ in range(_MAX_TRIALS):
        point = at(start.x + t * direction)
        finite = math.isfinite(point.value) and all_finite(point.x)  # tanh has a value at infinity
        trial = _Trial(t, point, point.value if finite else math.inf)
        low_enough = trial.value <= origin.value + _C1 * t * slope + noise
        if low_enough and (best is None or trial.value < best.value):
            best = trial
        if not low_enough or trial.value > low.value + noise:
            high = trial
        else:
            trial = replace(trial, slope=inner(point.gradient, direction))
            if abs(trial.slope) <= -c2 * slope:
                return t, point
            if (trial.slope >= 0.0) is (high is None or high.t > low.t):
                high = low
            before, low = low, trial
        t = _extrapolate(before, low) if high is None else _interpolate(low, high)
    if best is None or not best.value < start.value:
        return None
    return best.t, best.point


def _extrapolate(before: _Trial, last: _Trial) -> float:
    """The root of the line through the last two slopes, between 1.1 and 10 times the last stride ahead."""
    stride = last.t - before.t
    bend = last.slope - before.slope
    ahead = -last.slope * stride / bend if bend > 0.0 else math.inf
    return last.t + min(max(ahead, 1.1 * stride), 10.0 * stride)


def _interpolate(low: _Trial, high: _Trial) -> float:
    """The minimizer of the parabola through φ(low), φ'(low), φ(high), kept away from both ends."""
    width = high.t - low.t
    if math.isfinite(high.value):
        bend = high.value - low.value - low.slope * width
        t = low.t - 0.5 * low.slope * width * width / bend if bend > 0.0 else low.t + 0.5 * width
    else:
        t = low.t + 0.1 * width
    nearest, farthest = sorted((low.t + 0.1 * width, low.t + 0.9 * width))
    return min(max(t, nearest), farthest)
