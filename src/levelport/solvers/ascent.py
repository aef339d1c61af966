"""Quasi-Newton ascent of log ‖∇f‖ along the level set.

At x with g = ∇f(x), n = g/‖g‖, H = ∇²f(x) and λ = ⟨n, H n⟩ the Riemannian gradient of φ = log ‖∇f‖ on {f = const} is

    r = (H n - λ n)/‖g‖,

its norm is the KKT residual, and along the normal φ changes with f at the rate λ/‖g‖². One iteration:

1. direction  d = B⁻¹ r by L-BFGS, projected onto the tangent space {⟨n, d⟩ = 0};
2. trial      y = x + a d - t n, with t from values until f(y) is near f(w), and there one *gradient*. The slope of f
   along n at the trial is known beforehand, s = ‖g‖(1 + a⟨r, d⟩), because φ is what the step is meant to raise. What is
   left of the excess e = f(y) - f(w) is accounted for by the corrected merit ½ log(‖∇f(y)‖² - 2λe), the gradient norm
   that y will have once it is on the level;
3. accept     if the merit grew by a fraction of a⟨r, d⟩. Where it grew as fast as predicted, twice the step is tried as
   well, and where it hardly grew, the step with which a parabola says it would have grown most: an iteration that goes
   on from a poor point costs more than a second gradient. One *HVP* at the new point gives the next r.

So the path stays near the level at some four to six gradient equivalents per iteration, two of which are the HVP; only
the returned point is put onto it. Near: a parabola along n believes in a way down from anywhere, but behind a softmax f
is nearly linear far above the level. So what is left of the excess is a small part of the depth that the valley would
have if its bottom were as near as it was at any iterate before.

Where λ < 0 in sub-level mode the gradient grows into the interior: there the full gradient H n/‖g‖ is followed, and the
level only bounds the value from above.

While ‖g‖ still grows fast, φ is often convex along the path, and L-BFGS learns nothing from it. The pairs are therefore
those of -2 ‖g‖^(-½), which increases with φ and is less convex: its gradient is ‖g‖^(-½) r, the same direction.

Where no pair has been, B⁻¹ is a diagonal with the longer scale that the newest pair allows
(:mod:`levelport.numerics.lbfgs`): a failed trial costs less than an iteration, which takes an HVP.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from levelport.numerics.lbfgs import QuasiNewton, pair_products
from levelport.objective import Point
from levelport.solvers.contract import Monitor
from levelport.solvers.problem import (
    INSIDE,
    SLOW_GROWTH,
    Frame,
    TeleportProblem,
    TrustRegion,
    is_kkt,
    merit,
    parabola_root,
    retract,
    room,
    shifted,
    split,
)
from levelport.solvers.result import TeleportStatus
from levelport.vectors import dots, norm, read

_SUFFICIENT = 1e-4  # fraction of the predicted growth of the merit that a step must achieve
_MAX_TRIALS = 12
_LONGEST = 2.0  # predicted growth of log ‖∇f‖ in one step; beyond it the linear model of φ means nothing
_AS_PREDICTED = 0.7  # fraction of the predicted growth from which a step of twice the length is tried
_BEYOND = 0.25  # fraction of the predicted growth, below which a step has gone far beyond the best length
_WORTH_A_GRADIENT = 1e-2  # growth of log ‖∇f‖ that is; where less is to be won no second trial is made
_LOSERS = 3  # trials of a search that lose, from which on a kink is suspected
_SMALL_LOSS = 0.05  # of log ‖∇f‖, for which a kink is crossed
_POWER = 0.5  # pairs are taken of -‖g‖^(-_POWER)/_POWER
_CORRECTIONS = 3  # values along the normal per trial
_LEFT_OF_GROWTH = 0.1  # part of the predicted growth that the excess left after the way back may be worth
_LEFT_OF_WAY = 0.05  # and part of what f changes over the step's length along the normal
_LEFT_OF_DEPTH = 0.3  # and part of the depth ½ ‖g‖ t of the valley, if its bottom is as near as it ever was, t = ‖g‖/λ
_SURE = 0.1  # what the excess is worth in log ‖∇f‖, below which the next correction hits in 97 of 100 cases
_NEAR = 0.1  # the level is near if what f changes over so much of the last step, along the normal, leads there
_EDGE = 1e-2  # of the radius: with less than that left to go an ascent has reached it
_WIDER = 100.0  # factor of a derived radius that was too small: the start was near 0, in the units of some features
_MAX_IDLE = 6  # steps without a new best merit, which roundings may call for
_LEAST_COSINE = 1e-6  # between the direction and the gradient of log ‖∇f‖; below it L-BFGS starts again


class Direction(NamedTuple):
    """A vector d with its slope ⟨d, r⟩ and its length."""

    vector: Tensor
    slope: float
    length: float


class LevelSetAscent:
    """An ascent that can be advanced one iteration at a time, so that another one can be tried in between.

    Args:
        start: a point near the level.
        pairs: where L-BFGS keeps its pairs; empty.
        region: shared by the ascents of a solve.
    """

    def __init__(
        self, problem: TeleportProblem, monitor: Monitor, start: Point, *, pairs: QuasiNewton, region: TrustRegion
    ) -> None:
        self.problem, self.monitor, self.region = problem, monitor, region
        self.merit = -math.inf
        """log of the gain in gradient norm that the best iterate will have on the level, to second order."""
        self.status: TeleportStatus | None = None
        self.landed = start
        """The point at which :meth:`land` has put the ascent's best point."""
        self.pairs = pairs
        self._distance = 0.0 if start is problem.start else math.inf  # an upper bound of ‖x - w‖
        self._step_length = math.nan
        self._reach = math.inf  # how far down the normal the bottom of the valley is, where it was nearest
        self._failed, self._idle = False, 0  # whether the last search failed; iterations since the best merit
        self._best, self._best_inside = start, False
        self._on_level = True
        self._enter(self._frame(start))

    @property
    def point(self) -> Point:
        """The present iterate."""
        return self.frame.point

    def _frame(self, point: Point, old: Frame | None = None) -> Frame:
        """One HVP at ``point``, and no more: its graphs and the product itself are released.

        After a step from ``old`` L-BFGS is given the step and the change of -‖g‖^(-½) r, both projected onto the new
        tangent space. All numbers come in one read from the device.
        """
        model, expected, size = self.pairs, self._on_level, point.gradient_norm
        normal = point.normal
        image = point.hessian_normal_of(normal)
        point.release()
        point.forget_product()
        along, tangential = split(normal, image)
        ascent = (tangential if expected else image) / size
        if old is None:
            curvature, residual = read([along], [tangential])
        else:
            ratio = (old.point.gradient_norm / size) ** _POWER
            s, y = point.x - old.point.x, (-ratio * ascent).add_(old.ascent)
            if expected:
                for v in (s, y):
                    v.addcmul_(normal, torch.dot(normal, v), value=-1.0)
            curvature, *products, residual = read([along, pair_products(s, y)], [tangential])
        point.product_sizes = curvature, residual, math.hypot(curvature, residual)
        on_level = self.problem.level_set or (curvature >= 0.0 and not self._inside(point))
        if on_level != expected:
            model.forget()
            ascent = (tangential if on_level else image) / size
        del image, tangential  # so that L-BFGS may use their room
        frame = Frame.of(point, normal, ascent, on_level=on_level)
        if old is not None and on_level == expected and frame.finite:
            model.update(s, y, products)
        return frame

    def _inside(self, point: Point) -> bool:
        """True if an ascent that was in the interior is still there, clearly further from the level than its last step.

        Sticky, because on a ridge λ = 0 below the level the sign of λ changes at every step: an ascent that took the
        level for active on one side of the ridge and not on the other would zigzag.
        """
        depth = self.problem.level - point.value
        return not self._on_level and depth > _NEAR * self._step_length * point.gradient_norm

    def _enter(self, frame: Frame) -> None:
        """Make ``frame`` the present iterate and see whether it ends the ascent."""
        self.frame = frame
        if not frame.finite:
            self.status = TeleportStatus.STALLED
            return
        self._on_level = frame.on_level
        self._here = merit(frame, frame.point, self.problem)
        if frame.certificate.curvature > 0.0:
            self._reach = min(self._reach, frame.point.gradient_norm / frame.certificate.curvature)
        self._idle += 1
        self._keep(frame.point, self._here)
        self.monitor.record(frame.point, frame.certificate, self._step_length)
        self.monitor.offer(frame.point)
        if is_kkt(frame.point, self.problem, on_level=frame.on_level, length=self.region.length):
            self.status = TeleportStatus.CONVERGED
        elif self._good_enough():
            self.status = TeleportStatus.TARGET_REACHED
        elif self._idle > _MAX_IDLE:
            self.status = TeleportStatus.STALLED

    def _good_enough(self) -> bool:
        """True if the iterate meets the caller's target, or will once it is on the level: :meth:`land` looks again.

        The path lies a little above the level or below it, by chance; a target must not wait for the right side.
        """
        problem, certificate = self.problem, self.frame.certificate
        if self.point is self.landed:
            return problem.meets_target(self.point, certificate)
        return self._here >= math.log(problem.target_gain) or certificate.alignment >= problem.target_alignment

    def _keep(self, point: Point, height: float) -> None:
        if height > self.merit:
            self.merit, self._idle, self._best, self._best_inside = height, 0, point, not self._on_level

    def advance(self) -> None:
        """One iteration; sets :attr:`status` when there is nothing more to do."""
        if self.status is not None:
            return
        # The point returned is a new one after retraction: its certificate takes the last HVP.
        stop = self.monitor.should_stop(hvps_needed=2)
        if stop is not None and self.monitor.should_stop(hvps_needed=1) is not None:
            self.status = stop
            return
        found = self._step()
        if stop is not None:  # a last step, with no product left at its end
            self.status = stop
            if found is not None:
                self._keep(found, merit(self.frame, found, self.problem))
        elif found is not None:
            self._enter(self._frame(found, self.frame))

    def _step(self) -> Point | None:
        """The next iterate, or None after a failed search or at the trust radius."""
        line = self._line()
        if line.slope == 0.0:  # its square is below the smallest number
            self.status = TeleportStatus.STALLED
            return None
        step = 1.0
        if not self.pairs.informed:
            # Twice the last accepted length: where φ is convex along the path no pair is ever kept, and the same length
            # again would be too short for ever. At first half a Cauchy step of f.
            cauchy = self.point.gradient_norm / self.frame.image_norm
            step = (2.0 * self._step_length if self._step_length > 0.0 else 0.5 * cauchy) / line.length
        step = min(step, _LONGEST / line.slope)
        region = self.region
        if self._distance + step * line.length > INSIDE * region.radius:
            offset = self.point.x - self.problem.start.x
            along, self._distance = read([torch.dot(line.vector, offset)], [offset])
            longest = room(along / line.length, self._distance, region.radius) / line.length
            if longest < step and longest * line.length < _EDGE * region.radius:
                # Where ‖∇f‖ has no maximum, the slope of its logarithm times the distance stays near 1 or ½.
                if self.problem.radius is not None or line.slope / line.length * self._distance > SLOW_GROWTH:
                    self.status = TeleportStatus.TRUST_RADIUS
                    return None
                region.radius *= _WIDER
            else:
                step = min(step, longest)
        found = self._search(line, step)
        if found is None:
            # On piecewise smooth f (ReLU) the gradient norm jumps, and old pairs point across the jump: try once more
            # without them and with a shorter step, unless growth was too small to be seen.
            if self._failed or step * line.slope < self._roundings():
                self.status = TeleportStatus.STALLED
            self._failed = True
            self._step_length *= 0.1
            self.pairs.forget()
            return None
        self._failed = False
        self._step_length = found[1] * line.length
        self._distance += 2.0 * self._step_length  # the way back to the level is no longer than the way out
        return found[0]

    def _line(self) -> Direction:
        """d = B⁻¹ r in the tangent space; steepest ascent where L-BFGS has no ascent direction."""
        frame, model = self.frame, self.pairs
        if model.informed:
            d = model.apply(frame.ascent)
            if frame.on_level:
                d.addcmul_(frame.normal, torch.dot(frame.normal, d), value=-1.0)
            slope, length = read([dots(d[None], frame.ascent)], [d])
            if math.isfinite(length) and slope > _LEAST_COSINE * length * frame.ascent_norm:
                return Direction(d, slope, length)
            model.forget()
        return Direction(frame.ascent, frame.ascent_norm * frame.ascent_norm, frame.ascent_norm)

    def _search(self, line: Direction, step: float) -> tuple[Point, float] | None:
        """Backtrack from ``step`` until the corrected merit grows enough; the point and its step, or None.

        On piecewise smooth f the gradient norm jumps at a kink, and no step towards it is short enough:
        further backtracking only makes tiny steps along the kink. So of three trials that lose the best is taken, if it
        does not lose much. A step too short for its growth to be seen is tried once, and never shortened.
        """
        roundings, hopeful = self._roundings(), step * line.slope > _WORTH_A_GRADIENT
        losers, least_loss, best = 0, math.inf, step
        for attempt in range(_MAX_TRIALS):
            if attempt and step * line.slope < roundings:
                return None
            trial, shrink = self._trial(line, step)
            if trial is None:
                step *= shrink
                continue
            growth = merit(self.frame, trial, self.problem) - self._here
            predicted = step * line.slope
            if growth >= _SUFFICIENT * predicted - roundings:
                another = _another_length(step, predicted, growth, first=attempt == 0)
                if another is not None:
                    second, _ = self._trial(line, another)
                    if second is not None and merit(self.frame, second, self.problem) - self._here > growth:
                        return second, another
                return trial, step
            losers += 1
            if -growth < least_loss:
                least_loss, best = -growth, step
            if losers >= _LOSERS and hopeful and least_loss <= _SMALL_LOSS:
                # Evaluated again, which is rare: kept, it would be two more vectors for every search.
                chosen = trial if best == step else self._trial(line, best)[0]
                return (chosen, best) if chosen is not None else None
            step = min(max(_top(step, predicted, growth), 0.1 * step), 0.5 * step)
        return None

    def _roundings(self) -> float:
        """The rounding error of the merit: growth below it cannot be seen."""
        eps, size = torch.finfo(self.problem.objective.dtype).eps, self.point.gradient_norm
        return 4.0 * eps * (1.0 + abs(self.frame.certificate.curvature / size * (self.problem.level / size)))

    def _trial(self, line: Direction, step: float) -> tuple[Point | None, float]:
        """x + step·d brought back towards the level; or None and the factor to shorten the step by."""
        problem, frame, size = self.problem, self.frame, self.point.gradient_norm
        curvature, way, growth = frame.certificate.curvature, step * line.length, step * line.slope
        rate = size * (1.0 + growth)  # of f along the normal, there
        # An iterate far from the level approaches it by at most half a step's length at a time.
        beside = self.point.value - problem.level if frame.on_level else 0.0
        approach = math.copysign(min(abs(beside), 0.5 * way * rate), beside)
        aim = problem.level + beside - approach
        trial = problem.objective.at(shifted(self.point.x, line.vector, step), curvature=True)
        if not math.isfinite(trial.value):
            return None, 0.25
        if frame.on_level or trial.value > problem.level:
            t, excess = 0.0, trial.value - aim
            steep = 2.0 * curvature * (excess / rate) / rate
            if steep > 1.0:  # the parabola along n does not come down to the level; excess grows like the step's square
                return None, max(0.1, min(0.5, math.sqrt(0.5 / steep)))
            for correction in range(_CORRECTIONS + 1):
                left = abs(curvature * (excess / rate)) / rate
                near = min(_LEFT_OF_WAY * way * rate, _LEFT_OF_DEPTH * 0.5 * size * self._reach)
                if left <= _LEFT_OF_GROWTH * min(growth, 1.0) and abs(excess) <= near:
                    break
                if correction == _CORRECTIONS:
                    return None, 0.5
                back = parabola_root(excess, rate, curvature) if correction == 0 else excess / rate
                t += back
                if back == 0.0:
                    return None, 0.5
                if abs(t) > way:  # the way back would be longer than the way out
                    return None, max(0.1, min(0.5, 0.7 * way / abs(t)))
                trial = problem.objective.at(shifted(trial.x, frame.normal, -back), curvature=True)
                # Where this will do, the gradient is taken at once: it comes in one read with the value.
                if left <= _SURE and not 0.0 < trial.gradient_norm < math.inf:
                    return None, 0.5
                was, excess = excess, trial.value - aim
                rate = (was - excess) / back
                if not (rate > 0.1 * size and abs(excess) <= 0.7 * abs(was)):
                    return None, 0.5
        # No further from x than twice the step, which is known to be near enough but for the last steps.
        radius = self.region.radius
        if self._distance + 2.0 * way > radius and float(norm(trial.x - problem.start.x)) > radius:
            return None, 0.5
        return (trial, 1.0) if trial.finite and trial.gradient_norm > 0.0 else (None, 0.25)

    def land(self) -> None:
        """Put the best iterate onto the level. An ascent that was done beside it goes on if on the level it is not."""
        if self.monitor.hvps_left <= 0:
            return  # another point could not be certified
        reached = self.status is TeleportStatus.TARGET_REACHED
        done = reached or self.status is TeleportStatus.CONVERGED
        entry = self.point if done else self._best
        inside = not self._on_level if done else self._best_inside
        free = inside and self.problem.feasible(entry.value)  # a larger gradient there than at the level
        self.landed = entry if free else retract(self.problem, entry, self.frame.certificate.curvature)
        self.monitor.offer(self.landed)
        if done and self.landed is not self.point and self.landed.finite and self.landed.gradient_norm > 0.0:
            # Merits of iterates beside the level no longer count. The product that is spent here is the one that the
            # certificate of the point returned would take.
            self.status, self.merit, self._distance = None, -math.inf, math.inf
            self._enter(self._frame(self.landed))
        elif reached and not self.problem.meets_target(self.landed, self.frame.certificate):
            self.status = None
        if self.status is not None:
            self._best = self.landed  # the iterate itself is done with


def _top(step: float, predicted: float, growth: float) -> float:
    """The top of the parabola with the predicted slope at 0 and the growth seen at ``step``."""
    bend = predicted - growth
    return 0.5 * step * (predicted / bend) if 0.0 < bend < math.inf else 0.5 * step


def _another_length(step: float, predicted: float, growth: float, *, first: bool) -> float | None:
    """Of a second trial after one that will do, where it is likely to be worth its gradient; None where it is not.

    Twice as long, if the first one grew as fast as predicted. At the top of the parabola, if it grew so little that it
    must lie far beyond: it would be accepted, but an iteration costs a product, and half the step a gradient.
    """
    if growth >= _AS_PREDICTED * predicted:
        return 2.0 * step if first and predicted > _WORTH_A_GRADIENT else None
    top = _top(step, predicted, growth)
    likely = 0.5 * predicted * (top / step)  # the parabola's height at its top
    return top if growth < _BEYOND * predicted and likely - growth > _WORTH_A_GRADIENT else None
