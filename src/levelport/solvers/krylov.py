"""``Krylov``: one cheap teleport after another, each from a truncated model of f. What ``minimize`` does by default.

At w with g = ∇f(w), the Lanczos model of :mod:`levelport.numerics.lanczos` grows until the residual of its Newton
system is at most min(½, (‖g‖/‖g₀‖)^0.3) ‖g‖, g₀ the first gradient of the run: coarse at first, finer later.
Two vectors past the first negative Ritz value it stops as well. With s its minimizer within the trust radius, δ the
decrease that it predicts and (θ, v) its top Ritz pair, ⟨v, s⟩ ≤ 0,

    w⁺ = w + s + a v,      a = 0.8 √(2 δ/θ),

climbs along the steepest direction of the model, most of the way back to the level. Two things cost nothing extra:

* *Does it pay?* In a convex model the largest gradient on the level is √(2 θ δ), and its square over ‖g‖² is the
  decrease of a Newton step over that of the best gradient step. Below √2 ‖g‖ the climb is left out and w + s offered
  as an ordinary, lower point: ``NOT_WORTHWHILE``.
* *The step size*: λ = ⟨∇f(w⁺), v⟩/a is the secant curvature along the climb, and 1/λ the step back down, at most
  twice as long as the move itself.

The certificate of :func:`levelport.teleport` takes a product; optimizers do without it.

On a quadratic, teleport and step together land where the step s and then a gradient step 1/θ land. So a teleport buys
what a truncated Newton step buys, and the climb costs one gradient.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from levelport import checks
from levelport.numerics.lanczos import KrylovModel
from levelport.objective import Point
from levelport.solvers.contract import Monitor, Outcome, Solver
from levelport.solvers.problem import INSIDE, Certificate, TeleportProblem, room
from levelport.solvers.result import TeleportStatus
from levelport.vectors import norm, read

_COARSEST = 0.5  # residual of the Newton system, relative to the gradient
_REFINEMENT = 0.3  # its power of ‖g‖/‖g₀‖; 0.25 to 0.5 cost within 7 % of each other on logistic problems
_BEYOND_CONVEX = 2  # basis vectors after the first negative Ritz value
_SHARE = 0.8  # of the way up to the level; the rest is a margin for the model's error
_SECOND_SHARE = 0.7  # of that, where the first climb ended above the level
_WORTH = math.sqrt(2.0)  # predicted growth of the gradient from which a climb pays: twice a gradient step
_CAUCHY = 0.1  # part of ‖g‖/‖H n‖, over which the gradient changes by its own size, that is always trusted at first
_TRIALS = 30  # of ever shorter steps before w is given up as minimal
_SHORTER = 0.3  # of the length of a step that did not lower f: the trust radius of the next one
_NUMBERS = 2**24  # what the basis may hold


@dataclass(frozen=True)
class Krylov(Solver):
    """Truncated-Krylov teleports: cheap and approximate.

    Limits, such as ``max_hvps``, ``tol`` and ``radius``, are those of every :class:`~levelport.Solver`.

    The state of a run is {"radius": the trust radius, "first_norm": ‖g₀‖}.

    Args:
        max_vectors: of the Krylov space; None takes 200, or as many as fit into 2²⁴ numbers, at least ten.
        max_hvps: 200 by default; the model usually stops long before that.
        hvp: None by default: differences of gradients in float64, unless products are cheap as in closed forms.
    """

    max_vectors: int | None = None
    _: KW_ONLY
    max_hvps: int = 200
    hvp: Literal["exact", "difference"] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_vectors is not None:
            checks.whole("max_vectors", self.max_vectors, at_least=1)

    def product_cost(self, dtype: torch.dtype) -> float:
        """Return the cost of a product alone: a model needs no other evaluations."""
        exact = self.hvp == "exact" or (self.hvp is None and dtype != torch.float64)
        return 2.0 if exact else 1.0

    def solve(self, problem: TeleportProblem, monitor: Monitor) -> Outcome:
        if problem.level_set:
            raise ValueError("solver 'krylov' ends below the level; for level_set=True take solver='auto'.")
        start = problem.start
        first_norm = problem.state.get("first_norm", start.gradient_norm)
        radius = problem.state.get("radius", math.inf)
        image = float(norm(start.hessian_normal))  # the model's first product, and that of the check before a solve
        if image > 0.0:
            # At a minimum rounding errors of f make the radius collapse; f may change later, as labels do.
            radius = max(radius, _CAUCHY * (start.gradient_norm / image))
        model = KrylovModel(start, self.capacity(start.x.numel()))
        accuracy = min(_COARSEST, (start.gradient_norm / first_norm) ** _REFINEMENT)
        _grow(model, monitor, radius, accuracy * start.gradient_norm)
        outcome = Outcome(start, TeleportStatus.NO_FEASIBLE_GAIN, "the model led to no lower point")
        if model.size == 0 or model.largest <= 0.0:
            outcome = replace(outcome, detail="no positive curvature was found to climb against")
        else:
            for _ in range(_TRIALS):
                found, radius = self._attempt(problem, monitor, model, radius)
                if found is not None:
                    outcome = found
                    break
                if monitor.should_stop(hvps_needed=0) is not None:
                    break
        start.release()
        return replace(outcome, state={"radius": radius, "first_norm": first_norm}, model=model)

    def capacity(self, dimension: int) -> int:
        """Basis vectors that a model in so many variables may have."""
        return self.max_vectors or max(10, min(200, _NUMBERS // dimension))

    def _attempt(
        self, problem: TeleportProblem, monitor: Monitor, model: KrylovModel, trusted: float
    ) -> tuple[Outcome | None, float]:
        """Descend, climb, and judge the model by what came of it: the outcome and the trust radius after it.

        None in place of the outcome asks for another try, nearer by.
        """
        start, theta = problem.start, model.largest
        radius = _within(trusted, model)
        if problem.radius is not None:
            radius = min(radius, INSIDE * problem.radius)
        coordinates, decrease = model.descent(radius)
        length = float(norm(coordinates))
        if decrease < problem.least_decrease:
            return Outcome(start, TeleportStatus.NOT_WORTHWHILE), trusted
        if not (decrease > 0.0 and math.isfinite(decrease) and 0.0 < length < math.inf):
            return Outcome(start, TeleportStatus.NO_FEASIBLE_GAIN, "the model predicts no decrease"), trusted
        descent = model.lift(coordinates)
        upward = self._direction(model, descent)
        climb = self._height(model, decrease)
        if problem.radius is not None:
            along, distance = read([torch.dot(descent, upward)], [descent])
            climb = min(climb, room(along, distance, problem.radius))
        for height in (climb, _SECOND_SHARE * climb) if climb > 0.0 else ():
            end = problem.objective.at(start.x + descent + height * upward)
            trusted = _radius(trusted, model, end, decrease - 0.5 * theta * height * height, decrease, length)
            if problem.feasible(end.value) and end.finite:
                return _outcome_at(problem, monitor, end, upward, height, length), trusted
        end = problem.objective.at(start.x + descent)
        trusted = _radius(trusted, model, end, decrease, decrease, length)
        if end.value < start.value and end.finite:
            status = TeleportStatus.NO_FEASIBLE_GAIN if climb > 0.0 else TeleportStatus.NOT_WORTHWHILE
            return Outcome(start, status, certificate=Certificate(theta), lower=end), trusted
        return None, _SHORTER * length

    def _direction(self, model: KrylovModel, descent: Tensor) -> Tensor:
        """Return the direction of the climb, on the far side of the model's minimizer."""
        upward = model.ritz_vector(-1)
        return -upward if float(torch.dot(upward, descent)) > 0.0 else upward

    def _height(self, model: KrylovModel, decrease: float) -> float:
        """Return a, or 0 if the climb is not expected to pay."""
        largest = math.sqrt(2.0 * model.largest) * math.sqrt(decrease)  # their product may leave the range
        if model.convex() and largest < _WORTH * model.point.gradient_norm:
            return 0.0
        return _SHARE * largest / model.largest


