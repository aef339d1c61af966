"""One end of an interval: the repeated Wald step, and where the region is curved feasible SQP with a second look.

With the Hessian at the minimizer as coordinates, regular likelihoods take two to five Wald steps. Searches that needed
six or more ended, by the Wald step's own test, up to 88 % short of the end in curved valleys (double exponential,
overlapping peaks). So after five steps, or from a minimizer on a bound, feasible SQP takes over, in the same
coordinates, and its answer is certified only if a Newton step along the level, with exact products, predicts no gain
either.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from levelport.goals.chart import Region, Site
from levelport.goals.feasible_sqp import Descent, feasible_sqp
from levelport.goals.goal import Aim, Reading, sine_of_opposition
from levelport.goals.pairs import Pairs
from levelport.goals.recycled import Recycled
from levelport.goals.result import EndStatus
from levelport.goals.verify import second_look
from levelport.goals.wald import Search, repeated_wald

STEPS = 5  # Wald steps after which a region counts as curved
_INEXACT = 1e-4  # relative error of the Wald width's square, where the inverse Hessian is found by conjugate gradients
_STRICTER = 0.3  # factor of the tolerance there
_BENT = 0.3  # curvature along the level, relative to that at the minimizer, below which a region counts as curved
_ANGLES = (1e-4, 1e-5, 1e-6)  # of feasible SQP, while a second look still sees a gain
_LARGEST = 100  # dimension up to which there is a second look, which takes as many products
_SOFT = 0.5  # curvature along the level, relative to that at the minimizer, below which a farther end may lie behind
_LENGTHS = (0.25, 0.5, 1.0, 2.0, 4.0)  # at which it is looked for, where the region's radius is about 1.4
_MORE = 1e-3  # slack that a point there must have gained
_BESIDE = 0.1  # distance from the minimizer up to which a stationary point of the quantity may be a saddle
_ITERATIONS = 3000
_SHRINKINGS = 12
_DESCENT = 100  # steps into a smaller region


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

    def length(self, z: Tensor) -> float:
        """‖z‖ in the metric of the Hessian at the minimizer, in which the region's radius is about 1.4."""
        return math.sqrt(max(0.0, float(z @ (z if self.recycled is None else self.recycled.image(z)))))


def find_end(task: Task, aim: Aim, spent: Callable[[], bool], begin: Tensor | None = None) -> Search:
    """Search for the end of h in the direction of ``aim``, from the minimizer or from ``begin``."""
    origin = aim.at(task.start)
    search = Search(task.start, origin, origin.value, math.nan, length=task.length)
    if not origin.finite:
        detail = f"at x the quantity is {origin.point.value}, or its gradient is not finite"
        return replace(search, status=EndStatus.FAILED, detail=detail)
    if begin is not None:
        search.site = _shrunk(task, begin)
    elif task.at_bound or _stationary(origin):
        search.site = _displaced(task)
    moved = search.site is not task.start
    if moved:
        search.reading = aim.at(search.site)
    if begin is None and moved and (not search.reading.finite or _stationary(search.reading)):
        detail = "the quantity does not change around x"
        return replace(search, site=task.start, reading=origin, status=EndStatus.FAILED, detail=detail)
    tol, exact = task.tol, True
    if task.recycled is not None:
        exact = task.recycled.solve(search.reading.gradient, relative=_INEXACT, stop=lambda _: spent())
        tol *= _STRICTER
    if begin is not None or not moved:
        p = origin.gradient
        search.wald = math.sqrt(2.0 * float(p @ (p if task.recycled is None else task.recycled(p))))
    pairs = Pairs(task.recycled, scale=1.0)
    repeated_wald(task.region, aim, search, pairs, tol=tol, steps=STEPS, spent=spent)
    if search.too_far:
        search.status = EndStatus.UNBOUNDED
    elif task.at_bound or not (search.converged and exact and search.least >= _BENT):
        _take_over(task, aim, search, spent)
    if not search.reading.value < origin.value:
        search.site, search.reading, search.angle, search.price = task.start, origin, math.nan, 0.0
        if search.status is not EndStatus.BUDGET:
            search.status = EndStatus.CERTIFIED if moved else EndStatus.FAILED
        search.detail = "the quantity is stationary at x" if moved else "no step improves the quantity"
    rests = search.status in (EndStatus.CERTIFIED, EndStatus.FAILED) and search.site.slack > _MORE
    if rests and task.length(search.site.z) < _BESIDE and begin is None and not moved:  # perhaps at a saddle
        again = find_end(task, aim, spent, _displaced(task).z)
        search = again if again.width > (1.0 + task.tol) * search.width else search
    if task.region.lowest.site is not None and search.status is not EndStatus.FAILED:
        search.status = EndStatus.NEW_MINIMUM
    return search


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


