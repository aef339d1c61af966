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
from levelport.optim.armijo import Armijo
from levelport.optim.first_step import StabilityLimit, Taken
from levelport.optim.lbfgs import LBFGS
from levelport.optim.newton_cg import Newton
from levelport.optim.policy import TeleportPolicy
from levelport.optim.probes import Probes
from levelport.optim.result import MinimizeResult, MinimizeRow, MinimizeStatus, RowKind, Start
from levelport.optim.schedules import History, Never, Schedule
from levelport.optim.step_rule import StepRule, newton_size
from levelport.solvers import Solver, solver_named
from levelport.vectors import all_finite

METHODS: dict[str, StepRule] = {"auto": LBFGS(), "armijo": Armijo(), "lbfgs": LBFGS(), "newton-cg": Newton()}
"""Methods by name. The others need a step size, which no name can give."""

_GTOL = {torch.float64: 1e-8, torch.float32: 1e-5}
"""‖∇f‖ relative to its value at x0, as small as it gets; 1e-3 in other precisions.

Once it is √u, u the unit roundoff, f itself changes by rounding alone: 1e-8 in float64, 3e-4 in float32, where
gradients have some digits left to go on with.
"""

_STEP_COST = 3.0
"""Gradient equivalents kept for the end of a teleport and the step after it when a budget runs out."""

_STILL = 10
"""A run ends when f has changed by no more than rounding errors over so many steps."""

_BOTTOMLESS = {torch.float64: 1e30}
"""f is unbounded as far as anyone can tell below this times max(1, |f(x0)|), and below 1e15 in other precisions."""

Callback = Callable[[MinimizeRow, Point], object]
"""Called with every new point; a true return value stops the run."""


def minimize(
    fun: Callable[[Any], Any] | Objective,
    x0: Start,
    method: str | StepRule = "auto",
    *,
    schedule: Schedule | None = None,
    solver: str | Solver = "krylov",
    metric: Start | None = None,
    jac: Callable[[Any], Any] | bool | str | None = None,
    first_step: Literal["included", "method"] | None = None,
    gtol: float | None = None,
    tol: float | None = None,
    gtol_absolute: float = 0.0,
    f_target: float = -math.inf,
    max_iterations: int = 10_000,
    max_cost: float = math.inf,
    max_seconds: float = math.inf,
    callback: Callback | None = None,
) -> MinimizeResult[Start]:
    """Minimize ``fun`` from ``x0`` by descent steps and teleports.

    The default is L-BFGS with a long memory. On problems that take it more than some eighty gradients, Krylov teleports
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
        max_cost: budget of gradient equivalents (value ½, gradient 1, HVP 2); checked before every step, within
            teleports and for the products of a Newton step. A line search that has begun is finished.
        max_seconds: budget of time; checked at the same places.
        callback: called as ``callback(row, point)`` with every new point; a true answer stops the run.

    Returns:
        The last point, of the kind of ``x0``, with a status, a trace and the cost; under SciPy's names as well.

    Raises:
        ObjectiveError: the function is not a deterministic differentiable scalar.
        ValueError: an argument makes no sense.

    Example:
        >>> import torch
        >>> booth = lambda w: (w[0] + 2 * w[1] - 7) ** 2 + (2 * w[0] + w[1] - 5) ** 2
        >>> result = minimize(booth, torch.tensor([7.5, -4.0], dtype=torch.float64))
        >>> result.success, [round(entry, 5) for entry in result.x.tolist()]
        (True, [1.0, 3.0])
    """
    rule = method_named(method)
    if schedule is None:
        schedule = Probes() if method == "auto" else Never()
    if not isinstance(schedule, Schedule):
        raise ValueError(f"schedule must be a schedule such as Every(50), or Never() for none, not {schedule!r}.")
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
        weights = metric if metric is None or isinstance(metric, str) else torch.as_tensor(metric, device="cpu")
    elif jac is not None:
        raise ValueError("jac is for NumPy starts; a function of tensors is differentiated automatically.")
    objective, structure, flat = as_objective(fun, start)
    if isinstance(objective, DistributedObjective) and math.isfinite(max_seconds):
        raise ValueError("max_seconds cannot be used across ranks, whose clocks differ; use max_cost.")
    if first_step is not None:
        checks.one_of("first_step", first_step, ("included", "method"))
    included = not rule.safe_after_teleport if first_step is None else first_step == "included"
    weighted = None if weights is None else InMetric.like(start, objective, weights)
    policy: TeleportPolicy[tuple[Point, Any]] = TeleportPolicy(schedule, chosen, first_step=included)
    policy.history.product_cost = chosen.product_cost(objective.dtype)
    run = _Run(
        objective if weighted is None else weighted,
        callback,
        _GTOL.get(objective.dtype, 1e-3) if gtol is None else gtol,
        gtol_absolute,
        f_target,
        max_iterations,
        max_cost,
        max_seconds,
    )
    with full_precision(objective.device):
        first = objective.at(flat, curvature=not schedule.watches and schedule.due(0, History()))
        status = _descend(run, rule, policy, first if weighted is None else weighted.around(first))
    last = run.users(run.point)

    def users(v: Tensor) -> Any:
        return v.numpy().copy() if arrays else structure.unflatten(v)

    return MinimizeResult(
        x=users(last.x),
        value=run.point.value,
        gradient_norm=run.point.gradient_norm,
        status=status,
        iterations=run.iteration,
        teleports=policy.counts["teleports"],
        cost=run.cost,
        trace=tuple(run.trace),
        gradient=users(last.gradient),
    )


