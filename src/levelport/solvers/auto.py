"""The default solver: an ascent along the level set from w, and a second one from across the valley.

The teleportation problem usually has a local maximum at either end of the sub-level set's shortest axis. The ascent of
:mod:`levelport.solvers.ascent` finds the one on its own side. Near it H n = λ n, so that along the normal

    f(x - t n) = f(w) - ‖g‖ t + ½ λ t² + …

comes back to the level at t = 2‖g‖/λ: on the opposite wall, in the other basin. A few values find the place. So when
the first ascent slows down, a second one starts there and shows in a few iterations whether it will end higher.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from levelport import checks
from levelport.objective import Point, read
from levelport.solvers.ascent import LevelSetAscent, merit
from levelport.solvers.certificate import Frame
from levelport.solvers.contract import Monitor, Outcome, Solver, TeleportProblem
from levelport.solvers.result import TeleportStatus

_RADIUS_FACTOR = 100.0  # the derived trust radius in units of the problem's own length
_LANDINGS = 4
_LAP = 3  # iterations; two laps show how fast an ascent slows down
_SLOW = 1e-2  # growth of log ‖∇f‖ per lap below which the other basin is looked at
_MUCH_LOWER = 0.7  # in log ‖∇f‖
_MIRRORED = 2e-4  # likewise
_SLOWEST = 0.8  # the largest ratio of the growth of one lap to that of the lap before
_LANDING = 1.0 - 1e-9  # of the gradient norm, which putting a point onto the level may cost
_CLEARLY = 1e-3  # in log ‖∇f‖: the merit of an iterate beside the level is an estimate


@dataclass(frozen=True)
class Auto(Solver):
    """Riemannian quasi-Newton ascent of the gradient norm, from w and from across the valley.

    Args:
        memory: pairs of vectors that L-BFGS keeps, each two vectors as large as x.
    """

    memory: int = 10

    def __post_init__(self) -> None:
        checks.whole("memory", self.memory, at_least=1)

    def solve(self, problem: TeleportProblem, monitor: Monitor) -> Outcome:
        """Climb, look at the other side of the valley, and put the higher end on the level."""
        if (stop := monitor.should_stop()) is not None:
            return Outcome(problem.start, stop)
        length = _own_length(problem.start)
        radius = problem.radius if problem.radius is not None else _RADIUS_FACTOR * length

        def ascent(start: Point) -> LevelSetAscent:
            return LevelSetAscent(problem, monitor, start, memory=self.memory, radius=radius, length=length)

        higher = first = ascent(problem.start)
        rivals = []
        prospects = _climb_until_slow(first)
        if first.status in (None, TeleportStatus.CONVERGED, TeleportStatus.STALLED):
            opposite = _across(problem, first.frame)
            # One HVP for the second ascent's first frame and one for the certificate of the point returned.
            if opposite is not None and monitor.should_stop(hvps_needed=2) is None:
                second = ascent(opposite)
                above = _ends_above(second, prospects + _CLEARLY) or second.status is TeleportStatus.TARGET_REACHED
                higher, lower = (second, first) if above else (first, second)
                rivals.append(lower)
        _finish(higher)
        for rival in rivals:
            if rival.merit > higher.merit + _CLEARLY:  # prospects are a guess
                _finish(rival)
                higher = rival
        point = _end(problem, monitor, higher)
        status = _status(higher, point)
        if point is problem.start and status is TeleportStatus.STALLED:
            status = TeleportStatus.NO_FEASIBLE_GAIN
        detail = f"radius {radius:.3g}" if status is TeleportStatus.TRUST_RADIUS else ""
        return Outcome(point, status, detail)


def _own_length(start: Point) -> float:
    """The problem's own length: ‖w‖, or ‖g‖/‖H n‖, over which the gradient changes by its own size."""
    position, image = read([], [start.x, start.hessian_normal])
    return max(position, start.gradient_norm / image if image > 0.0 else 0.0)


def _climb_until_slow(ascent: LevelSetAscent) -> float:
    """Climb in laps until one of them brings little; where the ascent is likely to end."""
    heights = [ascent.merit]
    while ascent.status is None and (len(heights) == 1 or heights[-1] > heights[-2] + _SLOW):
        heights.append(_lap(ascent))
    return ascent.merit if ascent.status is not None else _limit(heights)