def descended(task: Task, z: Tensor) -> Tensor | None:
    """Where f, lowered from the point z outside, enters the region; None if it does not."""
    site = task.region.at(z)
    if not math.isfinite(site.value):
        return None
    around = replace(task.region, level=site.point.value)
    aim = Aim(task.region.objective, 1.0, task.region.chart)
    state = Descent(Site(z, site.point, around), aim.at(site), site.point.value)
    metric = Pairs(task.recycled, scale=1.0 / task.region.unit)

    def entered() -> bool:
        return state.reading.value <= task.region.level

    feasible_sqp(around, aim, state, metric, tol=_ANGLES[0], steps=_DESCENT, spent=entered)
    return state.site.z if entered() else None


def _take_over(task: Task, aim: Aim, search: Search, spent: Callable[[], bool]) -> None:
    """Feasible SQP from where the Wald steps ended, past shallow hills, to an end that a second look confirms."""
    metric = _metric(task, search)

    def stop() -> bool:
        return spent() or search.too_far

    search.status = EndStatus.CURVED
    for number, tol in enumerate(_ANGLES):
        if search.stalled and number:  # the price may have changed by orders of magnitude
            metric = _metric(task, search)
        feasible_sqp(task.region, aim, search, metric, tol=tol, steps=_ITERATIONS, spent=stop)
        if search.interior or stop() or not (search.converged or search.stalled) or not search.width > 0.0:
            break
        affordable = task.region.chart.whitens and task.start.z.numel() <= _LARGEST
        look = second_look(task.region, aim, search.site, search.reading) if affordable else None
        if look is None:
            search.detail = "no second look at the end was possible"
            break
        behind = _behind(task, aim, search, look.softest) if look.least < _SOFT else None
        if behind is not None:
            search.site, search.reading = behind
            continue
        if look.gain <= task.tol * search.width:
            search.status, search.detail = EndStatus.CERTIFIED, ""
            break
        search.detail = f"a Newton step along the level predicts {look.gain / search.width:.1g} of the half width more"
        if not math.isfinite(look.gain):
            search.detail = "along the level the curvature is not positive, as far as its digits tell"
    if search.too_far:
        search.status = EndStatus.UNBOUNDED
    elif search.interior:
        search.status = EndStatus.CERTIFIED
    elif spent():
        search.status = EndStatus.BUDGET
    p, g = search.reading.gradient, search.site.gradient
    v = metric.solve(g)
    pw, gv = float(p @ metric.solve(p)), float(g @ v)
    search.angle = sine_of_opposition(float(p @ v), pw, gv) if pw > 0.0 and gv > 0.0 else math.nan


def _metric(task: Task, search: Search) -> Pairs:
    """The Hessian of h + μF, as far as it is known: μ times that of F at the minimizer."""
    scale = 1.0 / search.price if 0.0 < search.price < math.inf else 1.0
    return Pairs(task.recycled, scale=scale)


def _behind(task: Task, aim: Aim, search: Search, softest: Tensor) -> tuple[Site, Reading] | None:
    """A feasible point beside an end, along the softest direction of the level, that is no worse and has more slack."""
    best, worst = (
        (search.site, search.reading),
        search.reading.value + task.tol * (search.origin - search.reading.value),
    )
    for length in _LENGTHS:
        for sign in (-1.0, 1.0):
            site = task.region.at(search.site.z + sign * length * softest)
            if site.feasible and site.slack > best[0].slack + _MORE:
                reading = aim.at(site)
                if reading.finite and reading.value <= worst:
                    best = site, reading
    return best if best[0] is not search.site else None
