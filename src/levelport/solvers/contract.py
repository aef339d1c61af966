"""The contract between the front door and the solvers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from levelport.objective import Cost, Objective, Point, norm
from levelport.solvers.result import Certificate, Status, TraceRow

Callback = Callable[[TraceRow, Point], object]
"""Called once per iteration; a true return value stops the solve."""


@dataclass(frozen=True)
class Task:
    """One teleportation problem with everything that limits how it may be solved.

    Attributes:
        objective, start: f and the point w to teleport from.
        level_set: stay on {f = f(w)} instead of {f ≤ f(w)}.
        tol: KKT tolerance, on sin ∠(∇f, ∇²f ∇f).
        slack: by how much f may exceed f(w) in the returned point; how far it may fall short in level-set mode.
        max_hvps: Hessian-vector products for the whole teleport, certificate included.
        deadline: a reading of ``time.perf_counter`` after which to stop.
        radius: the longest allowed distance from w; None lets the solver derive it.
        target_gain, target_alignment: stop as soon as the gradient norm has grown by this factor, or the
            alignment is this good, at a feasible point.
    """

    objective: Objective
    start: Point
    level_set: bool = False
    tol: float = 1e-6
    slack: float = 0.0
    max_hvps: int = 50
    deadline: float = math.inf
    radius: float | None = None
    target_gain: float = math.inf
    target_alignment: float = math.inf

    @property
    def level(self) -> float:
        """f(w)."""
        return self.start.value

    def feasible(self, value: float) -> bool:
        """Whether ``value`` keeps the level, up to the slack."""
        excess = value - self.level
        return abs(excess) <= self.slack if self.level_set else excess <= self.slack

    def within_radius(self, point: Point) -> bool:
        """Whether ``point`` is no further from w than allowed."""
        return self.radius is None or point is self.start or float(norm(point.x - self.start.x)) <= self.radius

    def meets_target(self, point: Point, certificate: Certificate) -> bool:
        """Whether ``point`` is feasible and good enough for the caller."""
        if not self.feasible(point.value):
            return False
        grown = point.gradient_norm >= self.target_gain * self.start.gradient_norm
        return grown or certificate.alignment >= self.target_alignment


@dataclass(frozen=True)
class Outcome:
    """What a solver hands back: a point that it has evaluated, and why it stopped."""

    point: Point
    status: Status
    detail: str = ""


class Teleporter(Protocol):
    """Solves max ‖∇f(x)‖ subject to f(x) ≤ f(w) from x = w."""

    def solve(self, task: Task, progress: Progress) -> Outcome:
        """Never raises for numerical trouble; returns the best point it has."""


class Progress:
    """Keeps the trace, the best feasible point and the budget of one solve."""

    def __init__(self, task: Task, callback: Callback | None = None) -> None:
        self.task = task
        self.best = task.start
        self.trace: list[TraceRow] = []
        self._callback = callback
        self._cost_before = task.objective.cost
        self._products_before = task.objective.ledger.products
        self._began = time.perf_counter()
        self._asked_to_stop = False

    @property
    def cost(self) -> Cost:
        """Spent since the solve began."""
        spent = self.task.objective.cost - self._cost_before
        return Cost(spent.values, spent.gradients, spent.hvps, time.perf_counter() - self._began)

    @property
    def hvps_left(self) -> int:
        """Hessian-vector products that may still be asked for."""
        return self.task.max_hvps - (self.task.objective.ledger.products - self._products_before)

    def offer(self, point: Point) -> bool:
        """Remember ``point`` if it is feasible, finite, within the radius and has the largest gradient so far."""
        better = point.finite and self.task.feasible(point.value) and point.gradient_norm > self.best.gradient_norm
        better = better and self.task.within_radius(point)
        if better:
            self.best = point
        return better

    def record(self, point: Point, certificate: Certificate, step: float) -> None:
        """Append a row to the trace and call the user back."""
        excess = point.value - self.task.level
        row = TraceRow(
            iteration=len(self.trace),
            value=point.value,
            violation=abs(excess) if self.task.level_set else max(0.0, excess),
            gradient_norm=point.gradient_norm,
            kkt_residual=certificate.kkt_residual,
            alignment=certificate.alignment,
            step=step,
            cost=self.cost,
        )
        self.trace.append(row)
        if self._callback is not None and self._callback(row, point):
            self._asked_to_stop = True

    def should_stop(self, *, hvps_needed: int = 1) -> Status | None:
        """The status to end with if the callback, the clock or the HVP budget says so."""
        if self._asked_to_stop:
            return Status.STOPPED
        if self.hvps_left < hvps_needed or time.perf_counter() > self.task.deadline:
            return Status.BUDGET_SPENT
        return None


def all_finite(v: Tensor) -> bool:
    """Whether every entry is a number."""
    return bool(torch.isfinite(v).all())
