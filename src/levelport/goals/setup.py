"""What all ends share: the checked minimizer, the Hessian there, and the region for a given rise."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Generic

import torch
from torch import Tensor

from levelport import checks
from levelport.goals.bounds import Bounded, Bounds
from levelport.goals.chart import Chart, Lowest, Region, Site
from levelport.goals.ends import Task, find_end
from levelport.goals.goal import Aim
from levelport.goals.recycled import Recycled
from levelport.goals.result import End, EndStatus
from levelport.goals.wald import Search
from levelport.numerics.newton import find_minimum, hessian_by_columns
from levelport.objective import Cost, Objective, ObjectiveError, Point
from levelport.objectives.function import as_objective
from levelport.objectives.structure import Structure, X
from levelport.vectors import all_finite, norm

_CLEARLY = 1e-2  # share of the rise that a Newton step may lower f by before x is no minimizer
_ALWAYS = 100  # dimension up to which the Hessian is always taken
_LARGEST = 1000  # dimension from which it never is: it has to be factorized
_PER_QUANTITY = 15  # products per end that conjugate gradients take instead, as measured on multinomial regressions
_PRODUCTS = 20
_MAX_COST = 2000.0  # per end where none is given: curved ends of the test problems took up to 1100
_NEWTON = 100  # steps of refine=True
_OFF = 0.3  # distance from a bound, in the variables of the search, of a start beside it, and what counts as near
_STATIONARY = 0.03  # the same for a minimizer: a quantity's Wald width there says nothing of its end
_RESTARTS = 3
_INSIDE = 1e-3  # slack from which an end is not on the level
SIDES = {"lower": 1.0, "upper": -1.0}
"""The sides of an interval, and the sign of the quantity that is lowered."""


def rise_of(rise: float | None, confidence: float | None, *, freedom: int = 1) -> float:
    """The rise that was asked for: given, or half the quantile of χ² with ``freedom`` degrees (1 or 2)."""
    if (rise is None) == (confidence is None):
        raise ValueError(
            "pass exactly one of rise and confidence: rise=1.92 is a bound on f(y) - f(x); confidence=0.95 takes half "
            "the χ² quantile, which is right if f is a summed negative log-likelihood."
        )
    if rise is not None:
        checks.positive(rise=rise)
        return float(rise)
    checks.number("confidence", confidence, above=1e-100, below=1.0, why="it is a probability, such as 0.95")
    assert confidence is not None
    if freedom == 2:
        return -math.log1p(-float(confidence))
    return float(torch.erfinv(torch.tensor(float(confidence), dtype=torch.float64, device="cpu"))) ** 2


@dataclass
class Setup(Generic[X]):
    """The minimizer x̂, checked, and the Hessian there where it pays.

    Attributes:
        objective, structure, point: f, the shape of the user's x, and x̂ evaluated.
        bounds: on x, None without; then the objective's variables are those of :mod:`levelport.goals.bounds`.
        tol, max_cost: allowed error of an end, relative to the half width, and gradient equivalents per end.
        before, cost: evaluations of f before the set-up, and those of the set-up.
        chart: whitening coordinates for a rise of 1, or None without Hessian.
        decrement: ½ gᵀH⁻¹g, by which a Newton step lowers f; NaN where it is not known.
        trouble: why no interval can be computed, or "".
    """

    objective: Objective
    structure: Structure[X]
    point: Point
    bounds: Bounds | None
    tol: float
    max_cost: float
    before: Cost
    cost: Cost = field(default_factory=Cost)
    chart: Chart | None = None
    decrement: float = math.nan
    trouble: str = ""

    def task(self, rise: float) -> Task:
        """The region of this rise, and what a search in it needs."""
        if self.chart is not None:
            root = math.sqrt(rise)
            chart = replace(self.chart, matrix=self.chart.matrix * root, inverse=self.chart.inverse / root)
        else:
            chart = Chart(self.point.x)
        base = self.point.value
        noise = 1e2 * torch.finfo(self.objective.dtype).eps * abs(base) / rise
        lowest = Lowest(-max(1e-3, 4.0 * self.decrement / rise, noise))
        region = Region(self.objective, chart, base, rise, base + rise, lowest)
        start = Site(torch.zeros_like(region.chart.pull(self.point.x)), self.point, region)
        recycled = None if self.chart is not None else Recycled(region, start)
        at_bound = self.bounds is not None and bool(self.bounds.near(self.point.x, _STATIONARY).any())
        return Task(region, start, self.tol, recycled, at_bound)

    @property
    def spent(self) -> Cost:
        """Evaluations of f since the set-up began."""
        return self.objective.cost - self.before

    def estimates(self, goals: list[Objective]) -> list[float]:
        """The goals at the minimizer; an error for one that is not deterministic."""
        points = [goal.at(self.outer(self.point)) for goal in goals]
        for goal, point in zip(goals, points, strict=True):
            goal.verify_deterministic(point)
        return [point.value for point in points]

    def outer(self, point: Point) -> Tensor:
        """The user's x, flat, of a point of the objective or of a goal."""
        if self.bounds is None:
            return point.x
        assert point.inner is not None
        return point.inner.x

    def goal(self, goal: Objective) -> Objective:
        """A goal as a function of the objective's variables."""
        return goal if self.bounds is None else Bounded(goal, self.bounds)

    def end(
        self, task: Task, goal: Objective, name: str, side: str, begin: Tensor | None = None
    ) -> tuple[End[X], Tensor]:
        """Search for one end of ``goal``, from the minimizer or from ``begin``; the end, and z of its point."""
        if self.trouble:
            return self.unsearched(task, goal, name, side, EndStatus.FAILED, self.trouble)
        began = time.perf_counter()
        before = self.objective.cost + goal.cost
        most = before.gradient_equivalents + self.max_cost
        sign = SIDES[side]
        aim = Aim(goal, sign, task.region.chart)

        def spent() -> bool:
            return self.objective.cost.gradient_equivalents + goal.cost.gradient_equivalents >= most

        found = find_end(task, aim, spent, begin)
        if self.bounds is not None:
            for _ in range(_RESTARTS):
                beside = self._beside(task, found, sign)
                if beside is None:
                    break
                again = find_end(task, aim, spent, beside)
                if not again.reading.value < found.reading.value:
                    break
                found = again
            self._note_bounds(task, aim, found)
        x = self.outer(found.site.point)
        reached = found.reading.point.value
        way = x - self.outer(task.start.point)
        unbounded = found.status is EndStatus.UNBOUNDED
        lower, task.region.lowest.site = task.region.lowest.site, None
        end = End(
            name=name,
            side=side,
            bound=-sign * math.inf if unbounded else reached,
            x=self.structure.unflatten(x),
            quantity=reached,
            value=found.site.point.value,
            status=found.status,
            angle=found.angle,
            price=found.price / task.region.unit,
            wald=sign * (found.origin - found.wald),
            cost=replace(self.objective.cost + goal.cost - before, seconds=time.perf_counter() - began),
            iterations=found.iterations,
            detail=found.detail,
            direction=self.structure.unflatten(way / float(norm(way))) if unbounded else None,
            minimum=self.structure.unflatten(self.outer(lower.point)) if lower is not None else None,
            minimum_value=lower.point.value if lower is not None else math.nan,
        )
        return end, found.site.z

    def unsearched(
        self, task: Task, goal: Objective, name: str, side: str, status: EndStatus, detail: str
    ) -> tuple[End[X], Tensor]:
        """The minimizer in place of an end that is not searched for, with the reason."""
        start, before, nan = self.point, goal.cost, math.nan
        x, value = self.structure.unflatten(self.outer(start)), goal.at(start.x).value
        cost = goal.cost - before
        return End(name, side, nan, x, value, start.value, status, nan, nan, nan, cost, 0, detail), task.start.z

    def farther(
        self, task: Task, goal: Objective, found: tuple[End[X], Tensor], begin: Tensor
    ) -> tuple[End[X], Tensor] | None:
        """Search again from ``begin``: what replaces the end ``found`` with its point, at the cost of both, or None.

        The farther one stays, with the lower minimum that either search came across.
        """
        end = found[0]
        again, z = self.end(task, goal, end.name, end.side, begin)
        beyond = SIDES[end.side] * again.bound < SIDES[end.side] * end.bound
        lower = min(end, again, key=lambda one: math.inf if one.minimum is None else one.minimum_value)
        if lower is end and not beyond:
            return None
        kept, z = (again, z) if beyond else found
        if lower.minimum is not None:
            status = EndStatus.NEW_MINIMUM
            kept = replace(kept, status=status, minimum=lower.minimum, minimum_value=lower.minimum_value)
        iterations = end.iterations + again.iterations
        return replace(kept, cost=end.cost + again.cost, iterations=iterations, wald=end.wald), z

    def _beside(self, task: Task, found: Search, sign: float) -> Tensor | None:
        """A start off the bounds that an end could leave: where the Lagrangian falls away from the bound.

        In u such an end is stationary whatever lies beside it.
        """
        assert self.bounds is not None
        if not found.status.bounded or not found.price > 0.0:
            return None
        site, reading = found.site, found.reading
        near = self.bounds.near(site.point.x, _OFF)
        if not bool(near.any()):
            return None
        assert site.point.inner is not None
        assert reading.point.inner is not None
        pull = sign * reading.point.inner.gradient + found.price / task.region.unit * site.point.inner.gradient
        # x'' points from the bound into the interior.
        leaves = near & (self.bounds.outer(site.point.x)[2] * pull < 0.0)
        if not bool(leaves.any()):
            return None
        u = torch.where(leaves, site.point.x + _OFF, site.point.x)
        return task.region.chart.coordinates(u)

    def _note_bounds(self, task: Task, aim: Aim, found: Search) -> None:
        """Put an end that ran into bounds exactly on them, and say so."""
        assert self.bounds is not None
        x = self.outer(found.site.point)
        near = self.bounds.at_bound(x, task.tol * (x - self.outer(task.start.point)).abs())
        if not found.status.bounded or not bool(near.any()):
            return
        if found.site.slack > _INSIDE:
            nearest = torch.where(x - self.bounds.lower < self.bounds.upper - x, self.bounds.lower, self.bounds.upper)
            point = self.objective.at(self.bounds.inner(torch.where(near, nearest, x)))
            site = Site(found.site.z, point, task.region)
            reading = aim.at(site)
            if point.value <= task.region.level and reading.value <= found.reading.value:
                found.site, found.reading = site, reading
            found.status, found.price = EndStatus.AT_BOUND, 0.0
        entries = ", ".join(str(index) for index in near.nonzero()[:5, 0].tolist())
        found.detail = "; ".join(filter(None, (found.detail, f"at a bound: entries {entries} of x")))


