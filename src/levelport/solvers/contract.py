"""The contract between the verbs and the solvers: Solver solves, Outcome is its answer, Monitor keeps the best point.

A solver sees one :class:`TeleportProblem` and a :class:`Monitor`, and returns an :class:`Outcome`. Its limits are its
own: ``Auto(max_hvps=200)``. It says of itself how far its points may lie above the level (:meth:`Solver.slack`) and
whether its answer has to keep the guarantee (:attr:`Solver.keeps_guarantee`); no caller asks which solver it is.
"""

from __future__ import annotations

import copy
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Literal, Self

import torch

from levelport import checks
from levelport.numerics.lanczos import KrylovModel
from levelport.objective import Cost, Point
from levelport.solvers.problem import Certificate, Limits, State, TeleportProblem
from levelport.solvers.result import TeleportStatus, TraceRow

Callback = Callable[[TraceRow, Point], object]
"""Called once per iteration; a true return value stops the solve."""

_NO_POINT = "a solver's points must come from problem.objective.at(x), evaluated there; this is"
_NEXT = 2.0  # gradient equivalents of the next evaluation, a Hessian-vector product at most


@dataclass(frozen=True)
class Outcome:
    """The answer of a solver: a point that it has evaluated, and why it stopped.

    Attributes:
        point, status, detail: the answer.
        certificate: what the solver knows of it already, for callers that do not need a product at ``point``.
        lower: where ``point`` is the start, a point with a lower value that is no teleport: an ordinary step.
        state: what the solver wants to see at the next teleport of the run.
        model: the quadratic model of f around the start that the solver has paid for; its Ritz pairs tell curvature.
    """

    point: Point
    status: TeleportStatus
    detail: str = ""
    certificate: Certificate | None = None
    lower: Point | None = None
    state: State = field(default_factory=dict)
    model: KrylovModel | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.point, Point):
            raise TypeError(f"{_NO_POINT} a {type(self.point).__name__}: Outcome(monitor.best, ...).")
        if not isinstance(self.status, TeleportStatus):
            raise TypeError(f"the status of an Outcome must be a TeleportStatus, not {self.status!r}.")


@dataclass(frozen=True)
class Solver(Limits, ABC):
    """Solves a :class:`TeleportProblem` from x = w, within the :class:`Limits` that are arguments of every solver.

    Args:
        hvp: "exact" Hessian-vector products (2 gradient equivalents), or by "difference" of gradients (1; float64
            only). None takes differences where they are possible and products are not cheap anyway.
    """

    _: KW_ONLY
    hvp: Literal["exact", "difference"] | None = "exact"

    def __post_init__(self) -> None:
        checks.whole("max_hvps", self.max_hvps, at_least=1, why="the certificate alone takes one")
        checks.number("max_cost", self.max_cost, above=0.0)
        checks.number("max_seconds", self.max_seconds, above=0.0)
        checks.number("tol", self.tol, above=0.0, below=1.0, why="it bounds the sine of an angle")
        if self.radius is not None:
            checks.number("radius", self.radius, above=0.0, why="it is a distance; None has it derived")
        checks.number("target_gain", self.target_gain, above=1.0, why="it is the growth of the gradient norm")
        if self.target_alignment != math.inf:
            checks.number("target_alignment", self.target_alignment, above=-1.0, at_most=1.0, why="it is a cosine")
        checks.number("least_decrease", self.least_decrease)
        if self.hvp is not None:
            checks.one_of("hvp", self.hvp, ("exact", "difference"))

    def within(
        self,
        max_hvps: int | None = None,
        least_decrease: float = -math.inf,
        max_cost: float = math.inf,
        max_seconds: float = math.inf,
    ) -> Self:
        """A copy with tighter limits, for schedules and budgets that allow a teleport less than its owner does."""
        tighter = copy.copy(self)
        if max_hvps is not None:
            object.__setattr__(tighter, "max_hvps", min(self.max_hvps, max_hvps))
        object.__setattr__(tighter, "least_decrease", max(self.least_decrease, least_decrease))
        object.__setattr__(tighter, "max_cost", min(self.max_cost, max_cost))
        object.__setattr__(tighter, "max_seconds", min(self.max_seconds, max_seconds))
        return tighter

    @property
    def keeps_guarantee(self) -> bool:
        """True if an answer that breaks the guarantee is replaced by the start itself."""
        return True

    def slack(self, level: float, dtype: torch.dtype) -> float:
        """By how much f may exceed the level in the point returned, in sub-level mode."""
        return 0.0

    def product_cost(self, dtype: torch.dtype) -> float:
        """Gradient equivalents of a Hessian-vector product and of what goes with it, at most.

        For schedules that make a trial only where they can afford it. The default is what the paper's search, which
        tries many gradients for one product, cost on small networks.
        """
        return 20.0

    @abstractmethod
    def solve(self, problem: TeleportProblem, monitor: Monitor) -> Outcome:
        """Return the best point found, also after numerical trouble, which must not raise.

        A solver that remembers something from teleport to teleport finds it in ``problem.state`` and returns it in
        ``Outcome.state``; the solver itself never changes.
        """

    def __str__(self) -> str:
        changed = (f"{s.name}={v!r}" for s in fields(self) if s.repr and (v := getattr(self, s.name)) != s.default)
        return f"{type(self).__name__}({', '.join(changed)})"


class Monitor:
    """Keeps the trace, the best feasible point and the budget of one solve."""

    def __init__(self, problem: TeleportProblem, callback: Callback | None = None) -> None:
        self.problem = problem
        self.best = problem.start
        self.trace: list[TraceRow] = []
        self.reserve = 0
        """Hessian-vector products that are held back for the certificate of a point found before."""
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
        spent = self.problem.objective.ledger.products - self._products_before
        return self.problem.max_hvps - self.reserve - spent

    def offer(self, point: Point) -> bool:
        """Remember ``point`` if it is feasible, finite, within the radius and has the largest gradient so far."""
        problem = self.problem
        if not isinstance(point, Point):
            raise TypeError(f"{_NO_POINT} a {type(point).__name__}: monitor.offer(problem.objective.at(x)).")
        better = point.finite and problem.feasible(point.value) and point.gradient_norm > self.best.gradient_norm
        better = better and problem.within_radius(point)
        if better:
            self.best = point
        return better

    def record(self, point: Point, certificate: Certificate, step: float) -> None:
        """Append a row to the trace and call the user back."""
        row = TraceRow(
            iteration=len(self.trace),
            value=point.value,
            violation=self.problem.violation(point.value),
            gradient_norm=point.gradient_norm,
            kkt_residual=certificate.kkt_residual,
            alignment=certificate.alignment,
            curvature=certificate.curvature,
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
        if self.hvps_left < hvps_needed or time.perf_counter() > self._began + self.problem.max_seconds:
            return TeleportStatus.BUDGET_SPENT
        if math.isfinite(self.problem.max_cost) and self.cost.gradient_equivalents + _NEXT > self.problem.max_cost:
            return TeleportStatus.BUDGET_SPENT
        return None
