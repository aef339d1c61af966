"""``levelport.interval``: smallest and largest value of a quantity over {f ≤ f(x) + rise}."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from levelport import checks
from levelport.goals.ends import STEPS, Task
from levelport.goals.goal import LinearGoal
from levelport.goals.quantities import Quantities, Quantity
from levelport.goals.result import End, EndStatus, IntervalResult
from levelport.goals.setup import Setup, prepare, rise_of
from levelport.objective import Cost, Objective, ObjectiveError
from levelport.objectives.isolation import full_precision
from levelport.objectives.structure import X

MAX_COST = 2000.0
"""Gradient equivalents per end where none are given: curved ends of the test problems took up to 1100."""

_RESTARTS = 3  # from lower minima
_PASSES = 3  # of comparing ends with each other
_FEW = 20  # quantities up to which functions are evaluated at each other's ends


def interval(
    fun: Callable[[Any], Tensor] | Objective,
    x: X,
    quantity: Quantity = None,
    *,
    rise: float | None = None,
    confidence: float | None = None,
    bounds: Any = None,
    refine: bool = False,
    names: Sequence[str] | None = None,
    tol: float = 1e-3,
    max_cost: float | None = None,
    callback: Callable[[End[X]], object] | None = None,
) -> IntervalResult[X]:
    """Find how small and how large a quantity can be while f stays within ``rise`` of its minimum.

    Args:
        fun: f, a differentiable function of ``x`` that returns a scalar tensor, or an :class:`Objective`. For
            confidence intervals a summed negative log-likelihood, without a penalty.
        x: the minimizer of f: a tensor, or a list or dict of tensors; for an Objective, a flat vector.
        quantity: a differentiable function of ``x`` that returns a scalar or a tensor, one interval per entry; or the
            positions of entries of ``x``, counted through all its tensors; None takes every entry.
        rise: the region is {f ≤ f(x) + rise}.
        confidence: takes the rise for a likelihood interval of this confidence: half the χ² quantile with one degree of
            freedom, 1.92 for 0.95. Exactly one of ``rise`` and ``confidence`` is required.
        bounds: of the parameters: a pair (lower, upper), each a number, None, or in the structure of ``x``; or a list
            with a pair for every entry. ``x`` is the minimizer within them.
        refine: minimize f from ``x`` first, and again from a lower point that a search comes across.
        names: of the quantities, for tables and plots.
        tol: allowed error of an end, relative to the half width.
        max_cost: gradient equivalents per end; None allows 2000.
        callback: called with every :class:`End` as it is found, and again if it moves further out; a true return value
            skips the remaining ones.

    Returns:
        Ends with the points that attain them, each with a status that says what is known of it, and the Wald interval
        beside it. Ends are local: other components of the region, and other local optima of the quantity, are not
        searched for, but the points found for one quantity are tried for all others.

    Raises:
        ObjectiveError: x is clearly not a minimizer, or a function is not a deterministic differentiable scalar.
        ValueError: an argument makes no sense.

    Example:
        >>> import torch
        >>> data = torch.tensor([1.2, 0.4, 2.1, 0.9], dtype=torch.float64)
        >>> nll = lambda rate: (rate * data - rate.log()).sum()
        >>> rate = 1.0 / data.mean().reshape(1)
        >>> result = interval(nll, rate, confidence=0.95)
        >>> round(float(result.lower), 3), round(float(result.upper), 3)
        (0.27, 2.02)
    """
    height = rise_of(rise, confidence)
    checks.number("tol", tol, above=0.0, below=1.0)
    budget = MAX_COST if max_cost is None else max_cost
    checks.number("max_cost", budget, above=0.0)
    if callback is not None:
        checks.function("callback", callback, of="end")
    began = time.perf_counter()
    quantities, earlier = Quantities(x, quantity, names), Cost()

    def search(x: X) -> tuple[Setup[X], list[list[End[X]]]]:
        setup = prepare(fun, x, rise=height, ends=2 * len(quantities), refine=refine, bounds=bounds)
        with full_precision(setup.objective.device):
            return setup, _all_ends(setup, quantities, height, tol, budget, callback)

    setup, found = search(x)
    below = _below(found)
    for _ in range(_RESTARTS if refine else 0):
        if not below:
            break
        try:
            again = search(cast("X", min(below, key=lambda end: end.minimum_value).minimum))
        except ObjectiveError:  # f has no minimum there
            break
        earlier += setup.spent
        setup, found = again
        below = _below(found)
    if below:
        found = [[_doubted(end) for end in both] for both in found]
    pairs = tuple((lower, upper) for lower, upper in found)
    estimates = [goal.at(setup.outer(setup.point)).value for goal in quantities.goals]
    spent = earlier + setup.spent + quantities.cost
    notes = list(setup.notes)
    if confidence is not None and 0.0 <= setup.point.value < height:
        notes.append(
            f"f(x) = {setup.point.value:.4g} is below the rise {height:.4g}: is f a mean? A confidence needs the sum "
            "of the negative log-likelihood over all samples"
        )
    notes += {f"failed: {end.detail}": None for both in found for end in both if end.status is EndStatus.FAILED}
    return IntervalResult(
        estimate=quantities.shaped(estimates),
        lower=quantities.shaped([lower.bound for lower, _ in pairs]),
        upper=quantities.shaped([upper.bound for _, upper in pairs]),
        wald_lower=quantities.shaped([lower.wald for lower, _ in pairs]),
        wald_upper=quantities.shaped([upper.wald for _, upper in pairs]),
        ends=pairs,
        names=tuple(quantities.names),
        estimates=tuple(estimates),
        x=setup.assembled(setup.outer(setup.point)),
        value=setup.point.value,
        rise=height,
        confidence=confidence,
        decrement=setup.decrement / height,
        minimum=min(below, key=lambda end: end.minimum_value).minimum if below else None,
        setup=setup.cost,
        cost=replace(spent, seconds=time.perf_counter() - began),
        notes=tuple(notes),
    )


def _below(found: list[list[End[X]]]) -> list[End[X]]:
    """The ends on whose way f was lower than at the minimizer."""
    return [end for both in found for end in both if end.minimum is not None]


def _all_ends(
    setup: Setup[X],
    quantities: Quantities[X],
    rise: float,
    tol: float,
    max_cost: float,
    callback: Callable[[End[X]], object] | None,
) -> list[list[End[X]]]:
    """The ends of one quantity after the other, then those again that the points of others exceed."""
    task = setup.task(rise, tol) if not setup.trouble else None
    stopped = False
    ends: list[list[End[X]]] = []
    points: list[Tensor] = []  # in the coordinates of the region
    for name, goal in zip(quantities.names, quantities.goals, strict=True):
        both: list[End[X]] = []
        for side in ("lower", "upper"):
            if task is None or stopped:
                detail = setup.trouble or "the callback asked to stop"
                end = _not_searched(setup, goal, name, side, EndStatus.BUDGET if stopped else EndStatus.FAILED, detail)
            else:
                end, found = setup.end(task, setup.goal(goal), name, side, max_cost)
                points.append(found.site.z)
                stopped = bool(callback is not None and callback(end))
            both.append(end)
        ends.append(both)
    if task is not None and not stopped and len(ends) > 1:
        for _ in range(_PASSES):
            if not _exchange(setup, task, quantities, ends, points, max_cost, callback):
                break
    return ends


def _exchange(
    setup: Setup[X],
    task: Task,
    quantities: Quantities[X],
    ends: list[list[End[X]]],
    points: list[Tensor],
    max_cost: float,
    callback: Callable[[End[X]], object] | None,
) -> bool:
    """Search again from points of other ends where a quantity is beyond its own end; whether any end moved.

    All ends are points of the region, so a quantity that is larger at one of them than at its own upper end has only
    reached a local one. Costs nothing for entries of x, and a value per quantity and point otherwise.
    """
    moved = False
    xs = torch.stack([setup.structure.flatten(end.x) for both in ends for end in both])
    directions = [goal.direction for goal in quantities.goals if isinstance(goal, LinearGoal)]
    if len(directions) == len(quantities):
        table = (xs @ torch.stack(directions).T).double()
    elif len(quantities) <= _FEW:
        table = torch.tensor([[goal.at(x).value for goal in quantities.goals] for x in xs], dtype=torch.float64)
    else:
        return False
    least = torch.nan_to_num(table, nan=math.inf, posinf=math.inf, neginf=-math.inf).min(dim=0)
    most = torch.nan_to_num(table, nan=-math.inf, posinf=math.inf, neginf=-math.inf).max(dim=0)
    extremes = [[values.tolist(), places.tolist()] for values, places in (least, most)]
    for number, goal in enumerate(quantities.goals):
        for place, side in enumerate(("lower", "upper")):
            end = ends[number][place]
            sign = 1.0 if side == "lower" else -1.0
            best, where = (extreme[number] for extreme in extremes[place])
            if not end.status.bounded or not sign * best < sign * end.quantity:
                continue
            if abs(best - end.quantity) <= task.tol * abs(end.quantity - goal.at(setup.outer(setup.point)).value):
                continue
            again, found = setup.end(task, setup.goal(goal), end.name, side, max_cost, points[where])
            if sign * again.quantity < sign * end.quantity:
                ends[number][place] = replace(
                    again, cost=end.cost + again.cost, wald=end.wald, iterations=end.iterations + again.iterations
                )
                points[2 * number + place] = found.site.z
                moved = True
                if callback is not None and callback(ends[number][place]):
                    return False
    return moved


def _doubted(end: End[X]) -> End[X]:
    """An end beside a lower minimum: where the region is curved, too, it has several basins, and this may be one's."""
    if end.status is EndStatus.CERTIFIED and end.iterations > STEPS:
        return replace(end, status=EndStatus.CURVED, detail="f has a lower minimum, so the region has several basins")
    return end


def _not_searched(setup: Setup[X], goal: Objective, name: str, side: str, status: EndStatus, detail: str) -> End[X]:
    """The start itself with the reason."""
    nan = math.nan
    flat = setup.outer(setup.point)
    value, x = goal.at(flat).value, setup.assembled(flat)
    return End(name, side, nan, x, value, setup.point.value, status, nan, nan, nan, Cost(), 0, detail)