def _descend(run: _Run, rule: StepRule, policy: TeleportPolicy[tuple[Point, Any]], start: Point) -> MinimizeStatus:
    """Steps of ``rule`` with the teleports of ``policy`` between them, until there is a reason to stop."""
    run.point = start
    if not (start.finite and all_finite(start.x)):
        return MinimizeStatus.NON_FINITE_START
    run.objective.verify_deterministic(start)
    run.record("start")
    state: Any = None
    newton: float | None = None
    while True:
        undone = not run.asked_to_stop and policy.monitor.rises(run.point.value)
        if undone:
            run.point, state = policy.monitor.undo()
            run.record("undone")
        if (reason := run.reason_to_stop()) is not None:
            return reason
        if not undone and policy.due(run.iteration, run.point.value, run.trace[-1].cost):
            taken = _teleport(run, policy, rule.stability_limit, state)
            if rule.learns and taken is not None and taken.move.model is not None and taken.move.model.size > 0:
                state = rule.learn(run.objective, state, taken.move.model.ritz_pairs())
            if taken is not None and taken.point is run.point and run.trace[-1].kind != "stay":
                newton = None if policy.first_step or taken.descent else newton_size(taken.move.result.curvature)
                if taken.descent and not policy.first_step:  # it is the step of this iteration
                    continue
                if policy.first_step and (reason := run.reason_to_stop()) is not None:
                    return reason
            if run.asked_to_stop:
                return MinimizeStatus.STOPPED
        step = rule.within(run.left()[0]).advance(run.objective, run.point, state, newton)
        if step.point is None:
            return MinimizeStatus.NO_STEP
        if not (step.point.finite and all_finite(step.point.x)):
            if not policy.monitor.rises(math.nan):
                return MinimizeStatus.DIVERGED
            run.iteration += 1
            run.point, state = policy.monitor.undo()
            run.record("undone")
            continue
        newton = None
        run.point, state = step.point, step.state
        run.iteration += 1
        run.record("step", step=step.size)


