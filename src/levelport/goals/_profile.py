"""``levelport.profile``: the interval of a quantity as a function of the rise."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from levelport import checks
from levelport.goals._interval import MAX_COST
from levelport.goals.ends import Warm
from levelport.goals.pairs import Pairs
from levelport.goals.quantities import Quantities, Quantity
from levelport.goals.result import End, ProfileResult
from levelport.goals.setup import prepare
from levelport.objective import Objective, ObjectiveError
from levelport.objectives.isolation import full_precision
from levelport.objectives.structure import X


def profile(
    fun: Callable[[Any], Tensor] | Objective,
    x: X,
    quantity: Quantity = None,
    *,
    rises: Sequence[float],
    bounds: Any = None,
    refine: bool = False,
    names: Sequence[str] | None = None,
    tol: float = 1e-3,
    max_cost: float | None = None,
) -> ProfileResult[X]:
    """Find the ends of a quantity for several rises, which trace its profile likelihood.

    The points (end, f(x) + rise) lie on the profile, the smallest f for a given value of the quantity. Every end starts
    from that of the next smaller rise.

    Args:
        rises: above f(x), positive; for a likelihood 0.5, 1.92 and 3.32 are 68, 95 and 99 %.

    The others are those of :func:`levelport.interval`.

    Example:
        >>> import torch
        >>> result = profile(lambda v: (v**2).sum(), torch.zeros(2, dtype=torch.float64), [0], rises=[1.0, 4.0])
        >>> [round(end, 3) for end in result.upper[0]]
        [1.0, 2.0]
    """
    heights = sorted(_checked(rises))
    checks.number("tol", tol, above=0.0, below=1.0)
    budget = MAX_COST if max_cost is None else max_cost
    checks.number("max_cost", budget, above=0.0)
    began = time.perf_counter()
    quantities = Quantities(x, quantity, names)
    ends = 2 * len(quantities) * len(heights)
    setup = prepare(fun, x, rise=heights[0], ends=ends, refine=refine, bounds=bounds)
    if setup.trouble:
        raise ObjectiveError(f"no profile can be computed: {setup.trouble}.")
    found: list[tuple[tuple[End[X], End[X]], ...]] = []
    with full_precision(setup.objective.device):
        tasks = [setup.task(height, tol) for height in heights]
        for name, goal in zip(quantities.names, map(setup.goal, quantities.goals), strict=True):
            sides: list[list[End[X]]] = []
            for side in ("lower", "upper"):
                by_rise: list[End[X]] = []
                warm: Warm | None = None
                last = tasks[0].start.z
                for task in tasks:
                    end, how = setup.end(task, goal, name, side, budget, warm)
                    if by_rise and _behind(end, by_rise[-1]):
                        # Another local end: start from the very point of the smaller region.
                        there = Warm(
                            last * math.sqrt(tasks[len(by_rise) - 1].region.unit / task.region.unit),
                            Pairs.around_identity(task.recycled),
                        )
                        again, found_again = setup.end(task, goal, name, side, budget, there)
                        end, how = replace(again, cost=end.cost + again.cost), found_again
                    by_rise.append(end)
                    last, warm = how.site.z, how.warm if task.recycled is None else None
                sides.append(by_rise)
            found.append(tuple(zip(*sides, strict=True)))
    return ProfileResult(
        names=tuple(quantities.names),
        estimates=tuple(goal.at(setup.outer(setup.point)).value for goal in quantities.goals),
        rises=tuple(heights),
        ends=tuple(found),
        value=setup.point.value,
        setup=setup.cost,
        cost=replace(setup.spent + quantities.cost, seconds=time.perf_counter() - began),
    )


def _behind(end: End[Any], smaller: End[Any]) -> bool:
    """Return True if an end lies inside that of a smaller rise."""
    sign = 1.0 if end.side == "lower" else -1.0
    return sign * end.bound > sign * smaller.bound


def _checked(rises: Sequence[float]) -> list[float]:
    listed = [] if isinstance(rises, int | float) else [float(rise) for rise in rises]
    if not listed:
        raise ValueError(f"rises must be a list of positive numbers, such as [0.5, 1.92], not {rises!r}.")
    for rise in listed:
        checks.number("every rise", rise, above=0.0, below=float("inf"))
    return listed
