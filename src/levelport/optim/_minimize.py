"""``levelport.minimize``: descent with teleports, on a deterministic function. Algorithm 1 of the paper, and more."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from levelport import checks
from levelport.objective import Cost, Objective, Point
from levelport.objectives.distributed import DistributedObjective
from levelport.objectives.function import as_objective
from levelport.objectives.isolation import full_precision
from levelport.objectives.metric import InMetric
from levelport.objectives.numpy import from_arrays, is_array
from levelport.optim import defaults
from levelport.optim.armijo import Armijo
from levelport.optim.fixed_step import FixedStep, Momentum
from levelport.optim.history import History
from levelport.optim.lbfgs import LBFGS
from levelport.optim.newton_cg import Newton
from levelport.optim.normalized import Normalized
from levelport.optim.polyak import Polyak
from levelport.optim.progress_bar import progress_bar
from levelport.optim.result import MinimizeResult, MinimizeRow, MinimizeStatus, RowKind, Start
from levelport.optim.schedules import Never, Schedule
from levelport.optim.step_rule import StepRule
from levelport.optim.transaction import Stride, land
from levelport.optim.undo import Guard
from levelport.solvers import Certificate, Move, Solver, State, TeleportResult, move_from, solver_named
from levelport.vectors import all_finite

METHODS: dict[str, Callable[[], StepRule]] = {
    "auto": lambda: defaults.METHOD,
    "armijo": Armijo,
    "lbfgs": LBFGS,
    "newton-cg": Newton,
}
"""Methods that need no setting, by name."""

CONFIGURED = {
    "gd": FixedStep,
    "fixed": FixedStep,
    "momentum": Momentum,
    "normalized": Normalized,
    "polyak": Polyak,
}
"""Methods that need a step size, which no name can give."""

_STEP_COST = 3.0
"""Gradient equivalents kept for the end of a teleport and the step after it when a budget runs out."""

_STILL = 10
"""A run ends when f has changed by no more than rounding errors over so many steps."""

_BOTTOMLESS = {torch.float64: 1e30}
"""f is unbounded as far as anyone can tell below this times max(1, |f(x0)|), and below 1e15 in other precisions."""

SEARCHES = (Armijo, LBFGS, Newton)
"""Methods that are safe where the gradient is large: they look before they step, or do not step by its length."""


Callback = Callable[[MinimizeRow, Point], object]
"""Called with every new point; a true return value stops the run."""


def minimize(
    fun: Callable[[Any], Any] | Objective,
    x0: Start,
    method: str | StepRule = "auto",
    *,
    schedule: Schedule | None = None,
    solver: str | Solver = defaults.MINIMIZE_SOLVER,
    metric: Start | None = None,
    jac: Callable[[Any], Any] | bool | str | None = None,
    first_step: Literal["included", "method"] | None = None,
    gtol: float | None = None,
    tol: float | None = None,
    gtol_absolute: float = 0.0,
    f_target: float = -math.inf,
    max_iterations: int = defaults.MAX_ITERATIONS,
    max_cost: float = math.inf,
    max_seconds: float = math.inf,
    callback: Callback | None = None,
    progress: bool = False,
) -> MinimizeResult[Start]:
    """Minimise ``fun`` from ``x0`` by descent steps and teleports.

    The default is L-BFGS with a long memory. On problems that take it more than some sixty gradients, Krylov teleports
    probe the curvature while that pays, and what they learn goes into the memory
    (:class:`~levelport.optim.probes.Probes`). Other methods teleport only if a schedule is given: in iteration k, if
    the schedule says so, the point first teleports, at no higher a value; then the method takes its step. Where the
    Krylov solver finds a teleport not worth its cost it may hand over a lower point instead, which is then the step,
    and the trace says so. ``minimize(f, x0, Armijo(), schedule=Every(50, start=5), solver="sqp")`` is Algorithm 1 of
    the paper.

    Args:
        fun: f, a differentiable function of ``x0`` that returns a scalar tensor, or an :class:`Objective`. Of a NumPy
            start, f in NumPy, see ``jac``.
        x0: a tensor, or a list or dict of tensors; for an Objective, a flat vector; or a NumPy vector. Never modified.
        method: "auto", "armijo", "lbfgs", "newton-cg", or a configured rule: ``FixedStep(0.1)``, ``Momentum(0.1)``,
            ``Polyak(max_step=1.0)``, ``Armijo(c=0.1)``, ``Normalized(0.01)``, ``Newton(max_hvps=20)``.
        schedule: when to teleport; None takes probes for "auto" and ``Never()`` for all other methods.
        solver: how to teleport: "krylov", "auto", "sqp", or one with limits of its own, ``Auto(max_hvps=10)``.
        metric: positive weights m in the structure of ``x0``: the whole descent, steps as well as teleports, then takes
            place in the variables √m x, exactly. A gradient step is x - η ∇f(x)/m, and gradient norms are √(Σ gᵢ²/mᵢ),
            in tolerances and results, too.
        jac: for NumPy starts, as in SciPy: the gradient; True if ``fun`` returns value and gradient; None for
            differences of f.
        first_step: "included" makes the teleport and a checked gradient step of size 1/λ from it one move, which is
            undone if f rises again soon after it; "method" leaves the first step to the method, Algorithm 1 of the
            paper. None takes "method" for line searches and Newton's method, which are safe there, and "included" for
            all others: a fixed step size would be far too long where the gradient is many times larger.
        gtol: stop when ‖∇f(x)‖ ≤ gtol · ‖∇f(x0)‖; None takes 1e-8 in float64, 1e-5 in float32, 1e-3 below.
        tol: another name for ``gtol``, as SciPy has it.
        gtol_absolute: stop when ‖∇f(x)‖ is at most this.
        f_target: stop when f(x) is at most this.
        max_iterations: budget of steps of the method, whatever the teleports before them do.
        max_cost: budget of gradient equivalents (value ½, gradient 1, HVP 2); checked before every step and within
            teleports. A line search that has begun is finished.
        max_seconds: budget of time; checked at the same places.
        callback: called as ``callback(row, point)`` with every new point; a true answer stops the run.
        progress: show a bar (needs rich).

    Example:
        >>> import torch
        >>> booth = lambda w: (w[0] + 2 * w[1] - 7) ** 2 + (2 * w[0] + w[1] - 5) ** 2
        >>> result = minimize(booth, torch.tensor([7.5, -4.0], dtype=torch.float64))
        >>> result.success, [round(entry, 5) for entry in result.x.tolist()]
        (True, [1.0, 3.0])
    """
    rule = method_named(method)
    if schedule is None:
        schedule = defaults.MINIMIZE_SCHEDULE if method == "auto" else Never()
    if not isinstance(schedule, Schedule):
        raise ValueError(f"schedule must be a schedule such as Every(50), or Never() for none, not {schedule!r}.")
    if schedule.unit == "epochs":
        raise ValueError(f"the schedule ({schedule}) counts epochs, and minimize has none: count steps, unit='steps'.")
    chosen = solver_named(solver)
    if tol is not None:
        if gtol is not None:
            raise ValueError("tol and gtol are two names of one tolerance; pass one of them.")
        gtol = tol
    if gtol is not None:
        checks.number("gtol" if tol is None else "tol", gtol, at_least=0.0)
    if callback is not None:
        checks.function("callback", callback, of="row, point")
    arrays = is_array(x0)
    start: Any = x0
    weights: Any = metric
    if arrays:
        fun, start = from_arrays(fun, x0, jac)
        weights = metric if metric is None or isinstance(metric, str) else torch.as_tensor(metric, dtype=torch.float64)
    elif jac is not None:
        raise ValueError("jac is for NumPy starts; a function of tensors is differentiated automatically.")
    objective, structure, flat = as_objective(fun, start)
    relative = defaults.gtol_for(objective.dtype) if gtol is None else gtol
    limits = _Limits(relative, gtol_absolute, f_target, max_iterations, max_cost, max_seconds)
    if isinstance(objective, DistributedObjective) and math.isfinite(max_seconds):
        raise ValueError("max_seconds cannot be used across ranks, whose clocks differ; use max_cost.")
    if first_step is not None:
        checks.one_of("first_step", first_step, ("included", "method"))
    included = not isinstance(rule, SEARCHES) if first_step is None else first_step == "included"
    weighted = None if weights is None else InMetric.like(start, objective, weights)
    descent = _Descent(objective if weighted is None else weighted, limits, chosen, included, callback)
    with full_precision(objective.device), progress_bar(progress, max_iterations, max_cost) as show:
        descent.show = show
        first = objective.at(flat, curvature=not schedule.watches and schedule.due(0, History()))
        status = descent.loop(rule, schedule, first if weighted is None else weighted.around(first))
    last = descent.users(descent.point)

    def users(v: Tensor) -> Any:
        return v.numpy().copy() if arrays else structure.assemble(structure.leaves(v))

    return MinimizeResult(
        x=users(last.x),
        value=descent.point.value,
        gradient_norm=descent.point.gradient_norm,
        status=status,
        iterations=descent.iteration,
        teleports=descent.teleports,
        cost=descent.cost,
        trace=tuple(descent.trace),
        gradient=users(last.gradient),
    )


@dataclass(frozen=True)
class _Limits:
    """When to stop; see :func:`minimize`."""

    gtol: float
    gtol_absolute: float
    f_target: float
    max_iterations: int
    max_cost: float
    max_seconds: float

    def __post_init__(self) -> None:
        checks.whole("max_iterations", self.max_iterations)
        checks.number("max_cost", self.max_cost, above=0.0)
        checks.number("max_seconds", self.max_seconds, above=0.0)
        checks.number("gtol_absolute", self.gtol_absolute, at_least=0.0)
        checks.number("f_target", self.f_target)


class _Descent:
    """The state of one minimisation."""

    point: Point

    def __init__(
        self, objective: Objective, limits: _Limits, solver: Solver, included: bool, callback: Callback | None
    ) -> None:
        self.objective = objective
        self._limits = limits
        self._solver = solver
        self._solver_state: State = {}
        self._included = included
        self._guard: Guard[tuple[Point, Any]] = Guard()
        self.iteration = 0
        self.teleports = 0
        self.trace: list[MinimizeRow] = []
        self.show: Callable[[MinimizeRow], None] = lambda row: None
        self._history = History()
        self._history.product_cost = self._solver.product_cost(objective.dtype)
        self._callback = callback
        self._asked_to_stop = False
        self._before = objective.cost
        self._began = time.perf_counter()

    @property
    def cost(self) -> Cost:
        now, before = self.objective.ledger, self._before
        return Cost(
            now.values - before.values,
            now.gradients - before.gradients,
            now.hvps - before.hvps,
            time.perf_counter() - self._began,
        )

    def users(self, point: Point) -> Point:
        """``point`` as the user knows it: of f itself, whatever the metric."""
        return self.objective.underneath(point) if isinstance(self.objective, InMetric) else point

    def loop(self, rule: StepRule, schedule: Schedule, start: Point) -> MinimizeStatus:
        self.point = start
        if not (start.finite and all_finite(start.x)):
            return MinimizeStatus.NON_FINITE_START
        self.objective.verify_deterministic(start)
        self._record("start")
        stride = getattr(rule, "stride", Stride())
        state: Any = None
        while True:
            back = None if self._asked_to_stop else self._guard.look(self.point.value)
            if back is not None:
                self.point, state = back
                self._record("undone")
            if (reason := self._reason_to_stop(self.point)) is not None:
                return reason
            result = None
            move = None if back is not None else self._teleport_if_due(schedule)
            if move is not None and move.model is not None and move.model.size > 0 and isinstance(rule, LBFGS):
                state = rule.learn(self.objective, state, move.model.ritz_pairs())
            if move is None:
                pass
            elif self._included:
                result = self._land(move, stride, state)
                if result is not None and (reason := self._reason_to_stop(self.point)) is not None:
                    return reason
            elif move.lower is not None:
                self.point = move.lower
                self.iteration += 1
                self._record("descent")
                continue
            else:
                result = self._arrive(move)
            if self._asked_to_stop:
                return MinimizeStatus.STOPPED
            step = rule.advance(self.objective, self.point, state, result)
            if step.point is None:
                return MinimizeStatus.NO_STEP
            if not step.point.finite:
                if (back := self._guard.look(math.nan)) is None:
                    return MinimizeStatus.DIVERGED
                self.point, state = back
                self.iteration += 1
                self._record("undone")
                continue
            left = self.point if self.trace[-1].kind == "teleport" else None
            self.point, state = step.point, step.state
            self.iteration += 1
            self._record("step", step=step.size, certificate=_certify(left, self.point))

    def _reason_to_stop(self, point: Point) -> MinimizeStatus | None:
        limits = self._limits
        if self._asked_to_stop:
            return MinimizeStatus.STOPPED
        if point.gradient_norm <= max(limits.gtol * self.trace[0].gradient_norm, limits.gtol_absolute):
            return MinimizeStatus.GRADIENT_SMALL
        if point.value <= limits.f_target:
            return MinimizeStatus.TARGET_REACHED
        if point.value < -_BOTTOMLESS.get(self.objective.dtype, 1e15) * max(1.0, abs(self.trace[0].value)):
            return MinimizeStatus.UNBOUNDED
        if self._still():
            return MinimizeStatus.ROUNDING_FLOOR
        if self.iteration >= limits.max_iterations:
            return MinimizeStatus.MAX_ITERATIONS
        if self.cost.gradient_equivalents >= limits.max_cost:
            return MinimizeStatus.MAX_COST
        if time.perf_counter() - self._began >= limits.max_seconds:
            return MinimizeStatus.MAX_SECONDS
        return None

    def _still(self) -> bool:
        """Whether f has changed before, but only by rounding errors over the last steps."""
        rows = self.trace[-_STILL - 1 :]
        noise = 4.0 * torch.finfo(self.objective.dtype).eps * abs(self.point.value)
        if len(rows) <= _STILL or rows[0].value - self.point.value > noise:
            return False
        values = [row.value for row in rows]
        return max(values) - min(values) <= noise < self.trace[0].value - self.point.value

    def _teleport_if_due(self, schedule: Schedule) -> Move | None:
        """The teleport that the schedule asks for, not yet made."""
        point, spent = self.point, self.cost.gradient_equivalents
        self._history.observe(self.iteration, point.value, point.gradient_norm, spent)
        if not self._guard.grants(schedule.due(self.iteration, self._history), point.value):
            return None
        limits = schedule.limits(self._history)
        solver = self._solver if limits is None else limits.of(self._solver)
        cost_left = self._limits.max_cost - spent - _STEP_COST
        seconds_left = self._limits.max_seconds - (time.perf_counter() - self._began)
        if not (cost_left > 0.0 and seconds_left > 0.0):
            return None
        solver = solver.within(max_cost=cost_left, max_seconds=seconds_left)
        move = move_from(point, self.objective, solver, self._solver_state, certify=False)
        self._solver_state = move.state
        self._history.teleported(self.cost.gradient_equivalents - spent)
        return move

    def _arrive(self, move: Move) -> TeleportResult | None:
        """Make the teleport, and leave the first step to the method; None where it came to nothing."""
        moved = move.point.x is not self.point.x
        self.point = move.point
        self.teleports += moved
        self._record("teleport" if moved else "stay")
        return move.result if moved else None  # after none the step is an ordinary one

    def _land(self, move: Move, stride: Stride, state: Any) -> TeleportResult | None:
        """Make the teleport and its first step as one move that can be undone; None where it is not made."""
        start = self.point
        landing = land(self.objective, start, move, stride)
        self._guard.forget()
        if landing.point.x is start.x:
            self._record("stay")
            return None
        self._guard.watch(start.value, (start, state))
        if move.lower is not None:
            self.point = landing.point
            self._record("descent")
        else:
            self.point = move.point
            self.teleports += 1
            self._record("teleport")
            self.point = landing.point
            self._record("first step", step=landing.step, certificate=_certify(move.point, landing.point))
        return replace(move.result, first_step=landing.step, value_after=landing.point.value)

    def _record(self, kind: RowKind, *, step: float = math.nan, certificate: Certificate | None = None) -> None:
        value, gradient_norm, cost = self.point.value, self.point.gradient_norm, self.cost
        row = MinimizeRow(
            iteration=self.iteration,
            cost=cost.gradient_equivalents,
            value=value,
            gradient_norm=gradient_norm,
            kind=kind,
            step=step,
            seconds=cost.seconds,
            certificate=certificate,
        )
        self.trace.append(row)
        self.show(row)
        if self._callback is not None and self._callback(row, self.users(self.point)):
            self._asked_to_stop = True


def _certify(teleported: Point | None, after: Point) -> Certificate | None:
    return None if teleported is None else Certificate.averaged(teleported, after)


def method_named(method: str | StepRule) -> StepRule:
    """The method itself, by name or as it is; anything else is answered by a sentence."""
    if not isinstance(method, str):
        if isinstance(method, type) or not callable(getattr(method, "advance", None)):
            raise ValueError(
                f"method must be one of the names {', '.join(METHODS)} or a configured rule such as Armijo(c=0.1), not "
                f"{method!r}."
            )
        return method
    if method in METHODS:
        return METHODS[method]()
    if method in CONFIGURED:
        rule = CONFIGURED[method].__name__
        raise ValueError(f"method {method!r} needs a step size: pass method=levelport.optim.{rule}(0.1), for example.")
    raise checks.unknown_name("method", method, [*METHODS, *CONFIGURED])