def prepare(
    fun: Callable[[Any], Tensor] | Objective,
    x: X,
    *,
    rise: float,
    ends: int | None,
    refine: bool,
    tol: float,
    max_cost: float | None,
    bounds: Any = None,
) -> Setup[X]:
    """Check that ``x`` is a minimizer and take what ``ends`` ends need there; None stands for the Hessian."""
    budget = _MAX_COST if max_cost is None else max_cost
    checks.number("tol", tol, above=0.0, below=1.0)
    checks.number("max_cost", budget, above=0.0)
    checks.flag("refine", refine)
    objective, structure, flat = as_objective(fun, x)
    before = objective.cost
    limits = None
    if bounds is not None:
        limits = Bounds.read(bounds, structure, flat)
        if refine:
            flat = _minimized(objective, limits, flat, rise)
        limits.set_scale(objective.at(flat, curvature=True), rise)
        objective, flat = Bounded(objective, limits), limits.inner(flat)
    elif refine:
        flat = find_minimum(objective, flat, max_steps=_NEWTON).x
    point = objective.at(flat, curvature=True)
    setup = Setup(objective, structure, point, limits, tol, budget, before)
    if not (point.finite and all_finite(flat)):
        setup.trouble = f"at x f = {point.value}, ‖∇f‖ = {point.gradient_norm}"
    else:
        objective.verify_deterministic(point)
        advice = "Pass the minimizer, or refine=True to minimize from x first."
        if refine:
            advice = "refine=True reached no minimum: f may have none, as for separable data. Try another x or float64."
        _judge(setup, rise, ends, advice)
    setup.cost = setup.spent
    return setup


