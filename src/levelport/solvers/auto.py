"""The default solver: an ascent along the level set from w, and others from points in other basins.

The teleportation problem has several local maxima: usually one at either end of the sub-level set's shortest axis, and
more where f is far from quadratic. The ascent of :mod:`levelport.solvers.ascent` finds the one on its own side. When it
slows down, a second one starts from the far side of the valley (:mod:`levelport.solvers.basins`) and climbs until it is
slow, too; the higher one goes on. Where it has ended and products are left, another starts from the point with the
longest gradient in the directions of largest curvature, if that is longer than what has been found. With ``starts``,
ascents from points drawn at random follow.

A quadratic in few variables has a closed form. With f(b + z) = f(b) + ½ ⟨z, H z⟩, H positive definite and
δ = f(w) - f(b), the largest gradient on the level is √(2 θ δ), at b ± √(2 δ/θ) v for the largest eigenvalue θ of H and
its eigenvector v. The Lanczos process at w finds b, θ and v with d products. After the first they are
differences of gradients, which are exact where f is a quadratic whatever the length h of the difference, at half the
cost. The value at the other end tells whether f is one:

    f(w + h v) - f(w) = ½ h ⟨∇f(w) + ∇f(w + h v), v⟩.

Where that fails, one gradient was spent. The last one of d products has one unknown number, ⟨v, H v⟩, for which that
value is enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from levelport import checks
from levelport.numerics.lanczos import KrylovModel
from levelport.numerics.lbfgs import QuasiNewton
from levelport.objective import Objective, Point
from levelport.solvers import basins
from levelport.solvers.ascent import LevelSetAscent
from levelport.solvers.contract import Monitor, Outcome, Solver
from levelport.solvers.problem import Certificate, TeleportProblem, TrustRegion, is_kkt, level_band
from levelport.solvers.result import TeleportStatus
from levelport.vectors import norm, read

FEW = 10
"""Variables up to which the closed form of a quadratic is tried."""

_ROUNDING = 1e3  # units in the last place of f, of a sum over samples
_EXACT = 1e-6  # of δ, by which f at a quadratic's solution may miss what the model predicts
_RADIUS_FACTOR = 100.0  # the derived trust radius in units of the problem's own length
_FEWEST, _MOST = 10, 30  # pairs of L-BFGS; a run of 50 products hardly has more
_NUMBERS = 2**24  # what the pairs may hold
_LANDINGS = 4
_LAP = 3  # iterations
_SLOW = 1e-2  # growth of log ‖∇f‖ per lap below which the far side is looked at
_LANDING = 1.0 - 1e-9  # of the gradient norm, which putting a point onto the level may cost
_CLEARLY = 1e-3  # in log ‖∇f‖: the merit of an iterate beside the level is an estimate
_ENDED = (TeleportStatus.CONVERGED, TeleportStatus.STALLED)  # by itself, not for want of budget or room


@dataclass(frozen=True)
class Auto(Solver):
    """Riemannian quasi-Newton ascent of the gradient norm, from w and from other basins.

    Limits, such as ``max_hvps``, ``tol`` and ``radius``, are those of every :class:`~levelport.Solver`.

    Args:
        memory: pairs of vectors that L-BFGS keeps, each two vectors as large as x. None takes 30, or as many as fit
            into 2²⁴ numbers, at least ten.
        starts: how many points drawn at random to climb from as well, in search of the global maximum where there are
            few variables; each takes some ten products of ``max_hvps``.
    """

    memory: int | None = None
    starts: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole("starts", self.starts)
        if self.memory is not None:
            checks.whole("memory", self.memory, at_least=1)

    def product_cost(self, dtype: torch.dtype) -> float:
        """Return it with all evaluations of an iteration and of the return to the level, as measured."""
        return 7.0

    def pairs(self, dimension: int) -> int:
        """Return the number of pairs kept in so many variables."""
        return self.memory or max(_FEWEST, min(_MOST, _NUMBERS // (2 * dimension)))

    def solve(self, problem: TeleportProblem, monitor: Monitor) -> Outcome:
        """Climb, look for higher points in other basins, and put the highest end on the level."""
        if (stop := monitor.should_stop()) is not None:
            return Outcome(problem.start, stop)
        # The problem's own length: ‖w‖, or ‖g‖/‖H n‖, over which the gradient changes by its own size.
        position, image = read([], [problem.start.x, problem.start.hessian_normal])
        length = max(position, problem.start.gradient_norm / image if image > 0.0 else 0.0)
        region = TrustRegion(length, _RADIUS_FACTOR * length if problem.radius is None else problem.radius)
        pairs = QuasiNewton(self.pairs(problem.start.x.numel()), diagonal=True)

        def ascent(start: Point) -> LevelSetAscent:
            pairs.forget()
            return LevelSetAscent(problem, monitor, start, pairs=pairs, region=region)

        highest = _of_quadratic(problem, monitor, ascent) or _from_basins(problem, monitor, ascent, self.starts)
        monitor.reserve = 0
        point = _end(problem, monitor, highest)
        status = _status(problem, highest, point)
        if point is problem.start and status is TeleportStatus.STALLED:
            status = TeleportStatus.NO_FEASIBLE_GAIN
        detail = ""
        if status is TeleportStatus.TRUST_RADIUS:
            derived = "; it was derived, pass radius= to go further" if problem.radius is None else ""
            detail = f"radius {region.radius:.3g}{derived}"
        return Outcome(point, status, detail)


_Begin = Callable[[Point], LevelSetAscent]
"""Begins an ascent, in the memory of the one before it."""


def _of_quadratic(problem: TeleportProblem, monitor: Monitor, ascent: _Begin) -> LevelSetAscent | None:
    """An ascent that has ended where it began, at the solution; None if f is no quadratic in few variables."""
    found = quadratic_solution(problem, monitor)
    if found is None:
        return None
    there = ascent(found)
    if there.status is not None:
        _finish(there)
    return there if there.status in (TeleportStatus.CONVERGED, TeleportStatus.TARGET_REACHED) else None


def _from_basins(problem: TeleportProblem, monitor: Monitor, ascent: _Begin, samples: int) -> LevelSetAscent:
    """The highest one of the ascents from w, from the far side, from the steepest sides and from drawn points."""
    highest = _of_both_sides(problem, monitor, ascent)
    _finish(highest)
    monitor.reserve = 1  # for its certificate: from now on another ascent may be the last
    # Besides the products of the search: one for the first frame of an ascent, one for the certificate, two to climb.
    if highest.status in _ENDED and monitor.should_stop(hvps_needed=basins.PRODUCTS + 4) is None:
        start = basins.steepest_side(problem, highest.frame, highest.merit + _CLEARLY)
        highest = highest if start is None else _higher(highest, ascent(start))
    for start in basins.sampled(problem, monitor, highest.region.length, samples):
        if highest.status is TeleportStatus.TARGET_REACHED or monitor.should_stop(hvps_needed=3) is not None:
            break
        highest = _higher(highest, ascent(start))
    return highest


def _higher(ended: LevelSetAscent, another: LevelSetAscent) -> LevelSetAscent:
    """The higher one of two ascents, the second of which is brought to its end."""
    _finish(another)
    return another if another.merit > ended.merit + _CLEARLY else ended


def _of_both_sides(problem: TeleportProblem, monitor: Monitor, ascent: _Begin) -> LevelSetAscent:
    """The higher one of the ascents from w and from the far side of the valley, once they are slow."""
    first = ascent(problem.start)
    _climb_until_slow(first)
    if first.status is None or first.status in _ENDED:
        opposite = basins.far_side(problem, first.frame)
        # One HVP for the second ascent's first frame and one for the certificate of the point returned.
        if opposite is not None and monitor.should_stop(hvps_needed=2) is None:
            second = ascent(opposite)
            _climb_until_slow(second)
            if second.merit > first.merit + _CLEARLY or second.status is TeleportStatus.TARGET_REACHED:
                return second
            first.pairs.forget()  # they are the second one's
    return first


def _climb_until_slow(ascent: LevelSetAscent) -> None:
    """Climb in laps until one of them brings little."""
    before = -math.inf
    while ascent.status is None and ascent.merit > before + _SLOW:
        before = ascent.merit
        for _ in range(_LAP):
            ascent.advance()


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
    """Return where the winner landed, unless another point has a larger gradient by more than landing costs."""
    end, best = winner.landed, monitor.best
    as_good = end.finite and end.gradient_norm >= max(_LANDING * best.gradient_norm, problem.start.gradient_norm)
    return end if as_good and problem.feasible(end.value) and problem.within_radius(end) else best


def _status(problem: TeleportProblem, winner: LevelSetAscent, point: Point) -> TeleportStatus:
    """Return why the winner ended, if that is true of ``point``: an earlier one may have the larger gradient."""
    status = winner.status or TeleportStatus.STALLED
    if status is not TeleportStatus.CONVERGED or point is winner.point:
        return status
    if point.product_sizes is None:
        return TeleportStatus.STALLED
    on_level = problem.level_set or Certificate.from_sizes(point).curvature >= 0.0
    converged = is_kkt(point, problem, on_level=on_level, length=winner.region.length)
    return TeleportStatus.CONVERGED if converged else TeleportStatus.STALLED


class _SecantModel(KrylovModel):
    """The Lanczos model with products from differences of gradients; it stops growing where f is no quadratic.

    It grows to all variables: where the space is invariant, eigenvectors to which g is orthogonal lie outside of it.
    """

    def __init__(self, objective: Objective, start: Point) -> None:
        super().__init__(start, start.x.numel())
        self._objective = objective
        self._h = start.gradient_norm / float(norm(start.hessian_normal))

    @property
    def exhausted(self) -> bool:
        return self.size == self.capacity

    def extend(self) -> bool:
        if self.invariant:
            spanned = self._basis[: self.size]
            outside = torch.zeros_like(spanned[0])
            outside[spanned.square().sum(dim=0).argmin()] = 1.0  # the axis furthest from the space
            for _ in range(2):
                outside = outside - spanned.T @ (spanned @ outside)
            self._basis[self.size], self._off_diagonal[-1] = outside / norm(outside), 0.0
        return super().extend()

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


def quadratic_solution(problem: TeleportProblem, monitor: Monitor) -> Point | None:
    """The solution on the side of w, evaluated; None if f is no quadratic.

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
    return point if exact and point.gradient_norm > 0.0 else None