def _lap(ascent: LevelSetAscent) -> float:
    for _ in range(_LAP):
        ascent.advance()
    return ascent.merit


def _limit(heights: list[float]) -> float:
    """Where an ascent will end whose growth shrinks geometrically from lap to lap (Aitken's extrapolation)."""
    late = heights[-1] - heights[-2]
    early = heights[-2] - heights[-3] if len(heights) > 2 else 0.0
    ratio = min(late / early, _SLOWEST) if early > 0.0 else _SLOWEST
    return heights[-1] + late * ratio / (1.0 - ratio)


def _across(problem: TeleportProblem, frame: Frame) -> Point | None:
    """The opposite wall: x - t n between the level and a tenth of the valley's depth below it, or None.

    Costs a few values. The parabola's t = 2‖g‖/λ is doubled until f is back above the level, then the bracket halved.
    """
    size, curvature = frame.point.gradient_norm, frame.certificate.curvature
    if curvature <= 0.0:
        return None
    depth = 0.5 * size * (size / curvature)
    # In the middle of the band on a quadratic, so that roundings do not decide what comes next.
    t, inside, outside = 1.975 * size / curvature, 0.0, math.inf
    for _ in range(8):
        there = problem.objective.at(frame.point.x - t * frame.normal, curvature=True)
        excess = there.value - problem.level
        if -0.1 * depth <= excess <= 0.0:
            usable = there.finite and there.gradient_norm > 0.0 and problem.within_radius(there)
            return there if usable and _another(frame, there, t, problem) else None
        inside, outside = (t, outside) if excess < 0.0 else (inside, t)
        t = 0.5 * (inside + outside) if math.isfinite(outside) else 2.0 * t
    return None


def _another(frame: Frame, there: Point, t: float, problem: TeleportProblem) -> bool:
    """Whether the wall at ``there`` = x - t n is worth an ascent of its own.

    It hardly ever is where its gradient is much smaller, as on most networks; and never if it is the mirror image of
    this one. On a quadratic, where it is, ‖g - t H n‖² = ‖g‖² + ‖t P H n‖² once both points are put onto the level.
    """
    higher = merit(frame, there, problem) - merit(frame, frame.point, problem)
    mirrored = math.log(math.hypot(1.0, t * frame.certificate.kkt_residual))
    return higher > -_MUCH_LOWER and abs(higher - mirrored) > _MIRRORED


def _ends_above(ascent: LevelSetAscent, goal: float) -> bool:
    """Whether two laps of ``ascent`` point above ``goal``; one, if the first lap leaves no hope."""
    heights = [ascent.merit, _lap(ascent)]
    if _limit(heights) <= goal:
        return False
    heights.append(_lap(ascent))
    return _limit(heights) > goal


def _finish(ascent: LevelSetAscent) -> None:
    """Climb to the end and land on the level; again, if the end turns out to be no KKT point there."""
    for _ in range(_LANDINGS):
        while ascent.status is None:
            ascent.advance()
        ascent.land()
        if ascent.status is not None:
            return
    ascent.status = TeleportStatus.STALLED


def _end(problem: TeleportProblem, monitor: Monitor, winner: LevelSetAscent) -> Point:
    """Where the winner landed, unless another point has a larger gradient by more than landing costs."""
    end, best = winner.landed, monitor.best
    as_good = end.finite and end.gradient_norm >= max(_LANDING * best.gradient_norm, problem.start.gradient_norm)
    return end if as_good and problem.feasible(end.value) and problem.within_radius(end) else best


def _status(winner: LevelSetAscent, point: Point) -> TeleportStatus:
    """Why the winner ended, as far as it is true of ``point``: an earlier one may have the larger gradient."""
    status = winner.status or TeleportStatus.STALLED
    if status is not TeleportStatus.CONVERGED or point is winner.point:
        return status
    known = point.product_sizes is not None and winner.converged_at(point)
    return TeleportStatus.CONVERGED if known else TeleportStatus.STALLED
