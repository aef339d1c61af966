"""The contract between the verbs and the solvers: what is asked (TeleportProblem), who answers (Solver), who watches.

A solver sees one :class:`TeleportProblem` and a :class:`Monitor`, and returns an :class:`Outcome`. It says of itself
how far its points may lie above the level (:meth:`Solver.slack`) and whether its answer has to keep the guarantee
(:attr:`Solver.keeps_guarantee`); nobody outside asks which solver it is.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

import torch

from levelport.objective import Cost, Objective, Point
from levelport.solvers.certificate import Certificate
from levelport.solvers.result import TeleportStatus, TraceRow
from levelport.vectors import all_finite, norm

Callback = Callable[[TraceRow, Point], object]
"""Called once per iteration; a true return value stops the solve."""


@dataclass(frozen=True)
class TeleportProblem:
    """max ‖∇f(x)‖ subject to f(x) ≤ f(w), with everything that limits how it may be solved.

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
        least_decrease: where a model promises less from the teleport and the step after it, do not move.
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
    least_decrease: float = 0.0

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

    def fulfilled_by(self, point: Point) -> bool:
        """The guarantee: ``point`` is finite, keeps level and radius, and its gradient is no smaller than w's."""
        return (
            point.finite
            and all_finite(point.x)
            and self.feasible(point.value)
            and self.within_radius(point)
            and point.gradient_norm >= self.start.gradient_norm
        )


@dataclass(frozen=True)
class Outcome:
    """What a solver hands back: a point that it has evaluated, and why it stopped.

    Attributes:
        point, status, detail: the answer.
        certificate: what the solver knows of it already, for callers who do not insist on a product at ``point``.
        lower: where ``point`` is the start, a point with a lower value that is no teleport: an ordinary step.
    """

    point: Point
    status: TeleportStatus
    detail: str = ""
    certificate: Certificate | None = None
    lower: Point | None = None


class Solver(ABC):
    """Solves a :class:`TeleportProblem` from x = w."""

    keeps_guarantee: bool = True
    """Whether an answer that breaks the guarantee is replaced by the start itself."""

    def slack(self, level: float, dtype: torch.dtype) -> float:
        """By how much f may exceed the level in the point returned, in sub-level mode."""
        return 0.0

    def begin(self) -> Self:
        """A solver with an empty memory for the teleports of one run. Those that remember nothing return themselves."""
        return self

    def state_dict(self) -> dict[str, float]:
        """What the memory of a run holds, as plain numbers for a checkpoint."""
        return {}

    def load_state_dict(self, state: Mapping[str, float]) -> None:  # noqa: B027  (most solvers remember nothing)
        """The inverse of :meth:`state_dict`."""

    def product_cost(self, dtype: torch.dtype) -> float | None:
        """Gradient equivalents of a Hessian-vector product and of what goes with it, at most; None: nobody can say.

        For schedules that make a trial only where they can afford it. Where a solver does not say, they go by the bills
        of its trials.
        """
        return None

    def view(self, objective: Objective, start: Point) -> tuple[Objective, Point]:
        """f and the start as the solver wants to see them, for instance with other Hessian-vector products."""
        return objective, start

    @abstractmethod
    def solve(self, problem: TeleportProblem, monitor: Monitor) -> Outcome:
        """Never raises for numerical trouble; returns the best point it has."""


class Monitor:
    """Keeps the trace, the best feasible point and the budget of one solve."""

    def __init__(self, problem: TeleportProblem, callback: Callback | None = None) -> None:
        self.problem = problem
        self.best = problem.start
        self.trace: list[TraceRow] = []
        self._callback = callback
        self._cost_before = problem.objective.cost
        self._products_before = problem.objective.ledger.products
        self._began = time.perf_counter()
        self._asked_to_stop = False

    @property
    def cost(self) -> Cost:
        """Spent since the solve began."""
        spent = self.problem.objective.cost - self._cost_before
        return Cost(spent.values, spent.gradients, spent.hvps, time.perf_counter() - self._began)

    @property
    def hvps_left(self) -> int:
        """Hessian-vector products that may still be asked for."""
        return self.problem.max_hvps - (self.problem.objective.ledger.products - self._products_before)

    def offer(self, point: Point) -> bool:
        """Remember ``point`` if it is feasible, finite, within the radius and has the largest gradient so far."""
        problem = self.problem
        better = point.finite and problem.feasible(point.value) and point.gradient_norm > self.best.gradient_norm
        better = better and problem.within_radius(point)
        if better:
            self.best = point
        return better

    def record(self, point: Point, certificate: Certificate, step: float) -> None:
        """Append a row to the trace and call the user back."""
        excess = point.value - self.problem.level
        row = TraceRow(
            iteration=len(self.trace),
            value=point.value,
            violation=abs(excess) if self.problem.level_set else max(0.0, excess),
            gradient_norm=point.gradient_norm,
            kkt_residual=certificate.kkt_residual,
            alignment=certificate.alignment,
            step=step,
            cost=self.cost,
        )
        self.trace.append(row)
        if self._callback is not None and self._callback(row, point):
            self._asked_to_stop = True

    def should_stop(self, *, hvps_needed: int = 1) -> TeleportStatus | None:
        """The status to end with if the callback, the clock or the HVP budget says so."""
        if self._asked_to_stop:
            return TeleportStatus.STOPPED
        if self.hvps_left < hvps_needed or time.perf_counter() > self.problem.deadline:
            return TeleportStatus.BUDGET_SPENT
        return None
