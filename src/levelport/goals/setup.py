"""What all ends share: the checked minimiser, the Hessian there, and the region for a given rise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Generic

import torch
from torch import Tensor

from levelport import checks
from levelport.goals.chart import Chart, Region, Site
from levelport.goals.ends import Task
from levelport.goals.recycled import Recycled
from levelport.numerics.curvature import hessian_by_columns
from levelport.numerics.newton import find_minimum
from levelport.objective import Cost, Objective, ObjectiveError, Point
from levelport.objectives.function import as_objective
from levelport.objectives.structure import Structure, X
from levelport.vectors import all_finite

_CLEARLY = 1e-2  # share of the rise that a Newton step may lower f by before x is no minimiser
_ALWAYS = 100  # dimension up to which the Hessian is always taken
_LARGEST = 1000  # dimension from which it never is: it has to be factorised
_PER_QUANTITY = 15  # products per end that conjugate gradients take instead, as measured on multinomial regressions
_PRODUCTS = 20


def rise_of(rise: float | None, confidence: float | None, *, freedom: int = 1) -> float:
    """The rise that was asked for: given, or half the quantile of χ² with ``freedom`` degrees (1 or 2)."""
    if (rise is None) == (confidence is None):
        raise ValueError(
            "pass exactly one of rise and confidence: rise=1.92 is a bound on f(y) - f(x); confidence=0.95 takes half "
            "the χ² quantile, which is right if f is a summed negative log-likelihood."
        )
    if rise is not None:
        checks.number("rise", rise, above=0.0, below=math.inf)
        return float(rise)
    checks.number("confidence", confidence, above=0.0, below=1.0, why="it is a probability, such as 0.95")
    assert confidence is not None
    if freedom == 2:
        return -math.log1p(-float(confidence))
    return float(torch.erfinv(torch.tensor(float(confidence), dtype=torch.float64))) ** 2


@dataclass
class Setup(Generic[X]):
    """The minimiser x̂, checked, and the Hessian there where it pays.

    Attributes:
        objective, structure, point: f, the shape of the user's x, and x̂ evaluated.
        chart: whitening coordinates for a rise of 1, or None without Hessian.
        decrement: ½ gᵀH⁻¹g, by which a Newton step lowers f.
        cost: evaluations of the set-up.
        trouble: why no interval can be computed, or "".
    """

    objective: Objective
    structure: Structure[X]
    point: Point
    chart: Chart | None
    decrement: float
    before: Cost
    cost: Cost
    trouble: str = ""
    notes: list[str] = field(default_factory=list)

    def task(self, rise: float, tol: float) -> Task:
        """The region of this rise, and what a search in it needs."""
        if self.chart is not None:
            root = math.sqrt(rise)
            chart = replace(self.chart, matrix=self.chart.matrix * root, inverse=self.chart.inverse / root)
        else:
            chart = Chart(self.point.x)
        base = self.point.value
        region = Region(self.objective, chart, base, rise, base + rise)
        noise = 1e2 * torch.finfo(self.objective.dtype).eps * abs(base) / rise
        lower_than = -max(1e-3, 4.0 * self.decrement / rise, noise)
        start = Site(torch.zeros_like(region.chart.pull(self.point.x)), self.point, region)
        return Task(region, start, tol, lower_than, None if self.chart is not None else Recycled(region, start))

    @property
    def spent(self) -> Cost:
        """Evaluations of f since the set-up began."""
        return self.objective.cost - self.before

    def assembled(self, x: Tensor) -> X:
        """A flat vector in the user's structure."""
        return self.structure.assemble(self.structure.leaves(x))


def prepare(fun: Callable[[Any], Tensor] | Objective, x: X, *, rise: float, ends: int, refine: bool) -> Setup[X]:
    """Check that ``x`` is a minimiser and take what is needed there for ``ends`` ends."""
    objective, structure, flat = as_objective(fun, x)
    before = objective.cost
    if refine:
        flat = find_minimum(objective, flat).x
    point = objective.at(flat, curvature=True)

    def made(chart: Chart | None, decrement: float, trouble: str = "") -> Setup[X]:
        return Setup(objective, structure, point, chart, decrement, before, objective.cost - before, trouble)

    if not (point.finite and all_finite(flat)):
        return made(None, math.nan, f"at x f = {point.value}, ‖∇f‖ = {point.gradient_norm}")
    objective.verify_deterministic(point)
    d = objective.dimension
    chart, decrement = None, 0.0
    if d <= _ALWAYS or (d <= _LARGEST and d <= _PER_QUANTITY * ends):
        hessian = hessian_by_columns(point)
        if not all_finite(hessian.reshape(-1)):
            return made(None, math.nan, "the Hessian at x is not finite")
        chart = Chart.whitening(flat, hessian, 1.0)
        pulled = chart.pull(point.gradient)
        decrement = 0.5 * float(pulled @ pulled)
        if chart.least < -max(1e-6, 1e4 * torch.finfo(objective.dtype).eps):
            raise ObjectiveError(
                "x is not a minimiser of fun: the Hessian there has a negative eigenvalue, so f falls along some "
                "direction. Pass the minimiser, or refine=True to minimise from x first."
            )
    elif point.gradient_norm > 0.0:
        region = Region(objective, Chart(flat), point.value, rise, point.value + rise)
        site = region.around(point)
        doubled = Recycled(region, site).solve(site.gradient, relative=0.1, absolute=1e-6, products=_PRODUCTS)
        decrement = 0.5 * rise * doubled
    if decrement > _CLEARLY * rise:
        raise ObjectiveError(
            f"x is not a minimiser of fun: a Newton step would lower f by about {decrement:.3g}, "
            f"{decrement / rise:.1%} of the rise {rise:.4g} (‖∇f‖ = {point.gradient_norm:.3g}). Pass the minimiser, or "
            "refine=True to minimise from x first."
        )
    return made(chart, decrement)
