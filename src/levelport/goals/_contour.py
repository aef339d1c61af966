"""``levelport.contour``: the boundary of the region that two entries of x can reach together.

The boundary is found along rays from the estimate. On a ray in the direction e of the plane, x stays in the linear
space where the entries' component across e is zero. With T z as coordinates (:mod:`levelport.goals.chart`) that is
x = x̂ + T Q z', the columns of Q being an orthonormal basis of the complement of Tᵀn, n across e; and the farthest point
along e is an end like any other, in one dimension less. So regions that are not convex are drawn as they are, as long
as the ray meets the boundary once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from levelport import checks
from levelport.goals.chart import Chart, Region, Site
from levelport.goals.ends import Task
from levelport.goals.goal import LinearGoal
from levelport.goals.quantities import Quantities
from levelport.goals.result import ContourResult, End
from levelport.goals.setup import Setup, prepare, rise_of
from levelport.objective import Objective
from levelport.objectives.isolation import full_precision
from levelport.objectives.structure import X


def contour(
    fun: Callable[[Any], Tensor] | Objective,
    x: X,
    entries: tuple[int, int],
    *,
    rise: float | None = None,
    confidence: float | None = None,
    points: int = 32,
    refine: bool = False,
    names: tuple[str, str] | None = None,
    tol: float = 1e-3,
    max_cost: float | None = None,
) -> ContourResult[X]:
    """Find the boundary of what two entries of x can be together while f stays within ``rise`` of its minimum.

    Args:
        entries: positions of two entries of ``x``, which has at most 1000.
        confidence: of the two jointly: the rise is half the χ² quantile with two degrees of freedom, 3.00 for 0.95.
        points: of the boundary.

    The others are those of :func:`levelport.interval`.

    Returns:
        Points in order around the estimate, on rays from it, each with a status. Parts of the region that are hidden
        from the estimate, such as the tips of a banana, are cut off.

    Example:
        >>> import torch
        >>> result = contour(lambda v: (v**2).sum(), torch.zeros(3, dtype=torch.float64), (0, 1), rise=1.0, points=8)
        >>> [round(math.hypot(*point), 3) for point in result.points]
        [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """
    height = rise_of(rise, confidence, freedom=2)
    checks.whole("points", points, at_least=3)
    if not isinstance(entries, tuple | list) or len(entries) != 2 or entries[0] == entries[1]:
        raise ValueError(f"entries must be the positions of two different entries of x, not {entries!r}.")
    began = time.perf_counter()
    both = Quantities(x, list(entries), names, called="entries")
    if len({*both.names, "point", "status"}) < 4:
        raise ValueError(f"names must differ from each other, 'point' and 'status' in tables, not {both.names}.")
    setup = prepare(fun, x, rise=height, ends=None, refine=refine, tol=tol, max_cost=max_cost)
    with full_precision(setup.objective.device):
        plane = _Plane(setup, setup.task(height), both)
        found = [plane.along(2.0 * math.pi * index / points) for index in range(points)]
    return ContourResult(
        names=(both.names[0], both.names[1]),
        estimate=plane.values(setup.point.x),
        points=tuple(plane.point(end) for end in found),
        ends=tuple(found),
        value=setup.point.value,
        rise=height,
        confidence=confidence,
        setup=setup.cost,
        cost=replace(setup.spent, seconds=time.perf_counter() - began),
    )


class _Plane:
    """The plane of two entries, in coordinates in which their Wald region is a disk."""

    def __init__(self, setup: Setup[Any], task: Task, pair: Quantities[Any]) -> None:
        self.setup, self.task, self.names = setup, task, pair.names
        self.rows = torch.stack([goal.direction for goal in pair.goals if isinstance(goal, LinearGoal)])
        P = torch.stack([task.region.chart.pull(row) for row in self.rows])
        C = P @ P.T
        scale = C.diagonal().sqrt()
        e, V = torch.linalg.eigh(C / scale[:, None] / scale)
        # With G Gᵀ = C the Wald region is {G s: |s| ≤ √2}.
        self.G = (V * e.clamp_min(1e-12).sqrt()) @ V.T * scale[:, None]

    def values(self, x: Tensor) -> tuple[float, float]:
        """The two entries of flat x."""
        a, b = (self.rows @ x).tolist()
        return a, b

    def point(self, end: End[Any]) -> tuple[float, float]:
        """The two entries at an end; infinite where there is none, NaN where none was searched for."""
        if not math.isfinite(end.bound):
            return abs(end.bound), abs(end.bound)
        return self.values(self.setup.structure.flatten(end.x))

    def along(self, angle: float) -> End[Any]:
        """The boundary on the ray from the estimate at ``angle``."""
        ray = self.G @ self.G.new_tensor([math.cos(angle), math.sin(angle)])
        unit = self.G.abs().amax(dim=1)  # lengths in the plane have no units after division by this
        e = ray / unit
        across = torch.stack([-e[1], e[0]]) / unit
        region = self.task.region
        normal = region.chart.pull(across.to(self.rows) @ self.rows)
        basis = torch.linalg.svd(normal[None])[2][1:].T
        chart = Chart(region.chart.center, region.chart.push(basis))
        narrowed = Region(region.objective, chart, region.base, region.unit, region.level, region.lowest)
        start = Site(basis.new_zeros(basis.shape[1]), self.task.start.point, narrowed)
        goal = LinearGoal((e / unit).to(self.rows) @ self.rows)
        name = f"({self.names[0]}, {self.names[1]}) at {math.degrees(angle):.0f}°"
        return self.setup.end(replace(self.task, region=narrowed, start=start), goal, name, "upper")[0]
