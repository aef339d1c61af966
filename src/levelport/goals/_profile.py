"""``levelport.profile``: the interval of a quantity as a function of the rise."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Generic

import torch
from torch import Tensor

from levelport import checks
from levelport.goals.ends import Task, descended
from levelport.goals.quantities import Quantities, Quantity
from levelport.goals.result import End, ProfileResult
from levelport.goals.setup import SIDES, Setup, prepare
from levelport.objective import Objective
from levelport.objectives.isolation import full_precision
from levelport.objectives.structure import X

_JUMP = 2.0  # an end's move between two rises, in units of its price, from which it jumped
_SHARES = 0.25, 0.5, 0.75  # of the way to another valley, which have to lie in the region


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

    The points (end, f(x) + rise) lie on the profile, the smallest f for a given value of the quantity. Ends that do not
    agree with their neighbors are searched for again from them.

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
    began = time.perf_counter()
    quantities = Quantities(x, quantity, names)
    count = 2 * len(quantities) * len(heights)
    setup = prepare(fun, x, rise=heights[0], ends=count, refine=refine, bounds=bounds, tol=tol, max_cost=max_cost)
    found: list[tuple[tuple[End[X], End[X]], ...]] = []
    with full_precision(setup.objective.device):
        tasks, estimates = [setup.task(height) for height in heights], tuple(setup.estimates(quantities.goals))
        for name, goal in zip(quantities.names, map(setup.goal, quantities.goals), strict=True):
            sides = [[end for end, _ in _Side(setup, tasks, goal, name, side).found] for side in SIDES]
            found.append(tuple(zip(*sides, strict=True)))
    return ProfileResult(
        names=tuple(quantities.names),
        estimates=estimates,
        rises=tuple(heights),
        ends=tuple(found),
        value=setup.point.value,
        setup=setup.cost,
        cost=replace(setup.spent + quantities.cost, seconds=time.perf_counter() - began),
    )


class _Side(Generic[X]):
    """The ends of one quantity on one side, which have to agree with each other.

    Regions are nested, so an end that lies inside that of a smaller rise is only a local one: it is searched for again
    from the point of the smaller rise. Between two rises an end moves by about its price times their difference. Where
    it moves by far more, the larger region has found another valley, which may reach into the smaller one as well: that
    is searched again from where f, falling from the larger one's end, enters it.
    """

    def __init__(self, setup: Setup[X], tasks: list[Task], goal: Objective, name: str, side: str) -> None:
        self._setup, self._tasks, self._goal, self._sign = setup, tasks, goal, SIDES[side]
        self.found = [setup.end(task, goal, name, side) for task in tasks]  # in ascending order of the rises
        for place in reversed(range(len(tasks) - 1)):
            self._inwards(place)
        for place in range(1, len(tasks)):
            self._outwards(place)

    def _outwards(self, place: int) -> None:
        """Search again from the end of the next smaller rise, if that lies further out."""
        if self._sign * self.found[place][0].bound > self._sign * self.found[place - 1][0].bound:
            self._again(place, self._coordinates(place - 1, place))

    def _inwards(self, place: int) -> None:
        """Search again from the end of the next larger rise, if the quantity jumped between them."""
        (end, here), (larger, _) = self.found[place : place + 2]
        task, outer = self._tasks[place : place + 2]
        price = min(end.price, larger.price) if larger.price > 0.0 else end.price
        moved = self._sign * (end.bound - larger.bound)
        if not (end.status.bounded and moved > _JUMP * price * (outer.region.unit - task.region.unit)):
            return
        z = descended(task, self._coordinates(place + 1, place))
        if z is not None:
            between = (task.region.at(torch.lerp(here, z, share)) for share in _SHARES)
            if all(site.feasible for site in between):  # else it may lie in another component
                self._again(place, z)

    def _coordinates(self, place: int, other: int) -> Tensor:
        """The point of an end in the coordinates of another rise."""
        ratio = self._tasks[place].region.unit / self._tasks[other].region.unit
        return self.found[place][1] * (math.sqrt(ratio) if self._tasks[other].region.chart.whitens else 1.0)

    def _again(self, place: int, z: Tensor) -> None:
        farther = self._setup.farther(self._tasks[place], self._goal, self.found[place], z)
        if farther is not None:
            self.found[place] = farther


def _checked(rises: Any) -> list[float]:
    rises = rises.tolist() if isinstance(rises, Tensor) else rises
    listed = list(rises) if isinstance(rises, Iterable) and not isinstance(rises, str) else []
    if not listed:
        raise ValueError(f"rises must be a list of positive numbers, such as [0.5, 1.92], not {rises!r}.")
    for rise in listed:
        checks.positive(**{"every rise": rise})
    return [float(rise) for rise in listed]
