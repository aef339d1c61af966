"""``levelport.minimize``: descent with teleports, on a deterministic function. Algorithm 1 of the paper, and more."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from levelport import checks
from levelport.objective import Cost, Objective, Point
from levelport.objectives.distributed import DistributedObjective
from levelport.objectives.function import as_objective
from levelport.objectives.isolation import full_precision
from levelport.objectives.structure import X
from levelport.optim import defaults
from levelport.optim.armijo import Armijo
from levelport.optim.fixed_step import FixedStep, Momentum
from levelport.optim.history import History
from levelport.optim.lbfgs import LBFGS
from levelport.optim.newton_cg import Newton
from levelport.optim.normalized import Normalized
from levelport.optim.polyak import Polyak
from levelport.optim.progress_bar import progress_bar
from levelport.optim.result import MinimizeResult, MinimizeRow, MinimizeStatus, RowKind
from levelport.optim.schedules import Schedule
from levelport.optim.step_rule import StepRule
from levelport.solvers import Certificate, Settings, Solver, TeleportResult, move_from

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


Callback = Callable[[MinimizeRow, Point], object]
"""Called with every new point; a true return value stops the run."""


def minimize(
    fun: Callable[[Any], Tensor] | Objective,
    x0: X,
    method: str | StepRule = "auto",
    *,
    schedule: Schedule = defaults.MINIMIZE_SCHEDULE,
    solver: str | Solver = defaults.MINIMIZE_TELEPORTS.solver,
    max_hvps: int = defaults.MINIMIZE_TELEPORTS.max_hvps,
    tol: float = defaults.MINIMIZE_TELEPORTS.tol,
    radius: float | None = None,
    target_gain: float = math.inf,
    gtol: float = defaults.GTOL,
    gtol_absolute: float = 0.0,
    f_target: float = -math.inf,
    max_iterations: int = defaults.MAX_ITERATIONS,
    max_cost: float = math.inf,
    max_seconds: float = math.inf,
    callback: Callback | None = None,
    progress: bool = False,
) -> MinimizeResult[X]:
    """Minimise ``fun`` from ``x0`` by descent steps and teleports.

    In iteration k, if the schedule says so, the point first teleports, at no higher a value; then the method takes its
    step. The default teleports before every step by :class:`~levelport.solvers.Krylov`; where that finds a teleport
    not worth its cost it may hand over a lower point instead, which is then the step, and the trace says so. The
    cheapest way to a minimum is usually ``method="lbfgs", schedule=Never()``.

    Args:
        fun: f, a differentiable function of ``x0`` that returns a scalar tensor, or an :class:`Objective`.
        x0: a tensor, or a list or dict of tensors; for an Objective, a flat vector. Never modified.
        method: "auto", "armijo", "lbfgs", "newton-cg", or a configured rule: ``FixedStep(0.1)``, ``Momentum(0.1)``,
            ``Polyak(max_step=1.0)``, ``Armijo(c=0.1)``, ``Normalized(0.01)``, ``Newton(max_hvps=20)``.
        schedule: when to teleport; ``Never()`` for plain descent.
        solver, max_hvps, tol, radius, target_gain: how to teleport, see :func:`levelport.teleport`.
        gtol: stop when ‖∇f(x)‖ ≤ gtol · ‖∇f(x0)‖.
        gtol_absolute: stop when ‖∇f(x)‖ is at most this.
        f_target: stop when f(x) is at most this.
        max_iterations: budget of steps of the method, whatever the teleports before them do.
        max_cost: budget of gradient equivalents (value ½, gradient 1, HVP 2); checked once per iteration.
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
    if not isinstance(schedule, Schedule):
        raise ValueError(f"schedule must be a schedule such as Every(50), or Never() for none, not {schedule!r}.")
    settings = Settings(solver=solver, max_hvps=max_hvps, tol=tol, radius=radius, target_gain=target_gain)
    limits = _Limits(gtol, gtol_absolute, f_target, max_iterations, max_cost, max_seconds)
    if callback is not None and not callable(callback):
        raise ValueError(f"callback must be a function of (row, point), not {type(callback).__name__}.")
    objective, structure, flat = as_objective(fun, x0)
    if isinstance(objective, DistributedObjective) and math.isfinite(max_seconds):
        raise ValueError("max_seconds cannot be used across ranks, whose clocks differ; use max_cost.")
    descent = _Descent(objective, limits, settings, callback)
    with full_precision(objective.device), progress_bar(progress, max_iterations, max_cost) as show:
        descent.show = show
        status = descent.loop(rule, schedule, flat)
    return MinimizeResult(
        x=structure.assemble(structure.leaves(descent.point.x)),
        value=descent.point.value,
        gradient_norm=descent.point.gradient_norm,
        status=status,
        iterations=descent.iteration,
        teleports=descent.teleports,
        cost=descent.cost,
        trace=tuple(descent.trace),
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
        checks.number("gtol", self.gtol, at_least=0.0)
        checks.number("gtol_absolute", self.gtol_absolute, at_least=0.0)
        checks.number("f_target", self.f_target)


class _Descent:
    """The state of one minimisation."""

    point: Point

    def __init__(self, objective: Objective, limits: _Limits, settings: Settings, callback: Callback | None) -> None:
        self.objective = objective
        self._limits = limits
        self._settings = settings
        self._solver = settings.begin()
        self.iteration = 0
        self.teleports = 0
        self.trace: list[MinimizeRow] = []
        self.show: Callable[[MinimizeRow], None] = lambda row: None
        self._history = History()
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

    def loop(self, rule: StepRule, schedule: Schedule, x0: Tensor) -> MinimizeStatus:
        self.point = self.objective.at(x0, curvature=schedule.due(0, self._history) if not schedule.watches else False)
        if not (self.point.finite and bool(torch.isfinite(x0).all())):
            return MinimizeStatus.NON_FINITE_START
        self.objective.verify_deterministic(self.point)
        self._record("start", step=math.nan)
        state = None
        while True:
            if self._asked_to_stop:
                return MinimizeStatus.STOPPED
            if (reason := self._reason_to_stop(self.point)) is not None:
                return reason
            result, lower = self._teleport_if_due(schedule)
            if lower is not None:
                self.point = lower
                self.iteration += 1
                self._record("descent", step=math.nan)
                continue
            step = rule.advance(self.objective, self.point, state, result)
            if step.point is None:
                return MinimizeStatus.NO_STEP
            if not step.point.finite:
                return MinimizeStatus.DIVERGED
            teleported = self.point if result is not None and self.trace[-1].kind == "teleport" else None
            self.point, state = step.point, step.state
            self.iteration += 1
            self._record("step", step=step.size, certificate=_certify(teleported, self.point))

    def _reason_to_stop(self, point: Point) -> MinimizeStatus | None:
        limits = self._limits
        if point.gradient_norm <= max(limits.gtol * self.trace[0].gradient_norm, limits.gtol_absolute):
            return MinimizeStatus.GRADIENT_SMALL
        if point.value <= limits.f_target:
            return MinimizeStatus.TARGET_REACHED
        if self.iteration >= limits.max_iterations:
            return MinimizeStatus.MAX_ITERATIONS
        if self.cost.gradient_equivalents >= limits.max_cost:
            return MinimizeStatus.MAX_COST
        if time.perf_counter() - self._began >= limits.max_seconds:
            return MinimizeStatus.MAX_SECONDS
        return None

    def _teleport_if_due(self, schedule: Schedule) -> tuple[TeleportResult | None, Point | None]:
        """The teleport, if one was due, and a lower point in place of one that would not have paid."""
        spent = self.cost.gradient_equivalents
        self._history.observe(self.iteration, self.point.value, self.point.gradient_norm, spent)
        if not schedule.due(self.iteration, self._history):
            return None, None
        start = self.point
        limits = schedule.limits(self._history)
        settings = self._settings if limits is None else limits.within(self._settings)
        move = move_from(start, self.objective, self._solver, settings, certify=False)
        self._history.teleported(move.result.cost.gradient_equivalents)
        if move.lower is None:
            self.point = move.point
            moved = self.point.x is not start.x
            self.teleports += moved
            self._record("teleport" if moved else "stay", step=math.nan)
        return move.result, move.lower

    def _record(self, kind: RowKind, *, step: float, certificate: Certificate | None = None) -> None:
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
        if self._callback is not None and self._callback(row, self.point):
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
