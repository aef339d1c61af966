"""Feasible SQP: lower any smooth h over {f ≤ level}; every iterate is feasible and h never rises.

With p = ∇h, g = ∇F, slack = level - F ≥ 0 and B an L-BFGS approximation of ∇²(h + μF), a step solves

    min ⟨p, d⟩ + ½ dᵀBd   subject to   ⟨g, d⟩ ≤ slack:

    u = -B⁻¹p;   ⟨g, u⟩ ≤ slack:  d = u, μ = 0;   else  v = B⁻¹g,  μ = (⟨g, u⟩ - slack)/⟨g, v⟩,  d = u - μ v.

Since x is feasible, d = 0 is allowed in the model and ⟨p, d⟩ < 0: h itself is the merit function, and no penalty has to
be chosen (Panier and Tits). A trial point x + a d above the level is pulled back along -v by secants on values of f.
The pair (Δx, Δp + μ Δg) is damped where its curvature is negative. μ is the price, -dh/dlevel.

The KKT conditions say p = -μ g on the level, so the certificate is sin ∠(p, -g) with μ·slack small beside what was
gained, or a gradient p that has vanished in the interior.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from levelport.goals.chart import Region, Site
from levelport.goals.goal import Aim, Reading, sine_of_opposition
from levelport.goals.pairs import Pairs
from levelport.goals.result import ImproveRow

_FIRST = 1e-2  # length of the first step, relative to x
_LONGER = 4.0  # factor of the next one where h has been linear
_VANISHED = 1e-3  # share of ‖p‖, in units of the tolerance, at which it has vanished
_TRIALS = 25
_FLAT = 20  # steps in a row whose gain is at the resolution of h before the search gives up


@dataclass
class Descent:
    """The state of a descent.

    Attributes:
        site, reading: the present point: F and its gradient, sign·h and its gradient.
        origin: sign·h at the start.
        price: μ = -⟨p, g⟩/‖g‖², at least 0; of a Wald step that of its model.
        first_gradient: ‖p‖ at the start.
        sine: sin ∠(p, -g), 1 where they do not oppose each other.
        iterations: steps taken.
        converged, stalled: the KKT conditions hold to the tolerance, or no step lowers h any further; none of them
            where a limit was reached.
        interior: the conditions hold with p = 0.
        trace: a row per iterate.
        watch: called with each row; a true return value stops.
    """

    site: Site
    reading: Reading
    origin: float
    price: float = 0.0
    first_gradient: float = math.nan
    sine: float = 1.0
    iterations: int = 0
    converged: bool = False
    interior: bool = False
    stalled: bool = False
    trace: list[ImproveRow] = field(default_factory=list)
    watch: Callable[[ImproveRow], object] | None = None

    def measure(self) -> float:
        """Take angle and price at the present point; the share of ‖p‖ that is left."""
        p, g = self.reading.gradient, self.site.gradient
        pp, gg, pg = float(p @ p), float(g @ g), float(p @ g)
        self.sine = sine_of_opposition(pg, pp, gg)
        self.price = max(0.0, -pg / gg) if gg > 0.0 else 0.0
        if math.isnan(self.first_gradient):
            self.first_gradient = math.sqrt(pp)
        return math.sqrt(pp) / self.first_gradient if self.first_gradient > 0.0 else 0.0


def feasible_sqp(
    region: Region, aim: Aim, state: Descent, pairs: Pairs, *, tol: float, steps: int, spent: Callable[[], bool]
) -> None:
    """Lower sign·h from ``state.site`` until it converges, stalls, or a limit is reached."""
    state.converged = state.stalled = False
    failures = flat = 0
    bend = 0.0  # the way back of the last step, relative to the model's second-order term
    eps = torch.finfo(region.objective.dtype).eps
    while True:
        state.interior = state.measure() <= _VANISHED * tol
        site, reading = state.site, state.reading
        p, g, h, slack = reading.gradient, site.gradient, reading.value, site.slack
        state.trace.append(ImproveRow(site.point.value, aim.sign * h, state.sine))
        stopped = state.watch is not None and bool(state.watch(state.trace[-1]))
        resolution = 4.0 * eps * abs(h)
        if state.interior or (state.sine <= tol and state.price * slack <= max(tol * (state.origin - h), resolution)):
            state.converged = True
            return
        if state.iterations >= steps or stopped or spent():
            return
        fresh = len(pairs) == 0
        if pairs.scale is None:
            pairs.scale = _FIRST * (float(site.z.norm()) or 1.0) / float(p.norm())
        step = _model(p, g, slack, pairs)
        if step is None:
            if fresh:
                state.stalled = True
                return
            pairs.forget()
            continue
        search = _LineSearch(region, aim, state, step, bend, pairs, spent)
        found = search.run()
        if found is None:
            failures += 1
            if spent():
                return
            if failures > 2:
                state.stalled = True
                return
            pairs.forget(None if failures == 1 or pairs.scale is None else 0.1 * pairs.scale)
            continue
        failures = 0
        if step.price > 0.0:
            bend = 0.7 * search.bend
        new_site, new_reading = found
        change = (new_reading.gradient - p) + step.price * (new_site.gradient - g)
        pairs.learn(new_site.z - site.z, change, damp=True)
        if len(pairs) == 0 and pairs.scale is not None and not bool(change.any()):
            pairs.forget(_LONGER * pairs.scale)  # h is linear, and nothing tells yet how far the level is
        flat = flat + 1 if h - new_reading.value <= max(resolution, 1e-9 * (state.origin - h)) else 0
        state.site, state.reading = new_site, new_reading
        state.iterations += 1
        if flat >= _FLAT:
            state.measure()
            state.stalled = True
            return


@dataclass(frozen=True)
class _Step:
    """The solution of the quadratic model: d, its price μ, v = B⁻¹g where the level is active, and the numbers."""

    d: Tensor
    v: Tensor | None
    gv: float
    price: float
    slope: float
    curvature: float


def _model(p: Tensor, g: Tensor, slack: float, pairs: Pairs) -> _Step | None:
    u = pairs.solve(-p)
    gu = float(g @ u)
    d, v, gv, price = u, None, 0.0, 0.0
    if gu > slack:
        v = pairs.solve(g)
        gv = float(g @ v)
        if not gv > 0.0:
            return None
        price = (gu - slack) / gv
        d = u - price * v
    slope = -float(p @ d)
    if not 0.0 < slope < math.inf:
        return None
    return _Step(d, v, gv, price, slope, slope - price * slack if price > 0.0 else slope)


class _LineSearch:
    """Trial points x + a d - t v: feasible first, then Armijo on h."""

    def __init__(
        self, region: Region, aim: Aim, state: Descent, step: _Step, bend: float, pairs: Pairs, stop: Callable[[], bool]
    ) -> None:
        self.region, self.aim, self.state, self.step, self.pairs, self.stop = region, aim, state, step, pairs, stop
        self.guess, self.bend = bend, 0.0
        self.v, self.gv = step.v, step.gv
        self.floor = 4.0 * torch.finfo(region.objective.dtype).eps * abs(region.level) / region.unit

    def run(self) -> tuple[Site, Reading] | None:
        step, h = self.step, self.state.reading.value
        eps = torch.finfo(self.region.objective.dtype).eps
        a = 1.0
        for _ in range(_TRIALS):
            if self.stop():
                return None
            site, t = self._feasible(a)
            if site is None:
                a *= 0.3
                continue
            reading = self.aim.at(site)
            drop, predicted = h - reading.value, a * step.slope
            if math.isfinite(drop) and drop >= max(0.0, 1e-4 * predicted - 4.0 * eps * abs(h)) and reading.finite:
                bend = step.curvature * a * a  # zero as well where it is below the smallest number
                self.bend = max(0.0, t * self.gv / bend) if bend > 0.0 else 0.0
                return site, reading
            shorter = 0.2 * a
            if math.isfinite(drop) and predicted > drop:
                shorter = 0.5 * a * predicted / (predicted - drop)
            a = min(max(shorter, 0.1 * a), 0.5 * a)
        return None

    def _feasible(self, a: float) -> tuple[Site | None, float]:
        """A feasible point near x + a d and its way back t, or None."""
        step, start = self.step, self.state.site
        ahead = start.z + a * step.d
        t = 0.0
        if step.price > 0.0 and self.guess > 0.0:
            t = self.guess * step.curvature * a * a / step.gv
        site = self.region.at(ahead - t * self.v if t and self.v is not None else ahead)
        if site.feasible:
            return site, t
        if self.v is None:
            self.v = self.pairs.solve(start.gradient)
            self.gv = float(start.gradient @ self.v)
        if not self.gv > 0.0:
            return None, 0.0
        # Aim below the level by a small part of what the step gains.
        price = max(step.price, self.state.price)
        band = 0.2 * a * step.slope / price if price > 0.0 else 0.1 * start.slack
        longest = 2.0 * a * float(step.d.norm()) / max(float(self.v.norm()), 1e-300)
        reachable = 0.5 * band + site.excess <= self.gv * longest  # not where the price is nearly 0
        band = max(self.floor, band if reachable else site.excess)
        last: tuple[float, float] | None = None
        for _ in range(4):
            excess = site.excess
            if not math.isfinite(excess):
                return None, 0.0
            rate = self.gv
            if last is not None:
                if not t > last[0]:
                    return None, 0.0
                rate = (last[1] - excess) / (t - last[0])
                if not rate > 0.05 * self.gv:
                    return None, 0.0
            last = t, excess
            t += (excess + 0.5 * band) / rate
            if t > longest:
                return None, 0.0
            site = self.region.at(ahead - t * self.v)
            if site.feasible:
                return site, t
        return None, 0.0
