"""One end of an interval: the repeated Wald step, and where the region is curved feasible SQP with a second look.

With the Hessian at the minimizer as coordinates, regular likelihoods take two to five Wald steps. Searches that needed
six or more ended, by the Wald step's own test, up to 88 % short of the end in curved valleys (double exponential,
overlapping peaks). So after five steps feasible SQP takes over, in the same coordinates and with the pairs found, and
its answer is certified only if a Newton step along the level, with exact products, predicts no gain either.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from levelport.goals.chart import Region, Site
from levelport.goals.feasible_sqp import Descent, feasible_sqp
from levelport.goals.goal import Aim, Reading
from levelport.goals.pairs import Pairs
from levelport.goals.recycled import Recycled
from levelport.goals.result import EndStatus
from levelport.goals.verify import second_look
from levelport.goals.wald import Limits, Search, repeated_wald

STEPS = 5  # Wald steps after which a region counts as curved
_INEXACT = 1e-4  # relative error of the Wald width's square, where the inverse Hessian is found by conjugate gradients
_STRICTER = 0.3  # factor of the tolerance there
_FAR = 100.0  # Wald widths after which there is no end
_ANGLES = (1e-4, 1e-5, 1e-6)  # of feasible SQP, one after the other while a second look still sees a gain
_PRODUCTS = 40
_ITERATIONS = 3000
_SHRINKINGS = 12


@dataclass
class Found:
    """An end in the coordinates of the region."""

    site: Site
    reading: Reading
    status: EndStatus
    angle: float
    price: float
    wald: float
    origin: float
    iterations: int
    warm: Warm | None = None
    detail: str = ""


@dataclass(frozen=True)
class Task:
    """Data shared by the searches for all ends.

    Attributes:
        region, start: the region and the minimizer in it.
        tol: allowed error of an end, relative to the half width.
        recycled: the inverse Hessian where the chart does not have it.
        at_bound: the start is on a bound of a parameter, from which no gradient leads away: searches begin beside it.
    """

    region: Region
    start: Site
    tol: float
    recycled: Recycled | None = None
    at_bound: bool = False


@dataclass(frozen=True)
class Warm:
    """A start for the search: the end of a smaller region, with its coordinates and pairs."""

    z: Tensor
    pairs: Pairs


def find_end(task: Task, aim: Aim, spent: Callable[[], bool], warm: Warm | None = None) -> Found:
    """The end of h in the direction of ``aim``."""
    reading = aim.at(task.start)
    begin, origin = task.start, reading
    if not reading.finite:
        return _failed(task, origin, f"at x the quantity is {origin.point.value}, or its gradient is not finite")
    if warm is not None:
        begin = _shrunk(task, warm.z)
        reading = aim.at(begin)
    elif task.at_bound or _stationary(reading):
        begin = _displaced(task)
        reading = aim.at(begin)
        if not reading.finite or _stationary(reading):
            return _failed(task, origin, "the quantity does not change around x")
    tol = task.tol
    if task.recycled is not None:
        task.recycled.solve(reading.gradient, relative=_INEXACT)
        tol *= _STRICTER
    pairs = warm.pairs if warm is not None else Pairs.around_identity(task.recycled)
    search = Search(begin, reading, origin.value)
    if warm is not None or begin is task.start:
        p = origin.gradient
        search.wald = math.sqrt(2.0 * float(p @ (p if task.recycled is None else task.recycled(p))))
    repeated_wald(task.region, aim, search, pairs, Limits(tol, STEPS, _FAR, spent))
    found = Found(
        search.site,
        search.reading,
        EndStatus.CERTIFIED,
        search.angle,
        search.price,
        search.wald if begin is task.start or warm is not None else math.nan,
        search.origin,
        search.iterations,
        Warm(search.site.z, pairs),
    )
    if search.unbounded:
        found.status = EndStatus.UNBOUNDED
    elif not search.converged:
        _take_over(task, aim, search, pairs, found, spent)
    if not found.reading.value < origin.value:
        found.site, found.reading, found.angle, found.price = task.start, origin, math.nan, 0.0
        if found.status is not EndStatus.BUDGET:
            found.status = EndStatus.CERTIFIED if begin is not task.start else EndStatus.FAILED
        found.detail = "the quantity is stationary at x" if begin is not task.start else "no step improves the quantity"
    if task.region.lowest.site is not None and found.status is not EndStatus.FAILED:
        found.status = EndStatus.NEW_MINIMUM
    return found


def _failed(task: Task, origin: Reading, detail: str) -> Found:
    nan = math.nan
    return Found(task.start, origin, EndStatus.FAILED, nan, nan, nan, origin.value, 0, detail=detail)


def _stationary(reading: Reading) -> bool:
    """Return True if the quantity's gradient vanishes as far as its digits tell."""
    p = reading.gradient
    eps = torch.finfo(reading.point.x.dtype).eps
    return not float(p @ p) > (eps * abs(reading.value)) ** 2