def _within(trusted: float, model: KrylovModel) -> float:
    """Return the trust radius; where the model is unbounded and nothing is known yet, a Cauchy step or ‖w‖/10."""
    if math.isinf(trusted) and not model.convex():
        steepest = float(model.ritz_values.abs().max())
        return max(model.point.gradient_norm / steepest, 0.1 * float(norm(model.point.x)))
    return trusted


def _grow(model: KrylovModel, monitor: Monitor, trusted: float, accuracy: float) -> None:
    """Add vectors until the residual of the Newton system is at most ``accuracy``."""
    negative = 0
    while not model.exhausted and model.extend():
        if not model.convex():
            negative += 1
            if negative > _BEYOND_CONVEX:
                return
        elif model.residual(model.descent(_within(trusted, model))[0]) <= accuracy:
            return
        if monitor.should_stop(hvps_needed=2) is not None:  # one stays in reserve for a certificate
            return


def _radius(trusted: float, model: KrylovModel, end: Point, predicted: float, decrease: float, length: float) -> float:
    """The trust radius: half the step where f misses the model by 75 % of the decrease, up to twice it within 25 %."""
    miss = (model.point.value - predicted - end.value) / decrease if math.isfinite(end.value) else -math.inf
    if miss < -0.75:
        return min(trusted, 0.5 * length)
    if miss > -0.25 and length > 0.9 * _within(trusted, model):
        return 2.0 * length
    return trusted


def _outcome_at(
    problem: TeleportProblem, monitor: Monitor, end: Point, upward: Tensor, height: float, length: float
) -> Outcome:
    """A teleport if the gradient has grown; a lower point, if nothing else.

    On a plateau the secant curvature may be almost 0. The step 1/λ is kept within twice the length of the move, which
    the model has been trusted for: λ is at least ‖∇f‖/(2 (‖s‖ + a)).
    """
    secant = float(torch.dot(end.gradient, upward)) / height
    if secant > 0.0:
        secant = max(secant, 0.5 * end.gradient_norm / (length + height))
    certificate = Certificate(secant)
    monitor.record(end, certificate, height)
    if not problem.fulfilled_by(end):
        lower = end if end.value < problem.level else None
        return Outcome(problem.start, TeleportStatus.NO_FEASIBLE_GAIN, certificate=certificate, lower=lower)
    monitor.offer(end)
    if problem.meets_target(end, certificate):
        return Outcome(end, TeleportStatus.TARGET_REACHED, certificate=certificate)
    return Outcome(end, TeleportStatus.PREDICTED, certificate=certificate)
