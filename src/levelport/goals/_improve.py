"""``levelport.improve``: the best value of a goal over {f ≤ f(x) + rise}."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, cast

import torch
from torch import Tensor, nn

from levelport import checks
from levelport.goals.chart import Chart, Region, Site
from levelport.goals.feasible_sqp import Descent, feasible_sqp
from levelport.goals.goal import Aim, Distance, Norm
from levelport.goals.pairs import Pairs
from levelport.goals.result import ImproveResult, ImproveRow, ImproveStatus
from levelport.objective import Cost, Objective, ObjectiveError, Point
from levelport.objectives.batches import Batches, Loss
from levelport.objectives.function import LOSS, FunctionObjective, as_objective
from levelport.objectives.isolation import full_precision, recover, restoring
from levelport.objectives.parameters import ParametersObjective
from levelport.objectives.structure import Structure, X
from levelport.vectors import all_finite

_MEMORY = 20
_SHORTER = 5  # halvings of a move that raises f on the unused batches


def improve(
    fun: Callable[..., Tensor] | Objective | Batches,
    x: X | nn.Module,
    goal: Callable[..., Tensor] | Objective | Batches,
    *,
    rise: float = 0.0,
    maximize: bool = False,
    tol: float = 1e-5,
    max_cost: float = 1000.0,
    max_iterations: int = 10_000,
    callback: Callable[[ImproveRow], object] | None = None,
) -> ImproveResult[X]:
    """Minimize ``goal`` while f stays at or below f(x) + rise.

    Args:
        fun: f, a differentiable function of ``x`` that returns a scalar tensor, or an :class:`Objective`. With a module
            for ``x``: a callable without arguments that returns the loss, or :class:`Batches`.
        x: where to start: a tensor, or a list or dict of tensors; for an Objective, a flat vector; never modified. Or a
            module, whose trainable parameters are moved to the answer.
        goal: what to improve: a differentiable function of ``x``, or an Objective of the same dimension, or
            :class:`~levelport.goals.Norm` or :class:`~levelport.goals.Distance`. With a module for ``x``: a callable
            without arguments, or Batches.
        rise: how far f may exceed f(x).
        maximize: maximize the goal instead.
        tol: KKT tolerance on sin ∠(∇goal, -∇f).
        max_cost: gradient equivalents of f and the goal together.
        max_iterations: steps.
        callback: called with a row per iterate; a true return value stops.

    Returns:
        A feasible point whose goal is no worse than the start's, both evaluated at the very tensor returned. Every
        iterate is feasible, too, and the goal improves from one to the next. The answer is a local one. Where ``fun``
        is Batches with unused ones, f has to keep within the rise on those as well, or the move is shortened.

    Raises:
        ObjectiveError: a function is not a deterministic differentiable scalar.
        ValueError: an argument makes no sense.

    Example:
        >>> import torch
        >>> f = lambda w: (w[0] * w[1] - 1.0) ** 2
        >>> result = improve(f, torch.tensor([4.0, 0.25], dtype=torch.float64), lambda w: (w**2).sum(), rise=1e-4)
        >>> round(result.goal, 3), result.success
        (1.98, True)
    """
    checks.number("rise", rise, at_least=0.0)
    checks.flag("maximize", maximize)
    checks.number("tol", tol, above=0.0, below=1.0)
    checks.number("max_cost", max_cost, above=0.0)
    checks.whole("max_iterations", max_iterations, at_least=1)
    if callback is not None:
        checks.function("callback", callback, of="row")
    if isinstance(goal, type):
        raise ValueError(f"goal is the class {goal.__name__}; pass an instance of it, such as Norm().")
    began = time.perf_counter()
    pair: _Pair[X] = _live(fun, x, goal) if isinstance(x, nn.Module) else _plain(fun, x, goal)
    end = pair.start
    with restoring(lambda: pair.finish(end)):
        with full_precision(pair.objective.device):
            result, point = _improve(pair, rise, -1.0 if maximize else 1.0, tol, max_cost, max_iterations, callback)
        end = point.x
    return replace(result, cost=replace(result.cost, seconds=time.perf_counter() - began))


@dataclass
class _Pair(Generic[X]):
    """f, the goal, and the loss on unused batches as objectives of the same flat vector."""

    objective: Objective
    goal: Objective
    structure: Structure[X]
    start: Tensor
    unused: Objective | None = None
    finish: Callable[[Tensor], None] = lambda x: None


def _plain(fun: Any, x: X, goal: Any) -> _Pair[X]:
    if isinstance(fun, Batches) or isinstance(goal, Batches):
        raise ObjectiveError(
            "Batches read live parameters: pass the module itself for x, improve(batches, module, goal)."
        )
    objective, structure, flat = as_objective(fun, x)
    if not isinstance(goal, Objective):
        checks.function("goal", goal, of="x")
        goal = FunctionObjective(goal, like=x, name="the goal")
    elif goal.dimension != objective.dimension or goal.dtype != objective.dtype or goal.device != objective.device:
        raise ObjectiveError(
            f"goal works on {goal.dimension} entries of {goal.dtype} on {goal.device}, but fun on "
            f"{objective.dimension} of {objective.dtype} on {objective.device}. Make both for the same x."
        )
    return _Pair(objective, goal, structure, flat)


def _live(fun: Any, module: nn.Module, goal: Any) -> _Pair[Any]:
    if isinstance(fun, Objective) or isinstance(goal, Objective):
        raise ObjectiveError("an Objective takes a flat vector for x, not a module: pass objective.initial_point().")

    def over_parameters(loss: Loss | Batches, name: str = LOSS) -> ParametersObjective:
        return ParametersObjective(module.parameters(), loss, name=name)

    recover()
    objective = over_parameters(fun)
    start = objective.current()
    unused = over_parameters(Batches(fun.loss, fun.unused)) if isinstance(fun, Batches) and fun.unused else None
    if isinstance(goal, Distance):  # goes by names where it has them
        moving = {name: parameter.detach() for name, parameter in module.named_parameters() if parameter.requires_grad}
        aim: Objective = FunctionObjective(goal, like=moving)
    else:
        aim = FunctionObjective(goal, like=start) if isinstance(goal, Norm) else over_parameters(goal, "the goal")
    structure = cast("Structure[Any]", objective.structure)
    return _Pair(objective, aim, structure, start, unused, objective.load)


def _improve(
    pair: _Pair[X],
    rise: float,
    sign: float,
    tol: float,
    max_cost: float,
    max_iterations: int,
    callback: Callable[[ImproveRow], object] | None,
) -> tuple[ImproveResult[X], Point]:
    objective, goal = pair.objective, pair.goal
    before, before_goal = objective.cost, goal.cost
    start, start_goal = objective.at(pair.start), goal.at(pair.start)
    defined = start.finite and start_goal.finite and all_finite(pair.start)
    region = Region(objective, Chart(torch.zeros_like(pair.start)), start.value, 1.0, start.value + rise)
    aim, site = Aim(goal, sign, region.chart), Site(region.chart.coordinates(start.x), start, region)
    state = Descent(site, aim.at(site), sign * start_goal.value, price=math.nan, sine=math.nan, watch=callback)
    point, reached, detail, unused_change = start, start_goal, "", math.nan
    if not defined:
        status = ImproveStatus.NON_FINITE_START
        detail = f"f = {start.value}, goal = {start_goal.value}"
    else:
        objective.verify_deterministic(start)
        goal.verify_deterministic(start_goal)

        def spent() -> bool:
            cost = (objective.cost - before) + (goal.cost - before_goal)
            return cost.gradient_equivalents >= max_cost

        feasible_sqp(region, aim, state, Pairs(memory=_MEMORY), tol=tol, steps=max_iterations, spent=spent)
        point, reached = state.site.point, state.reading.point
        ended = ImproveStatus.STALLED if state.stalled else ImproveStatus.BUDGET
        kind = ImproveStatus.INTERIOR if state.interior else ImproveStatus.CERTIFIED
        status = kind if state.converged else ended
        if pair.unused is not None and point is not start:
            point, reached, unused_change, share = _checked(pair, start, point, reached, sign, region.level, rise)
            if share < 1.0:
                status, state.interior = ImproveStatus.UNUSED_ROSE, False
                state.sine = state.price = math.nan  # they belong to the whole move
                detail = f"to {share:g} of its length" if share else "to nothing: this is the start itself"
        elif point is start and not status.success:
            status = ImproveStatus.NO_GAIN
    goal_cost = goal.cost - before_goal
    result = ImproveResult(
        x=pair.structure.unflatten(point.x.clone()),
        goal=reached.value,
        goal_start=start_goal.value,
        value=point.value,
        value_start=start.value,
        level=region.level,
        status=status,
        angle=state.sine,
        price=0.0 if state.interior else state.price,
        cost=(objective.cost - before) + goal_cost + (Cost() if pair.unused is None else pair.unused.cost),
        cost_goal=goal_cost,
        detail=detail,
        unused_change=unused_change,
        trace=tuple(state.trace),
    )
    return result, point


def _checked(
    pair: _Pair[X], start: Point, point: Point, reached: Point, sign: float, level: float, rise: float
) -> tuple[Point, Point, float, float]:
    """The move, shortened until f keeps within the rise on the unused batches: point, goal, change and share."""
    assert pair.unused is not None
    before = pair.unused.at(start.x).value
    initial = pair.goal.at(start.x)
    share, target = 1.0, point.x
    for _ in range(_SHORTER):
        change = pair.unused.at(point.x).value - before
        if change <= rise and point.value <= level and sign * reached.value <= sign * initial.value:
            return point, reached, change, share
        share *= 0.5
        x = torch.lerp(start.x, target, share)
        point, reached = pair.objective.at(x), pair.goal.at(x)
    return start, initial, 0.0, 0.0
