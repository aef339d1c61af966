"""The corrector: quasi-Newton ascent of log ‖∇f‖ along the level set.

At x with g = ∇f(x), n = g/‖g‖, H = ∇²f(x) and λ = ⟨n, H n⟩ the Riemannian gradient of φ = log ‖∇f‖ on {f = const} is

    r = (H n - λ n)/‖g‖,

its norm is the KKT residual, and along the normal φ changes with f at the rate μ = λ/‖g‖². One iteration:

1. direction  d = B⁻¹ r by L-BFGS, projected onto the tangent space {⟨n, d⟩ = 0};
2. trial      y = x + a d, one *value*; then back towards the level along n, y ← y - (f(y) - f(w))/‖g‖ · n, and there
   one *gradient*. What is left of the excess e = f(y) - f(w) is accounted for by the corrected merit
   ½ log(‖∇f(y)‖² - 2λe), the gradient norm that y will have once it is on the level;
3. accept     if the merit grew by a fraction of a⟨r, d⟩; one *HVP* at the new point gives the next r.

So the path stays near the level at 3 to 3.5 gradient equivalents per iteration; only the returned point is put onto it.
Where λ < 0 in sub-level mode the gradient grows into the interior: there the full gradient H n/‖g‖ is followed, and the
level only bounds the value from above.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from levelport.numerics.lbfgs import InitialMatrix, QuasiNewton
from levelport.objective import Point, norm
from levelport.solvers.certificate import Frame
from levelport.solvers.contract import Monitor, TeleportProblem
from levelport.solvers.result import TeleportStatus
from levelport.solvers.retraction import retract
from levelport.solvers.trust import distance_to_sphere

_SUFFICIENT = 1e-4  # fraction of the predicted growth of the merit that a step must achieve
_MAX_TRIALS = 12


class LevelSetAscent:
    """An ascent that can be advanced one iteration at a time, so that several can race.

    Args:
        start: a point near the level.
        memory: pairs that L-BFGS keeps.
        initial: its initial matrix, None for the identity.
        radius: the longest allowed distance from the problem's start.
        length: the problem's own length, over which a vanishing curvature is told from a small one.
    """

    def __init__(
        self,
        problem: TeleportProblem,
        monitor: Monitor,
        start: Point,
        *,
        memory: int,
        initial: InitialMatrix | None,
        radius: float,
        length: float,
    ) -> None:
        self.problem = problem
        self.monitor = monitor
        self.radius = radius
        self.length = length
        self.quasi_newton = QuasiNewton(memory, initial)
        self.status: TeleportStatus | None = None
        self._step_length = math.nan
        self._failures = 0
        self._enter(Frame.at(start, level_set=problem.level_set))

    @property
    def point(self) -> Point:
        """The present iterate."""
        return self.frame.point

    @property
    def merit(self) -> float:
        """log of the gain in gradient norm that the iterate will have on the level, to second order."""
        return _merit(self.frame, self.point, self.problem)

    def _enter(self, frame: Frame) -> None:
        """Make ``frame`` the present iterate and see whether it ends the ascent."""
        self.frame = frame
        if not frame.finite:
            self.status = TeleportStatus.STALLED
            return
        self.monitor.record(frame.point, frame.certificate, self._step_length)
        self.monitor.offer(frame.point)
        if frame.converged(self.problem.tol, self.length):
            self.status = TeleportStatus.CONVERGED
        elif self.problem.meets_target(frame.point, frame.certificate):
            self.status = TeleportStatus.TARGET_REACHED

    def advance(self) -> None:
        """One iteration; sets :attr:`status` when there is nothing more to do."""
        if self.status is not None:
            return
        # The point returned is a new one after retraction: its certificate takes the last HVP.
        if (stop := self.monitor.should_stop(hvps_needed=2)) is not None:
            self.status = stop
            return
        direction, slope, length = self._direction()
        step = 1.0 if self.quasi_newton.informed else self._first_length() / length
        room = distance_to_sphere(self.point.x - self.problem.start.x, direction / length, self.radius) / length
        if room < step and room * length < 1e-2 * self.radius:
            self.status = TeleportStatus.TRUST_RADIUS
            return
        found = self._search(direction, slope, length, min(step, room))
        if found is None:
            self._recover()
            return
        trial, step = found
        self._failures = 0
        self._step_length = step * length
        previous = self.frame
        frame = Frame.at(trial, level_set=self.problem.level_set)
        if frame.finite:
            self._learn(previous, frame)
        self._enter(frame)

    def _direction(self) -> tuple[Tensor, float, float]:
        """B⁻¹ r in the tangent space, ⟨r, d⟩ and ‖d‖; steepest ascent where that is no ascent direction."""
        frame = self.frame
        direction = self.quasi_newton.apply(frame.ascent)
        if frame.on_level:
            direction.sub_(torch.dot(direction, frame.normal) * frame.normal)
        slope, length = torch.stack([torch.dot(direction, frame.ascent), norm(direction)]).tolist()
        if not (math.isfinite(length) and slope > 1e-6 * length * frame.ascent_norm):
            self.quasi_newton.forget()
            return frame.ascent.clone(), frame.ascent_norm * frame.ascent_norm, frame.ascent_norm
        return direction, slope, length

    def _first_length(self) -> float:
        """Before any curvature pair is known: the last accepted length, or half a Cauchy step of f."""
        if math.isfinite(self._step_length) and self._step_length > 0.0:
            return self._step_length
        return 0.5 * self.point.gradient_norm / self.frame.image_norm

    def _search(self, direction: Tensor, slope: float, length: float, step: float) -> tuple[Point, float] | None:
        """Backtrack from ``step`` until the corrected merit grows enough; the point and its step, or None."""
        reference = self.merit
        for _ in range(_MAX_TRIALS):
            trial, shrink = self._trial(direction, slope, length, step)
            if trial is None:
                step *= shrink
                continue
            growth = _merit(self.frame, trial, self.problem) - reference
            if growth >= _SUFFICIENT * step * slope:
                return trial, step
            # Maximiser of the parabola through the merit and its slope at 0 and the merit at ``step``.
            bend = growth - step * slope
            ideal = -0.5 * step * step * slope / bend if bend < 0.0 and math.isfinite(bend) else 0.5 * step
            step = min(max(ideal, 0.1 * step), 0.5 * step)
        return None

    def _trial(self, direction: Tensor, slope: float, length: float, step: float) -> tuple[Point | None, float]:
        """x + step·d brought back towards the level; or None and the factor to shorten the step by."""
        problem, frame = self.problem, self.frame
        objective, size = problem.objective, self.point.gradient_norm
        x = self.point.x + step * direction
        trial = objective.at(x, curvature=True)
        if not math.isfinite(trial.value):
            return None, 0.25
        excess = trial.value - problem.level
        reach = step * length * size  # how much of f the step would cross along the normal
        if not frame.on_level and excess <= 0.0:
            return (trial, 1.0) if trial.finite else (None, 0.25)
        bend = abs(trial.value - self.point.value)
        if bend > reach:
            # The way back would be longer than the way out: the step has left the region where f is near linear.
            return None, max(0.1, min(0.5, 0.7 * reach / bend))
        negligible = abs(frame.certificate.curvature * (excess / size)) / size <= 0.1 * step * slope
        if not negligible or abs(excess) > 0.05 * reach:
            # An iterate far from the level approaches it by at most a step's length at a time.
            change = math.copysign(min(abs(excess), max(reach, bend)), excess)
            trial = objective.at(x - (change / size) * frame.normal, curvature=True)
            if not math.isfinite(trial.value):
                return None, 0.25
            if abs(trial.value - problem.level - (excess - change)) > 0.3 * abs(change):
                return None, 0.5
        if not problem.within_radius(trial):
            return None, 0.5
        return (trial, 1.0) if trial.finite and trial.gradient_norm > 0.0 else (None, 0.25)

    def _learn(self, old: Frame, new: Frame) -> None:
        """Give L-BFGS the step and the change of -r, both seen in the new tangent space."""
        if old.on_level != new.on_level:
            self.quasi_newton.forget()
            return
        s = new.point.x - old.point.x
        y = old.ascent - new.ascent
        if new.on_level:
            s = s - torch.dot(s, new.normal) * new.normal
            y = y - torch.dot(y, new.normal) * new.normal
        self.quasi_newton.update(s, y)

    def converged_at(self, point: Point) -> bool:
        """Whether ``point`` is a KKT point by the standards of this ascent."""
        frame = Frame.at(point, level_set=self.problem.level_set)
        return frame.converged(self.problem.tol, self.length)

    def land(self) -> None:
        """Put the iterate onto the level. An ascent that converged beside it goes on if that was no KKT point."""
        landed = retract(self.problem, self.point)
        best = self.monitor.offer(landed)
        if self.status is not TeleportStatus.CONVERGED or landed is self.point or not best:
            return
        # The product that is spent here is the one that the certificate of the point returned would take.
        self.status = None
        self._enter(Frame.at(landed, level_set=self.problem.level_set))

    def _recover(self) -> None:
        """After a failed search: forget the curvature and try steepest ascent with a shorter step, then give up.

        On piecewise smooth f (ReLU) the gradient norm jumps, and old pairs point across the jump.
        """
        self._failures += 1
        if self._failures > 2:
            self.status = TeleportStatus.STALLED
            return
        self.quasi_newton.forget()
        if math.isfinite(self._step_length):
            self._step_length *= 0.1


def _merit(frame: Frame, point: Point, problem: TeleportProblem) -> float:
    """log ‖∇f‖ as it will be on the level: ‖∇f‖² changes by 2λ per unit of f along the normal, with λ of ``frame``.

    Relative to the start's, so that units cancel. Exact for a quadratic along an eigenvector; the linear form
    log ‖g‖ - λ e/‖g‖² overrates points beside the level.
    """
    size = point.gradient_norm
    if size == 0.0:
        return -math.inf
    gain = math.log(size / problem.start.gradient_norm)
    if not frame.on_level:
        return gain
    left = 1.0 - 2.0 * frame.certificate.curvature * ((point.value - problem.level) / size) / size
    return gain + 0.5 * math.log(left) if left > 0.0 else -math.inf
