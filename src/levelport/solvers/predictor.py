"""The predictor: go down in a Krylov model of f, then climb its steepest wall back to the level.

For a convex quadratic the sub-level set is an ellipsoid around the minimiser and the gradient is largest at the ends of
its shortest axis. So with the Lanczos model of :mod:`levelport.numerics.lanczos` around w,

1. *descend* to x_N, the model's minimiser within a trust region in which the true f decreases as well,
2. *climb* from x_N along ±v_max, the Ritz vector of the largest curvature, until f = f(w) again.

On a quadratic and with a large enough space both ends are exact global solutions. Elsewhere they are starts from which
the corrector needs few steps. The two ends usually lie in different basins, and both are returned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from levelport.numerics.lanczos import KrylovModel
from levelport.objective import Point, norm
from levelport.solvers.contract import Monitor, TeleportProblem
from levelport.solvers.trust import INSIDE, distance_to_sphere

_INDEFINITE_SIZE = 6  # with negative curvature the model has no bottom; more than its steepest wall is not needed


@dataclass(frozen=True)
class Prediction:
    """The model, the bottom found with it, and the points where its steepest line meets the level, best first.

    ``short`` are ends of climbs that did not get near the level: feasible, but no place to start an ascent from.
    """

    model: KrylovModel
    bottom: Point | None
    ends: tuple[Point, ...]
    short: tuple[Point, ...] = ()

    def norm_on_level(self, end: Point, level: float) -> float:
        """‖∇f‖ that ``end``, a little below the level, will have on it: ‖∇f‖² grows by 2 θ_max per unit of f."""
        return math.hypot(
            end.gradient_norm, math.sqrt(2.0 * self.model.largest) * math.sqrt(max(0.0, level - end.value))
        )

    @property
    def reach(self) -> float:
        """The longest distance from the start to anything found: a length scale of the problem."""
        start = self.model.point.x
        found = [*self.ends, self.bottom] if self.bottom is not None else list(self.ends)
        return max((float(norm(p.x - start)) for p in found), default=0.0)


def predict(problem: TeleportProblem, monitor: Monitor, capacity: int, *, accuracy: float = 3e-2) -> Prediction:
    """Build the model, descend and climb.

    The Krylov space grows until its prediction of the largest gradient norm settles to ``accuracy``. Where f then turns
    out to follow the model more closely than that, the space grows further: on a quadratic up to rounding.
    """
    model = KrylovModel(problem.start, capacity)
    bottom: Point | None = None
    while True:
        _grow(model, monitor, accuracy)
        if model.size == 0:
            return Prediction(model, None, ())
        lower, mismatch = _descend(problem, model)
        if lower is not None and (bottom is None or lower.value < bottom.value):
            bottom = lower
        if model.exhausted or mismatch > accuracy or accuracy <= problem.tol**2:
            break
        if monitor.should_stop(hvps_needed=2) is not None:
            break
        accuracy = max(0.1 * mismatch, min(1e-2 * accuracy, mismatch), problem.tol**2)
    if bottom is None or model.largest <= 0.0:
        return Prediction(model, bottom, ())
    direction = model.steepest()
    found = [_climb(problem, bottom, sign * direction, model.largest) for sign in (1.0, -1.0)]
    near = problem.level - 0.1 * (problem.level - bottom.value)
    ends = sorted((end for end in found if end is not None and end.value >= near), key=lambda end: -end.gradient_norm)
    short = [end for end in found if end is not None and end.value < near]
    return Prediction(model, bottom, tuple(ends), tuple(short))


def _grow(model: KrylovModel, monitor: Monitor, accuracy: float) -> None:
    """Add basis vectors until two in a row change the predicted gradient norm by less than ``accuracy``."""
    settled, previous = 0, model.predicted_norm() if model.size else 0.0
    while settled < 2 and not model.exhausted:
        # One HVP stays in reserve for the certificate; the first one is shared with the start's.
        if monitor.should_stop(hvps_needed=2 if model.size else 0) is not None or not model.extend():
            return
        current = model.predicted_norm()
        if not model.convex() and model.size >= _INDEFINITE_SIZE:
            return
        settled = settled + 1 if current <= previous * (1.0 + accuracy) else 0
        previous = current if math.isfinite(current) else 0.0


def _descend(problem: TeleportProblem, model: KrylovModel) -> tuple[Point | None, float]:
    """The lowest point found along the model's trust-region steps, and |1 - actual/predicted decrease| at the first.

    Costs a value per radius tried. A step that the model oversells is shortened; with negative curvature, where the
    model has no minimiser, the radius starts at a Cauchy step's length and doubles while f keeps its promises.
    """
    start, level = problem.start, problem.level
    convex = model.convex()
    radius = math.inf if problem.radius is None else INSIDE * problem.radius
    limit = radius
    steepest = float(model.ritz_values.abs().max())
    if steepest == 0.0:
        return None, math.inf  # f is affine in the Krylov space: it has no bottom, and nothing to climb
    if not convex:
        cauchy = start.gradient_norm / steepest
        radius = min(radius, max(cauchy, 0.1 * float(norm(start.x))))
    if radius == 0.0:
        return None, math.inf  # the length of a step is below the smallest number
    best: Point | None = None
    mismatch = math.inf
    for attempt in range(10):
        coordinates, predicted = model.descent(radius)
        length = float(norm(coordinates))
        if not (predicted > 0.0 and math.isfinite(predicted) and 0.0 < length < math.inf):
            break
        trial = problem.objective.at(start.x + model.lift(coordinates), curvature=True)
        ratio = (level - trial.value) / predicted
        if attempt == 0 and convex:
            mismatch = abs(1.0 - ratio) if math.isfinite(ratio) else math.inf
        if not math.isfinite(trial.value) or trial.value >= (level if best is None else best.value):
            if best is not None:
                break
            radius = 0.3 * length
            continue
        best = trial
        if convex or ratio < 0.25 or length >= limit:
            break
        radius = min(2.0 * length, limit)
    return best, mismatch


def _climb(problem: TeleportProblem, bottom: Point, direction: Tensor, curvature: float) -> Point | None:
    """The point x_N + a·direction with f(w) - 1 % of the depth ≤ f ≤ f(w), found by values alone.

    Interpolates f linearly in a², in which a quadratic is exactly linear. None if the wall has no end in sight.
    """
    depth = problem.level - bottom.value
    width = 1e-2 * depth
    aim = problem.level - 0.5 * width
    furthest = distance_to_sphere(bottom.x - problem.start.x, direction, problem.radius)
    a = min(math.sqrt(2.0 * (aim - bottom.value) / curvature), furthest)
    below, above = (0.0, bottom.value), (math.inf, math.inf)
    best: Point | None = None
    for _ in range(10):
        point = problem.objective.at(bottom.x + a * direction, curvature=True)
        value = point.value
        if math.isfinite(value) and value <= problem.level:
            below, best = (a, value), point
            if value >= problem.level - width or a >= furthest:
                break
        else:
            above = (a, value if math.isfinite(value) else math.inf)
        a = min(_interpolate(below, above, aim, bottom.value), furthest)
    if best is None or not best.finite:
        return None
    return best


def _interpolate(below: tuple[float, float], above: tuple[float, float], aim: float, floor: float) -> float:
    """The next a between a point below the level and one above it (at infinity while none is known)."""
    if math.isinf(above[0]):
        rise = below[1] - floor
        growth = math.sqrt((aim - floor) / rise) if rise > 0.0 else 4.0
        return below[0] * min(max(growth, 1.01), 4.0)
    if math.isinf(above[1]):
        return 0.5 * (below[0] + above[0])
    low, high = below[0] * below[0], above[0] * above[0]  # a power of floats raises where a product overflows
    share = (aim - below[1]) / (above[1] - below[1])
    return math.sqrt(low + min(max(share, 0.05), 0.95) * (high - low))