def _displaced(task: Task) -> Site:
    """A point within the region beside the minimizer, in a direction that is no axis of anything."""
    z = torch.cos(torch.arange(1, task.start.z.numel() + 1, device=task.start.z.device, dtype=task.start.z.dtype))
    return _shrunk(task, z * (0.5 / float(z.norm())))


def _shrunk(task: Task, z: Tensor) -> Site:
    """The point at z, or nearer to the minimizer if that is outside the region."""
    site = task.region.at(z)
    for _ in range(_SHRINKINGS):
        if site.feasible:
            return site
        F = site.value
        site = task.region.at(site.z * (max(0.98 / math.sqrt(F), 0.25) if math.isfinite(F) else 0.25))
    return task.start


def _take_over(task: Task, aim: Aim, search: Search, pairs: Pairs, found: Found, spent: Callable[[], bool]) -> None:
    """Feasible SQP from where the Wald steps ended."""
    state = Descent(search.site, search.reading, search.origin)
    metric = pairs.rescaled(search.price if 0.0 < search.price < math.inf else 1.0)

    def stop() -> bool:
        return spent() or search.origin - state.reading.value > _FAR * search.wald

    found.status = EndStatus.CURVED
    for tol in _ANGLES:
        state.converged = state.stalled = False
        feasible_sqp(task.region, aim, state, metric, tol=tol, max_iterations=_ITERATIONS, spent=stop)
        if state.interior or spent() or not (state.converged or state.stalled):
            break
        width = search.origin - state.reading.value
        if not width > 0.0:
            break
        look = second_look(task.region, aim, state.site, state.reading, metric, products=_PRODUCTS)
        if look.gain <= task.tol * width:
            found.status = EndStatus.CERTIFIED
            break
        found.detail = f"a Newton step along the level predicts {look.gain / width:.1g} of the half width more"
        if not math.isfinite(look.gain):
            found.detail = "along the level the curvature is negative"
        for s, y in look.pairs:
            metric.learn(s, y * state.price)
    if search.origin - state.reading.value > _FAR * search.wald:
        found.status = EndStatus.UNBOUNDED
    elif state.interior:
        found.status = EndStatus.CERTIFIED
    elif spent():
        found.status = EndStatus.BUDGET
    found.site, found.reading = state.site, state.reading
    found.price, found.iterations = state.price, search.iterations + state.iterations
    found.warm = None  # a curved valley is no quadratic
    found.angle = _angle(state.site, state.reading, metric)


def _angle(site: Site, reading: Reading, pairs: Pairs) -> float:
    """sin ∠(p, -g) in the metric of B⁻¹."""
    p, g = reading.gradient, site.gradient
    w, v = pairs.solve(p), pairs.solve(g)
    size = float(p @ w) * float(g @ v)
    if not size > 0.0:
        return math.nan
    cosine = float(p @ v) / math.sqrt(size)
    return math.sqrt(max(0.0, 1.0 - cosine * cosine)) if cosine < 0.0 else 1.0
