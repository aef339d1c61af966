"""The default solver: a Krylov predictor, a quasi-Newton corrector on the level set, and a race between basins.

The teleportation problem usually has one local maximum at each end of the sub-level set's shortest axis. The predictor
reaches both neighbourhoods for a few HVPs; the corrector finishes. Which end is higher cannot be told from the
start, so both ascents run for two short laps, and the one whose monitor points higher goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from levelport import checks
from levelport.numerics.lanczos import KrylovModel
from levelport.numerics.lbfgs import InitialMatrix
from levelport.objective import Point, norm
from levelport.solvers.ascent import LevelSetAscent
from levelport.solvers.contract import Monitor, Outcome, Solver, TeleportProblem
from levelport.solvers.predictor import predict
from levelport.solvers.result import TeleportStatus
from levelport.solvers.retraction import retract

_RADIUS_FACTOR = 100.0  # the derived trust radius in units of the problem's own length
_LANDINGS = 4
_CLEARLY = 1e-3  # in log ‖∇f‖: the merit of an iterate beside the level is a first-order estimate
_LAP = 3  # iterations; two laps show how fast an ascent slows down


@dataclass(frozen=True)
class Auto(Solver):
    """Krylov predictor and Riemannian quasi-Newton corrector.

    Args:
        krylov: most basis vectors of the predictor, each as large as x; None takes 100, or fewer for large x. It uses
            that many only where f is so close to a quadratic that they pay. 0 switches the predictor off.
        memory: pairs of vectors that the corrector's L-BFGS keeps.
        explore: how many basins to race, 1 or 2. 2 finds the higher of two local maxima more often, for some 20
            gradient equivalents; 1 suits teleports inside an optimizer.
    """

    krylov: int | None = None
    memory: int = 10
    explore: int = 2

    def __post_init__(self) -> None:
        if self.krylov is not None:
            checks.whole("krylov", self.krylov, at_least=0, why="0 switches the predictor off")
        checks.whole("memory", self.memory, at_least=1)
        if self.explore not in (1, 2):
            raise ValueError(f"explore must be 1 or 2, not {self.explore!r}.")

    def solve(self, problem: TeleportProblem, monitor: Monitor) -> Outcome:
        """Predict, race, and put the winner on the level."""
        if (stop := monitor.should_stop()) is not None:
            return Outcome(problem.start, stop)
        starts: list[Point] = [problem.start]
        initial: InitialMatrix | None = None
        length = max(float(norm(problem.start.x)), _cauchy_length(problem.start))
        if self.krylov != 0:
            prediction = predict(problem, monitor, self._capacity(problem.start))
            starts = [end for end in prediction.ends if end.gradient_norm > 0.0][: self.explore]
            for end in (*prediction.ends, *prediction.short):
                monitor.offer(end)
            # Without an end the start itself goes on; with a poor one (non-convex f) it takes part in the race.
            if not starts or prediction.norm_on_level(starts[0], problem.level) <= problem.start.gradient_norm:
                starts = [problem.start, *starts][: self.explore]
            initial, length = level_set_curvature(prediction.model), max(length, prediction.reach)
        radius = problem.radius if problem.radius is not None else _RADIUS_FACTOR * length
        ascents: list[LevelSetAscent] = []
        for start in starts:
            # One HVP for the ascent's first frame and one for the certificate of the point returned.
            if monitor.should_stop(hvps_needed=1 if start.knows_hessian_normal else 2) is not None:
                break
            ascents.append(
                LevelSetAscent(
                    problem,
                    monitor,
                    start,
                    memory=self.memory,
                    initial=initial,
                    radius=radius,
                    length=length,
                )
            )
        if not ascents:  # the predictor used the budget up: put what it found onto the level, by gradients alone
            monitor.offer(retract(problem, starts[0]))
            return Outcome(monitor.best, TeleportStatus.BUDGET_SPENT)
        winner = _race(ascents)
        status = _status(winner, monitor.best)
        if monitor.best is problem.start and status is TeleportStatus.STALLED:
            status = TeleportStatus.NO_FEASIBLE_GAIN
        detail = f"radius {radius:.3g}" if status is TeleportStatus.TRUST_RADIUS else ""
        return Outcome(monitor.best, status, detail)

    def _capacity(self, start: Point) -> int:
        return self.krylov if self.krylov is not None else max(8, min(100, 2**25 // start.x.numel()))


def _race(ascents: list[LevelSetAscent]) -> LevelSetAscent:
    """Two laps for everyone, then the one with the best prospects goes on to its end on the level; returns the highest.

    Prospects are a guess: a rival that still is above the end of the favourite goes on as well.
    """
    prospects = [0.0]
    if len(ascents) > 1:
        heights = [[ascent.merit] for ascent in ascents]
        for _ in range(2):
            for ascent, height in zip(ascents, heights, strict=True):
                for _ in range(_LAP):
                    ascent.advance()
                height.append(ascent.merit)
        prospects = [_limit(*height) for height in heights]
    winner, *rivals = sorted(ascents, key=lambda ascent: -prospects[ascents.index(ascent)])
    _finish(winner)
    for rival in rivals:
        if rival.merit > winner.merit + _CLEARLY and winner.monitor.should_stop(hvps_needed=2) is None:
            _finish(rival)
            winner = max(winner, rival, key=lambda ascent: ascent.merit)
    return winner


def _finish(ascent: LevelSetAscent) -> None:
    """Climb to the end and land on the level; again, if the end turns out to be no KKT point there."""
    for _ in range(_LANDINGS):
        while ascent.status is None:
            ascent.advance()
        ascent.land()
        if ascent.status is not None:
            return
    ascent.status = TeleportStatus.STALLED


def _status(winner: LevelSetAscent, best: Point) -> TeleportStatus:
    """Why the winner ended, as far as it is true of the best point: an earlier one may have the larger gradient."""
    status = winner.status or TeleportStatus.STALLED
    if status is not TeleportStatus.CONVERGED or best is winner.point:
        return status
    known = best.knows_hessian_normal and winner.converged_at(best)
    return TeleportStatus.CONVERGED if known else TeleportStatus.STALLED


def _limit(first: float, second: float, third: float) -> float:
    """Where a sequence whose increments shrink geometrically will end (Aitken's extrapolation)."""
    early, late = second - first, third - second
    if late <= 0.0:
        return third
    ratio = min(late / early, 0.8) if early > 0.0 else 0.8
    return third + late * ratio / (1.0 - ratio)


def level_set_curvature(model: KrylovModel) -> InitialMatrix | None:
    """The inverse of -∇²φ on the level set of the Krylov model, up to a factor.

    For a quadratic the Hessian of log ‖∇f‖ minus the multiplier times that of f is -H(λ - H)/‖g‖² on the tangent space
    at a KKT point with H g = λ g. So a Ritz direction of curvature θ is stretched by 1/(θ (λ - θ)); both factors are
    kept away from 0, and the complement of the space is treated like its flattest direction.
    """
    if model.size < 2 or not model.convex():
        return None
    theta, top = model.ritz_values.abs(), model.largest
    floor = top / 30.0
    weights = 1.0 / (theta.clamp_min(1e-3 * floor) * (top - theta).clamp_min(floor))
    weights = (weights / weights.min()).clamp_max(900.0)
    complement = float(weights.max())

    def apply(v: Tensor) -> Tensor:
        coordinates = model.project(v)
        return complement * v + model.lift((weights - complement) * coordinates)

    return apply


def _cauchy_length(start: Point) -> float:
    """‖g‖/‖H n‖, the length over which the gradient changes by its own size."""
    image = float(norm(start.hessian_normal))
    return start.gradient_norm / image if image > 0.0 else 0.0