def _minimized(objective: Objective, bounds: Bounds, x: Tensor, rise: float) -> Tensor:
    """The minimizer within bounds; again from beside those that f falls away from, where x' = 0 stops the search."""
    steps = _NEWTON
    for _ in range(_RESTARTS + 1):
        point = objective.at(x, curvature=True)
        bounds.set_scale(point, rise, share=1.0)  # a guess may be near a bound by chance
        u = bounds.inner(x)
        leaves = bounds.near(u, _OFF) & (bounds.outer(u)[2] * point.gradient < 0.0)
        if steps < _NEWTON and not bool(leaves.any()):
            break
        found = find_minimum(Bounded(objective, bounds), torch.where(leaves, u + _OFF, u), max_steps=_NEWTON)
        x, steps = bounds.outer(found.x)[0], found.steps
    return x


def _judge(setup: Setup[Any], rise: float, ends: int | None, advice: str) -> None:
    """Take the chart where it pays and the decrement, and raise where that says that x is no minimizer."""
    objective, point, d = setup.objective, setup.point, setup.objective.dimension
    if ends is None and d > _LARGEST:
        raise ValueError(f"x has {d} entries, but a contour needs the Hessian and so at most {_LARGEST} of them.")
    if d <= _ALWAYS or (d <= _LARGEST and (ends is None or d <= _PER_QUANTITY * ends)):
        hessian = hessian_by_columns(point)
        if not all_finite(hessian.reshape(-1)):
            setup.trouble = "the Hessian at x is not finite"
            return
        if setup.bounds is not None:  # on a bound f may be of fourth order, and rises over a length of about 1
            on = setup.bounds.near(point.x, _STATIONARY)
            hessian.diagonal()[on] = hessian.diagonal()[on].clamp_min(rise)
        setup.chart = Chart.whitening(point.x, hessian)
        pulled = setup.chart.pull(point.gradient)
        setup.decrement = 0.5 * float(pulled @ pulled)
        if setup.chart.least < -max(1e-6, 1e4 * torch.finfo(objective.dtype).eps):
            raise ObjectiveError(
                "x is not a minimizer of fun: the Hessian there has a negative eigenvalue, so f falls along some "
                f"direction. {advice}"
            )
    elif point.gradient_norm > 0.0:
        task, most = setup.task(rise), objective.cost.gradient_equivalents + 2.0 * _PRODUCTS
        g, inverse = task.start.gradient, task.recycled
        assert inverse is not None

        def enough(value: float) -> bool:
            return value > 4.0 * _CLEARLY or objective.cost.gradient_equivalents >= most

        inverse.solve(g, relative=0.1, stop=enough)
        setup.decrement = 0.5 * rise * float(g @ inverse(g))
    else:
        setup.decrement = 0.0
    if setup.decrement > _CLEARLY * rise:
        raise ObjectiveError(
            f"x is not a minimizer of fun: a Newton step would lower f by about {setup.decrement:.3g}, "
            f"{setup.decrement / rise:.2g} times the rise {rise:.4g} (‖∇f‖ = {point.gradient_norm:.3g}). {advice}"
        )
