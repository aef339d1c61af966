"""``levelport.contour``: the boundary of the region that two quantities can reach together.

For two entries of x the boundary is found along rays from the estimate. On a ray in the direction e of the plane, x
stays in the linear space where the entries' component across e is zero. With T z as coordinates
(:mod:`levelport.goals.chart`) that is x = x̂ + T Q z', the columns of Q being an orthonormal basis of the complement of
Tᵀn, n across e; and the farthest point along e is an end like any other, in one dimension less. So regions that are not
convex are drawn as they are, as long as the ray meets the boundary once.

For functions of x, and where no Hessian is taken, the points are those that lie farthest in a direction, the support
points: the region's convex hull.
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
from levelport.goals._interval import MAX_COST
from levelport.goals.chart import Chart, Region, Site
from levelport.goals.ends import Task
from levelport.goals.goal import LinearGoal
from levelport.goals.quantities import Quantities
from levelport.goals.result import ContourResult, End, EndStatus
from levelport.goals.setup import Setup, prepare, rise_of
from levelport.objective import Cost, Objective, ObjectiveError
from levelport.objectives.function import FunctionObjective
from levelport.objectives.isolation import full_precision
from levelport.objectives.structure import Structure, X


def contour(
    fun: Callable[[Any], Tensor] | Objective,
    x: X,
    quantities: tuple[Any, Any],
    *,
    rise: float | None = None,
    confidence: float | None = None,
    points: int = 32,
    refine: bool = False,
    names: tuple[str, str] | None = None,
    tol: float = 1e-3,
    max_cost: float | None = None,
) -> ContourResult[X]:
    """Find the boundary of the region of two quantities while f stays within ``rise`` of its minimum.

    Args:
        quantities: two positions of entries of ``x``, or two differentiable scalar functions of ``x``.
        confidence: of the two jointly: the rise is half the χ² quantile with two degrees of freedom, 3.00 for 0.95.
        points: of the boundary.

    The others are those of :func:`levelport.interval`.

    Returns:
        Points in order around the estimate, each with a status. For entries of ``x`` they lie on rays from the
        estimate; for functions they are support points, which show the convex hull of the region.

    Example:
        >>> import torch
        >>> result = contour(lambda v: (v**2).sum(), torch.zeros(3, dtype=torch.float64), (0, 1), rise=1.0, points=8)
        >>> [round(math.hypot(*point), 3) for point in result.points]
        [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """
    height = rise_of(rise, confidence, freedom=2)
    checks.number("tol", tol, above=0.0, below=1.0)
    checks.whole("points", points, at_least=3)
    budget = MAX_COST if max_cost is None else max_cost
    checks.number("max_cost", budget, above=0.0)
    began = time.perf_counter()
    both = _pair(x, quantities, names)
    setup = prepare(fun, x, rise=height, ends=points, refine=refine)
    if setup.trouble:
        raise ObjectiveError(f"no contour can be computed: {setup.trouble}.")
    with full_precision(setup.objective.device):
        task = setup.task(height, tol)
        plane = _Plane(setup, task, both, x)
        rays = plane.linear and isinstance(task.region.chart.matrix, Tensor)
        found = []
        for index in range(points):
            angle = 2.0 * math.pi * index / points
            found.append((plane.along if rays else plane.support)(angle, budget))
    return ContourResult(
        names=(both.names[0], both.names[1]),
        estimate=plane.estimate,
        points=tuple(plane.values(end) for end in found),
        ends=tuple(found),
        hull=not rays,
        value=setup.point.value,
        rise=height,
        confidence=confidence,
        setup=setup.cost,
        cost=replace(setup.spent + both.cost + plane.cost, seconds=time.perf_counter() - began),
    )


def _pair(x: X, quantities: object, names: Any) -> Quantities[X]:
    if not isinstance(quantities, tuple | list) or len(quantities) != 2:
        raise ValueError(f"quantities must be two positions of entries of x, or two functions, not {quantities!r}.")
    a, b = quantities
    if callable(a) and callable(b):
        pair = Quantities(x, lambda v: torch.stack([a(v).reshape(()), b(v).reshape(())]), names or ["a", "b"])
    elif callable(a) or callable(b):
        raise ValueError("quantities must be two positions of entries of x, or two functions, not one of each.")
    else:
        if a == b:
            raise ValueError(f"quantities must be two different entries of x, not {a} twice.")
        pair = Quantities(x, [a, b], names)
    return pair


class _Plane:
    """The plane of two quantities, in coordinates in which their Wald region is a disk."""

    def __init__(self, setup: Setup[Any], task: Task, pair: Quantities[Any], like: Any) -> None:
        self.setup, self.task, self.goals, self.names, self.like = setup, task, pair.goals, pair.names, like
        self.linear = all(isinstance(goal, LinearGoal) for goal in pair.goals)
        readings = [goal.at(setup.point.x) for goal in pair.goals]
        self.estimate = readings[0].value, readings[1].value
        P = torch.stack([task.region.chart.pull(reading.gradient) for reading in readings])
        if task.recycled is not None:
            for row in P:
                task.recycled.solve(row, relative=1e-4)
            C = P @ torch.stack([task.recycled(row) for row in P]).T
        else:
            C = P @ P.T
        scale = C.diagonal().sqrt()
        if not bool((scale > 0.0).all()):
            raise ObjectiveError("a quantity of the contour does not change around x.")
        e, V = torch.linalg.eigh(C / scale[:, None] / scale)
        e = e.clamp_min(1e-12)
        # With G Gᵀ = C the Wald region is {G s: |s| ≤ √2}.
        self.G = (V * e.sqrt()) @ V.T * scale[:, None]
        self.cost = Cost()  # of the combined goals

    def values(self, end: End[Any]) -> tuple[float, float]:
        """The two quantities at an end; infinite where there is none."""
        if end.status is EndStatus.UNBOUNDED:
            return math.inf, math.inf
        x = Structure(end.x).flatten(end.x)
        return self.goals[0].at(x).value, self.goals[1].at(x).value

    def along(self, angle: float, max_cost: float) -> End[Any]:
        """The boundary on the ray from the estimate at ``angle``."""
        ray = self.G @ self.G.new_tensor([math.cos(angle), math.sin(angle)])
        unit = self.G.abs().amax(dim=1)  # lengths in the plane have no units after division by this
        e = ray / unit
        across = torch.stack([-e[1], e[0]]) / unit
        region = self.task.region
        rows = [goal.direction for goal in self.goals if isinstance(goal, LinearGoal)]
        normal = region.chart.pull(across[0] * rows[0] + across[1] * rows[1])
        basis = torch.linalg.qr(torch.cat([normal[:, None], torch.eye(len(normal)).to(normal)], dim=1))[0][:, 1:]
        chart = Chart(region.chart.center, region.chart.matrix @ basis)
        narrowed = Region(region.objective, chart, region.base, region.unit, region.level, region.lowest)
        start = Site(basis.new_zeros(basis.shape[1]), self.task.start.point, narrowed)
        task = replace(self.task, region=narrowed, start=start)
        goal = LinearGoal(((e[0] / unit[0]) * rows[0] + (e[1] / unit[1]) * rows[1]).to(rows[0].dtype))
        return self.setup.end(task, goal, self._label(angle), "upper", max_cost)[0]

    def support(self, angle: float, max_cost: float) -> End[Any]:
        """The farthest point of the region in a direction of the plane."""
        direction = torch.linalg.solve(self.G.T, self.G.new_tensor([math.cos(angle), math.sin(angle)])).tolist()
        first, second = self.goals
        if isinstance(first, LinearGoal) and isinstance(second, LinearGoal):
            goal: Objective = LinearGoal(direction[0] * first.direction + direction[1] * second.direction)
        else:
            assert isinstance(first, FunctionObjective)
            assert isinstance(second, FunctionObjective)
            a, b = first.fun, second.fun
            goal = FunctionObjective(lambda v: direction[0] * a(v) + direction[1] * b(v), like=self.like)
        end = self.setup.end(self.task, goal, self._label(angle), "upper", max_cost)[0]
        self.cost += goal.cost
        return end

    def _label(self, angle: float) -> str:
        return f"({self.names[0]}, {self.names[1]}) at {math.degrees(angle):.0f}°"
