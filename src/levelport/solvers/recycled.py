"""The teleport of ``minimize``: its model of f is recycled from the gradients of the steps and teleports before.

Between two points where the gradient is known lies a secant, s = x' - x and y = ∇f(x') - ∇f(x) ≈ ∇²f s. Together the
secants make an L-BFGS model of f. With it the two phases of :mod:`levelport.solvers.predictor` need a gradient per
step and, after the first teleport, no Hessian-vector product:

* *descend* along s_N = -B⁻¹ ∇f, to the bottom of the model, a few times: each step teaches the model;
* *climb* with the last of these steps by a·v along the steepest direction known, until the gradient is larger than at
  the start w and still f ≤ f(w):  x⁺ = x + s_N + a v, evaluated at once.

The steepest direction comes for free, too: the gradient step that follows a teleport moves along ∇f(x⁺) ≈ θ a v, so
that its change of gradient is a power iteration on ∇²f and refreshes v and θ. And 1/θ is the step size of that gradient
step, which leads back down the wall.

What is returned fulfils f(x⁺) ≤ f(w) and ‖∇f(x⁺)‖ ≥ ‖∇f(w)‖ like every teleport, but nobody checked that it is a KKT
point: that would take a Hessian-vector product. It is as good as a gradient step needs, not as good as it gets. Where
the wall cannot be climbed, or the descent has reached all that the run asks for, the result says so: its status is
``DESCENDED`` and only f(x⁺) ≤ f(w) holds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from levelport.numerics.lbfgs import QuasiNewton
from levelport.objective import Cost, Objective, Point, norm
from levelport.solvers.result import Certificate, Status, TeleportResult

_GROWTH = 1.2  # the gradient norm aimed at, in units of the start's
_MOST_CLIMB = 0.9  # of the way back up to the level
_ALIGNED = 0.9  # cosine between the gradient and the steepest direction from which a teleport gains too little
_TRIALS = 5  # of ever shorter steps, before a direction is given up

IsEnough = Callable[[Point], bool]
"""Whether a point is all that a run asks for."""


def default_memory(dimension: int) -> int:
    """Sixty pairs of up to 140 000 numbers, then as many as fit into 2²⁴ numbers, at least ten."""
    return max(10, min(60, 2**23 // dimension))


def never(point: Point) -> bool:
    """A run that always wants more."""
    return False


@dataclass(frozen=True)
class Recycled:
    """How ``minimize`` teleports before every step.

    Args:
        memory: secant pairs kept, two vectors of x's size each; None takes 60, or down to 10 for large models.
        descents: steps to the bottom of the model in one teleport; the last one ends in the climb.
    """

    memory: int | None = None
    descents: int = 10

    def __post_init__(self) -> None:
        if self.memory is not None and self.memory < 1:
            raise ValueError(f"memory must be at least 1, not {self.memory}; None chooses it by the size of x.")
        if self.descents < 1:
            raise ValueError(f"descents must be at least 1, not {self.descents}.")

    def begin(self, enough: IsEnough = never) -> RecycledRun:
        """A fresh memory for one run; a descent ends at the first point that is ``enough``."""
        return RecycledRun(self, enough)


class RecycledRun:
    """The teleports of one run: call it at each point to teleport from."""

    def __init__(self, settings: Recycled, enough: IsEnough) -> None:
        self.settings = settings
        self._enough = enough
        self._model = QuasiNewton(1)
        self._last: Point | None = None
        self._steepest: Tensor | None = None
        self._curvature = 0.0
        self._stayed = False

    def __call__(self, objective: Objective, start: Point) -> tuple[TeleportResult, Point]:
        """Teleport from ``start``; the result and the point it ends at."""
        began, before = time.perf_counter(), objective.cost
        status, end = self._teleport(objective, start)
        after = objective.ledger
        result = TeleportResult(
            x=end.x,
            status=status,
            value=end.value,
            value_start=start.value,
            gradient_norm=end.gradient_norm,
            gradient_norm_start=start.gradient_norm,
            certificate=Certificate(self._curvature, math.nan, math.nan),
            cost=Cost(
                after.values - before.values,
                after.gradients - before.gradients,
                after.hvps - before.hvps,
                time.perf_counter() - began,
            ),
        )
        return result, end

    def _teleport(self, objective: Objective, start: Point) -> tuple[Status, Point]:
        if not start.finite:
            return Status.NON_FINITE_START, start
        if start.gradient_norm == 0.0:
            return Status.STATIONARY_START, start
        if self._steepest is None:
            self._open(objective, start)
        elif self._last is not None:
            self._learn(self._last, start)
        self._last = start
        if self._steepest is None:
            return Status.NO_FEASIBLE_GAIN, start
        aligned = abs(float(torch.dot(self._steepest, start.gradient))) > _ALIGNED * start.gradient_norm
        # Still aligned after a plain step: that step has not done what a quadratic promised, the model may.
        self._stayed = aligned and not self._stayed
        if self._stayed:
            return Status.ALIGNED, start
        bottom = self._descend(objective, start)
        arrived = bottom is not start and (bottom.gradient_norm == 0.0 or self._enough(bottom))
        end = bottom if arrived else self._climb(objective, start, bottom) or bottom
        self._last = end
        if end is start:
            return Status.NO_FEASIBLE_GAIN, start
        return (Status.UNCERTIFIED if end.gradient_norm >= start.gradient_norm else Status.DESCENDED), end

    def _open(self, objective: Objective, start: Point) -> None:
        """The first teleport spends one HVP: on the steepest direction, its curvature and the first pair."""
        self._model = QuasiNewton(self.settings.memory or default_memory(objective.dimension))
        objective.verify_deterministic(start)
        image = start.hessian_normal
        curvature = float(norm(image))
        if curvature > 0.0 and math.isfinite(curvature):
            self._steepest, self._curvature = image / curvature, curvature
            self._model.update(start.normal, image)

    def _learn(self, old: Point, new: Point) -> None:
        """Add the secant pair of two points; refresh the steepest direction if it was a gradient step."""
        s, y = new.x - old.x, new.gradient - old.gradient
        products = [torch.dot(s, y), torch.dot(s, s), torch.dot(y, y), torch.dot(s, old.gradient)]
        sy, ss, yy, slope = torch.stack(products).tolist()
        self._model.update_known(s, y, sy, ss, yy)
        length, change = math.sqrt(ss), math.sqrt(yy)
        # A gradient step from old: y ≈ ∇²f s is one power iteration, ‖y‖/‖s‖ the curvature.
        straight = slope < -0.999 * length * old.gradient_norm
        if straight and length > 0.0 and change > 0.0 and math.isfinite(change):
            self._steepest, self._curvature = y / change, change / length

    def _to_bottom(self, point: Point) -> tuple[Tensor, float]:
        """The step to the bottom of the model and the decrease that it promises."""
        if self._model.informed:
            step = self._model.apply(-point.gradient)
            decrease = -0.5 * float(torch.dot(step, point.gradient))
            if decrease > 0.0 and math.isfinite(decrease):
                return step, decrease
            self._model.forget()
        size = point.gradient_norm / self._curvature
        return -size * point.normal, 0.5 * size * point.gradient_norm

    def _descend(self, objective: Objective, start: Point) -> Point:
        """All descents but the last, which belongs to the climb, as long as they lead down."""
        here = start
        for _ in range(self.settings.descents - 1):
            there = self._step_down(objective, here)
            if there is None:
                self._model.forget()  # it leads astray: what it knows is of other regions
                break
            self._learn(here, there)
            here = there
            if here.gradient_norm == 0.0 or self._enough(here):
                break
        return here

    def _step_down(self, objective: Objective, here: Point) -> Point | None:
        """A lower point on the way to the bottom of the model, or None."""
        step, promised = self._to_bottom(here)
        here.release()  # no HVP will be asked for here; for large models one graph at a time is enough
        fraction = 1.0
        for _ in range(_TRIALS):
            there = objective.at(torch.add(here.x, step, alpha=fraction))
            if there.value < here.value and there.finite:
                return there
            # The parabola through f(here), its slope and f(there) has its minimum at this share of the step.
            slope = 2.0 * promised * fraction
            rise = there.value - here.value
            share = 0.5 * slope / (rise + slope) if math.isfinite(rise) and slope > 0.0 else 0.1
            fraction *= min(max(share, 0.1), 0.5)
        return None

    def _climb(self, objective: Objective, start: Point, here: Point) -> Point | None:
        """x⁺, after a shortened step from ``here`` if need be; None if nothing feasible was found."""
        steepest, theta = self._steepest, self._curvature
        assert steepest is not None
        if float(torch.dot(steepest, here.gradient)) > 0.0:
            steepest = -steepest  # climb on the far side of the bottom
        step, decrease = self._to_bottom(here)
        here.release()
        fraction = 1.0
        # After a descent there is something to keep, and the wall does not move with the step: one trial.
        for _ in range(_TRIALS if here is start else 1):
            depth = start.value - here.value + (2.0 * fraction - fraction**2) * decrease
            level = math.sqrt(2.0 * depth / theta)  # where the wall meets f(w), in the model
            climb = min(_GROWTH * start.gradient_norm / theta, _MOST_CLIMB * level)
            bottom = torch.add(here.x, step, alpha=fraction)
            end = objective.at(torch.add(bottom, steepest, alpha=climb))
            if math.isfinite(end.value) and end.value <= start.value and end.finite:
                self._learn(here, end)
                if end.gradient_norm >= start.gradient_norm:
                    return end
                # Low enough but too flat: the wall is less steep than it was. Climb on from what was measured.
                higher = min(climb * 1.5 * start.gradient_norm / max(end.gradient_norm, 1e-300), 3.0 * level)
                again = objective.at(torch.add(bottom, steepest, alpha=higher))
                if again.value <= start.value and again.finite and again.gradient_norm >= start.gradient_norm:
                    self._learn(end, again)
                    return again
                return None
            fraction *= 0.4
        if here is start:
            self._model.forget()  # not even a short step of it helped
        return None
