"""The teleport that an optimizer can afford at every step: its model of f is recycled from gradients already paid for.

Between two teleports an optimizer evaluates gradients anyway. Each pair of points gives a secant, s = x' - x and
y = ∇f(x') - ∇f(x) ≈ ∇²f s, and together they make an L-BFGS model of f that costs nothing. With it the two phases of
:mod:`levelport.teleport.predictor` need one gradient:

* *descend* along s_N = -B⁻¹ ∇f(w), the bottom of the model;
* *climb* from there by a·v along the steepest direction known, until the gradient is larger than at w and still
  f ≤ f(w):  x⁺ = w + s_N + a v.

Both are evaluated at once, at x⁺. The steepest direction comes for free, too: the gradient step that follows a teleport
moves along ∇f(x⁺) ≈ θ a v, so that its change of gradient is a power iteration on ∇²f and refreshes v and θ. And 1/θ is
the step size of that gradient step.

If thirty pairs have been seen and the run goes on, the spectrum of ∇²f is richer than they can tell. Then
curvature is bought: the Newton system is solved by conjugate gradients, preconditioned by the model, more accurately as
the gradient shrinks. Where it meets negative curvature or the step it promised fails, buying is put off for twice as
long.

What is returned fulfils f(x⁺) ≤ f(w) and ‖∇f(x⁺)‖ ≥ ‖∇f(w)‖ like every teleport, but nobody checked that it is a KKT
point: that would take a Hessian-vector product. It is as good as a gradient step needs, not as good as it gets.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from levelport.objective import Cost, Objective, Point, norm
from levelport.teleport.conjugate_gradients import newton_step
from levelport.teleport.quasi_newton import QuasiNewton
from levelport.teleport.result import Certificate, Status, TeleportResult

_GROWTH = 1.2  # the gradient norm aimed at, in units of the start's
_LEAST_CLIMB = 0.3  # of the way back up to the level, in terms of a
_MOST_CLIMB = 0.9
_ALIGNED = 0.5  # cosine between the gradient and the steepest direction from which a teleport gains too little


@dataclass(frozen=True)
class Recycled:
    """How an optimizer teleports at every step.

    Args:
        memory: secant pairs kept, two vectors of x's size each; None takes 60, or down to 10 for large models.
        patience: pairs seen before curvature is bought.
        max_hvps: Hessian-vector products bought per teleport.
        forcing: the residual of a bought Newton step is at most (‖∇f‖/‖∇f at the first teleport‖)^forcing.
    """

    memory: int | None = None
    patience: int = 30
    max_hvps: int = 200
    forcing: float = 0.3

    def __post_init__(self) -> None:
        if self.memory is not None and self.memory < 1:
            raise ValueError(f"memory must be at least 1, not {self.memory}; None chooses it by the size of x.")
        if self.patience < 0:
            raise ValueError(f"patience must not be negative, not {self.patience}.")
        if self.max_hvps < 0:
            raise ValueError(f"max_hvps must not be negative, not {self.max_hvps}; 0 never buys curvature.")
        if not self.forcing > 0.0:
            raise ValueError(f"forcing must be positive, not {self.forcing}.")

    def begin(self) -> RecycledRun:
        """A fresh memory for one run."""
        return RecycledRun(self)


class RecycledRun:
    """The teleports of one run: call it at each point to teleport from."""

    def __init__(self, settings: Recycled) -> None:
        self.settings = settings
        self._model = QuasiNewton(1)
        self._capacity = 0
        self._pairs_until_purchase = 0
        self._backoff = 1
        self._last: Point | None = None
        self._steepest: Tensor | None = None
        self._curvature = 0.0
        self._first_gradient_norm = 0.0

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
        if abs(float(torch.dot(self._steepest, start.gradient))) > _ALIGNED * start.gradient_norm:
            return Status.ALIGNED, start
        step, decrease, bought = self._descent(start)
        end, held = self._land(objective, start, step, decrease)
        if bought and not held:
            self._put_off()
        if end is None:
            return Status.NO_FEASIBLE_GAIN, start
        self._last = end
        return Status.UNCERTIFIED, end

    def _open(self, objective: Objective, start: Point) -> None:
        """The first teleport spends one HVP: on the steepest direction, its curvature and the first pair."""
        memory = self.settings.memory
        # Sixty pairs of up to 140 000 numbers, then as many as fit into 2²⁴ numbers, at least ten.
        self._capacity = memory if memory is not None else max(10, min(60, 2**23 // objective.dimension))
        self._model = QuasiNewton(self._capacity)
        self._pairs_until_purchase = self.settings.patience
        self._first_gradient_norm = start.gradient_norm
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
        if self._model.update_known(s, y, sy, ss, yy):
            self._pairs_until_purchase -= 1
        length, change = math.sqrt(ss), math.sqrt(yy)
        # A gradient step from old: y ≈ ∇²f s is one power iteration, ‖y‖/‖s‖ the curvature.
        straight = slope < -0.999 * length * old.gradient_norm
        if straight and length > 0.0 and change > 0.0 and math.isfinite(change):
            self._steepest, self._curvature = y / change, change / length

    def _descent(self, start: Point) -> tuple[Tensor, float, bool]:
        """The step to the bottom of the model, the decrease it promises, and whether HVPs were bought for it."""
        if self._pairs_until_purchase <= 0 and self.settings.max_hvps > 0:
            ratio = start.gradient_norm / self._first_gradient_norm
            solved = newton_step(
                start,
                tolerance=min(0.5, ratio**self.settings.forcing),
                max_hvps=min(self.settings.max_hvps, start.x.numel()),
                preconditioner=self._model.apply if self._model.informed else None,
                keep=self._capacity,
            )
            if solved.negative:
                self._put_off()
            if solved.decrease > 0.0:
                self._model.restart(solved.pairs)
                return solved.step, solved.decrease, True
        if self._model.informed:
            step = self._model.apply(-start.gradient)
            decrease = -0.5 * float(torch.dot(step, start.gradient))
            if decrease > 0.0 and math.isfinite(decrease):
                return step, decrease, False
            self._model.forget()
        size = start.gradient_norm / self._curvature
        return -size * start.normal, 0.5 * size * start.gradient_norm, False

    def _put_off(self) -> None:
        """Next purchase after twice as many pairs as last time."""
        self._backoff *= 2
        self._pairs_until_purchase = self._backoff * max(1, self.settings.patience)

    def _land(self, objective: Objective, start: Point, step: Tensor, decrease: float) -> tuple[Point | None, bool]:
        """x⁺ on a shortened step if need be, None if nothing feasible was found; whether the full step held."""
        steepest, theta = self._steepest, self._curvature
        assert steepest is not None
        if float(torch.dot(steepest, start.gradient)) > 0.0:
            steepest = -steepest  # climb on the far side of the bottom
        fraction = 1.0
        for attempt in range(6):
            depth = (2.0 * fraction - fraction**2) * decrease
            level = math.sqrt(2.0 * depth / theta)  # where the wall meets f(w), in the model
            climb = min(max(_GROWTH * start.gradient_norm / theta, _LEAST_CLIMB * level), _MOST_CLIMB * level)
            bottom = torch.add(start.x, step, alpha=fraction)
            end = objective.at(torch.add(bottom, steepest, alpha=climb))
            if math.isfinite(end.value) and end.value <= start.value and end.finite:
                self._learn(start, end)
                if end.gradient_norm >= start.gradient_norm:
                    return end, attempt == 0
                # Low enough but too flat: the wall is less steep than it was. Climb on from what was measured.
                higher = min(climb * 1.5 * start.gradient_norm / max(end.gradient_norm, 1e-300), 3.0 * level)
                again = objective.at(torch.add(bottom, steepest, alpha=higher))
                if again.value <= start.value and again.finite and again.gradient_norm >= start.gradient_norm:
                    self._learn(end, again)
                    return again, attempt == 0
                return None, False
            fraction *= 0.4
        self._model.forget()  # it has led astray: what it knows is of other regions
        return None, False