def _teleport(run: _Run, policy: TeleportPolicy[tuple[Point, Any]], limit: StabilityLimit, state: Any) -> Taken | None:
    """Make the move that is due and record its points; None where no budget is left for it."""
    max_cost, max_seconds = run.left()
    if not (max_cost > 0.0 and max_seconds > 0.0):
        return None
    start, spent = run.point, run.trace[-1].cost
    taken = policy.move(run.objective, start, limit, max_cost=max_cost, max_seconds=max_seconds)
    moved = taken.point is not start
    policy.made(taken, moved, run.cost.gradient_equivalents - spent)
    if not moved:
        run.record("stay")
        return taken
    policy.watch(start.value, (start, state))
    if taken.descent:
        run.iteration += not policy.first_step
        run.point = taken.point
        run.record("descent")
        return taken
    run.point = taken.move.point
    run.record("teleport")
    if policy.first_step:
        run.point = taken.point
        run.record("first step", step=taken.size)
    return taken


@dataclass
class _Run:
    """The state of a minimization: its point, cost and limits; see :func:`minimize`."""

    objective: Objective
    callback: Callback | None
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
        self.point: Point
        self.iteration = 0
        self.trace: list[MinimizeRow] = []
        self.asked_to_stop = False
        self._before = self.objective.cost
        self._began = time.perf_counter()

    @property
    def cost(self) -> Cost:
        return replace(self.objective.cost - self._before, seconds=time.perf_counter() - self._began)

    def users(self, point: Point) -> Point:
        """``point`` as the user knows it: of f itself, whatever the metric."""
        return self.objective.underneath(point) if isinstance(self.objective, InMetric) else point

    def reason_to_stop(self) -> MinimizeStatus | None:
        point = self.point
        if self.asked_to_stop:
            return MinimizeStatus.STOPPED
        if point.gradient_norm <= max(self.gtol * self.trace[0].gradient_norm, self.gtol_absolute):
            return MinimizeStatus.GRADIENT_SMALL
        if point.value <= self.f_target:
            return MinimizeStatus.TARGET_REACHED
        if point.value < -_BOTTOMLESS.get(self.objective.dtype, 1e15) * max(1.0, abs(self.trace[0].value)):
            return MinimizeStatus.UNBOUNDED
        if self._still():
            return MinimizeStatus.ROUNDING_FLOOR
        if self.iteration >= self.max_iterations:
            return MinimizeStatus.MAX_ITERATIONS
        if self.trace[-1].cost >= self.max_cost:
            return MinimizeStatus.MAX_COST
        return MinimizeStatus.MAX_SECONDS if self.trace[-1].seconds >= self.max_seconds else None

    def _still(self) -> bool:
        """Return True if f has changed before, but only by rounding errors over the last steps."""
        rows = self.trace[-_STILL - 1 :]
        noise = 4.0 * torch.finfo(self.objective.dtype).eps * abs(self.point.value)
        if len(rows) <= _STILL or rows[0].value - self.point.value > noise:
            return False
        values = [row.value for row in rows]
        return max(values) - min(values) <= noise < self.trace[0].value - self.point.value

    def left(self) -> tuple[float, float]:
        """Gradient equivalents and seconds that a teleport or a Newton system may use, so that a step can follow."""
        last = self.trace[-1]
        return self.max_cost - last.cost - _STEP_COST, self.max_seconds - last.seconds

    def record(self, kind: RowKind, *, step: float = math.nan) -> None:
        value, gradient_norm, cost = self.point.value, self.point.gradient_norm, self.cost  # in this order
        row = MinimizeRow(
            iteration=self.iteration,
            cost=cost.gradient_equivalents,
            value=value,
            gradient_norm=gradient_norm,
            kind=kind,
            step=step,
            seconds=cost.seconds,
        )
        self.trace.append(row)
        if self.callback is not None and self.callback(row, self.users(self.point)):
            self.asked_to_stop = True


def method_named(method: str | StepRule) -> StepRule:
    """The method itself, by name or as it is; anything else is answered by a sentence."""
    if isinstance(method, StepRule):
        return method
    if not isinstance(method, str):
        raise ValueError(f"method must be a name such as 'lbfgs' or a rule such as Armijo(c=0.1), not {method!r}.")
    if method not in METHODS:
        others = "or pass a rule with its step size, such as levelport.optim.Polyak(1.0)"
        raise checks.unknown_name("method", method, METHODS, see=f"Choose from: {', '.join(METHODS)}; {others}.")
    return METHODS[method]
