"""The repeated Wald step: the smallest h over {F ≤ 1}, from the minimizer.

Take h as linear and F as quadratic with Hessian B, an approximation of ∇²(F + h/μ). With p = ∇h, g = ∇F and the slack
1 - F, the model

    min ⟨p, d⟩   subject to   F + ⟨g, d⟩ + ½ dᵀBd ≤ 1

has the solution

    d = -B⁻¹g - κ B⁻¹p,      κ = √((2 slack + ⟨g, B⁻¹g⟩)/⟨p, B⁻¹p⟩) = 1/μ.

At the minimizer, where g = 0, its end point is the end of the Wald interval. The step is repeated with B corrected by
pairs (Δx, Δ∇F + κ Δ∇h). A trial point above the level is shortened along d where it is far out, and pulled back along
-B⁻¹g where it is near. Every accepted point lies in the region and lowers h.

A long step could jump over a barrier into another component of the region, so points on its segment are tried, too. The
search stops when the gain -⟨p, d⟩ that the model still predicts is below a tolerance times the width so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from levelport.goals.chart import Region, Site
from levelport.goals.feasible_sqp import Descent
from levelport.goals.goal import Aim, Reading, sine_of_opposition
from levelport.goals.pairs import Pairs
from levelport.goals.result import EndStatus

FAR = 100.0  # Wald widths after which there is no end, unless z is still near: an odds ratio may grow as much
_OUTSIDE = 4.0  # excess over the level, in units of the rise and of the model's own drop, from which to shorten
_INSIDE = 0.2  # share of the tolerance by which steps aim below the level
_LEFT = 0.5  # slack after a step from which the step is doubled
_TILT = 0.07  # share of the first step that goes across the quantity's gradient
_LEAST_ENTRY = 0.4  # of that direction, whose largest is 1: an axis of symmetry may be any
_AGREES = 0.7, 1.4  # F after the first Wald step, where the model says 1
_LONG = 0.3  # predicted gain over the width from which a step counts as long
_GREW = 10.0  # factor by which ‖p‖ grows, where h was nearly stationary, from which pairs, made with its κ, are dropped
_ANGLE = 1e-2  # sin ∠(p, -g) at an end: the gain left is its square over twice the curvature, which may be small


@dataclass(kw_only=True)
class Search(Descent):
    """The state of the search for one end, from the minimizer, and at last its answer.

    Attributes:
        length: of z in the metric of the Hessian at the minimizer.
        wald: half the Wald interval's width; NaN where the search does not begin at the minimizer.
        angle: sin ∠(p, -g) in the metric of B⁻¹.
        least: the least curvature along the level, as far as the pairs tell, relative to that at the minimizer; 1 where
            the chart has no Hessian.
        first: the gain that the first model predicted.
        status, detail: what is known of the end.
    """

    length: Callable[[Tensor], float]
    wald: float = math.nan
    angle: float = math.nan
    least: float = 1.0
    first: float = math.nan
    status: EndStatus = EndStatus.CERTIFIED
    detail: str = ""

    @property
    def width(self) -> float:
        """How far h has come."""
        return max(self.origin - self.reading.value, 0.0)

    @property
    def too_far(self) -> bool:
        """True if h and x have come so far that there is no end."""
        unit = self.first if math.isnan(self.wald) else self.wald
        endless = self.width > math.sqrt(torch.finfo(self.site.point.x.dtype).max)  # as exp of what is unbounded
        return self.width > FAR * unit and (endless or self.length(self.site.z) > FAR)


def repeated_wald(
    region: Region, aim: Aim, search: Search, pairs: Pairs, *, tol: float, steps: int, spent: Callable[[], bool]
) -> None:
    """Lower sign·h from ``search.site`` until it converges to ``tol`` times the width, fails, or a limit is reached."""
    failures, last = 0, search.reading.gradient
    eps = torch.finfo(region.objective.dtype).eps
    while search.iterations < steps:
        site, p, g = search.site, search.reading.gradient, search.site.gradient
        if p is not last and float(p.norm()) > _GREW * float(last.norm()):
            pairs.forget()
        last = p
        w, v = pairs.solve(p), pairs.solve(g)
        pw, gv = float(p @ w), float(g @ v)
        if not (0.0 < pw < math.inf and 0.0 <= gv < math.inf):
            search.stalled = True
            return
        # Aim inside the level by a part of the tolerance: a trial point that is just outside has to be pulled back.
        inside = min(_INSIDE * tol, site.slack + 0.25 * gv)
        kappa = math.sqrt((2.0 * (site.slack - inside) + gv) / pw)
        d = -v - kappa * w
        if math.isnan(search.first) and region.chart.whitens:
            d = _tilted(d, p)
        gain = -float(p @ d)
        if math.isnan(search.first):
            search.first = gain
        search.price = 1.0 / kappa if kappa > 0.0 else math.inf
        search.angle = sine_of_opposition(gain - kappa * pw, pw, gv)  # in the metric of B⁻¹
        resolution, width = 4.0 * eps * abs(search.reading.value), search.width
        small = search.angle <= _ANGLE or gain <= resolution or not region.chart.whitens
        if width > 0.0 and small and gain <= max(tol * width, resolution):
            search.converged = True
            if region.chart.whitens:
                search.least = pairs.least_curvature(g)
            return
        if search.too_far or spent():
            return
        found = _Step(region, aim, search, d, v, gv, gain).take()
        if found is None:
            failures += 1
            if failures > 2:
                search.stalled = True
                return
            pairs.forget()
            continue
        new_site, new_reading = found
        moved, change = new_site.z - site.z, (new_site.gradient - g) + kappa * (new_reading.gradient - p)
        pairs.learn(moved, change)
        search.site, search.reading = new_site, new_reading
        search.iterations += 1


def _tilted(d: Tensor, p: Tensor) -> Tensor:
    """The first step turned a little, in a direction across p that is no axis of anything.

    A search along an axis of symmetry would otherwise end where h is stationary on the level, though it may be a
    saddle, as in the middle of a banana.
    """
    across = _no_axis(d.numel(), d.dtype, d.device)
    p = p / p.abs().max()  # whose square might be zero
    across = across - p * (float(across @ p) / float(p @ p))
    length, size = float(d.norm()), float(across.norm())
    if not (length > 0.0 and size > 1e-4):  # nowhere to go, or nothing across p but roundings
        return d
    turned = d + across * (_TILT * length / size)
    return turned * (length / float(turned.norm()))


@lru_cache(maxsize=1)  # the same for all ends
def _no_axis(entries: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    across = torch.cos(torch.arange(1, entries + 1, device=device, dtype=dtype))
    return across.sign() * across.abs().clamp_min(_LEAST_ENTRY)


class _Step:
    """The trial points x + a d - t v of one step."""

    def __init__(self, region: Region, aim: Aim, search: Search, d: Tensor, v: Tensor, gv: float, gain: float) -> None:
        self.region, self.aim, self.search = region, aim, search
        self.d, self.v, self.gv, self.gain = d, v, gv, gain
        self.a, self.t = 1.0, 0.0
        self.agrees = False
        self.pulls = gv > 1e-3  # at the minimizer ∇F = 0 and there is no way back but the ray itself

    def trial(self) -> Site:
        z = self.search.site.z + self.a * self.d
        return self.region.at(z - self.t * self.v if self.t else z)

    def scaled(self, factor: float) -> Site:
        """The way along d times ``factor``, the way back, which is of second order, times its square."""
        self.a *= factor
        self.t *= factor * factor
        return self.trial()

    def take(self) -> tuple[Site, Reading] | None:
        """A point in the region with a lower h, or None."""
        site = self._feasible()
        if site is not None and self.t == 0.0 and self.a == 1.0:
            site = self._further(site)
        if site is not None and self.a <= 1.0 and self.gain > _LONG * self.search.width:
            site = self._connected(site)
        return None if site is None else self._lower(site)

    def _feasible(self) -> Site | None:
        search = self.search
        slope = float(search.site.gradient @ self.d)
        last: tuple[float, float] | None = None
        site = self.trial()
        self.agrees = _AGREES[0] <= site.value <= _AGREES[1]
        for _ in range(14):
            if site.feasible:
                return site
            F, excess = site.value, site.excess
            if not self.pulls or not excess <= _OUTSIDE * (1.0 + self.gv):
                # Far out: shorten to where the parabola through F and its slope here meets the level.
                c = (F - search.site.value - self.a * slope) / self.a**2 if math.isfinite(F) else math.nan
                if c > 0.0:
                    root = math.sqrt(max(slope * slope + 4.0 * c * 0.98 * search.site.slack, 0.0))
                    self.a = min(max((root - slope) / (2.0 * c), 0.1 * self.a), 0.99 * self.a)
                else:
                    self.a *= 0.5 if math.isfinite(F) else 0.25
                self.t, last = 0.0, None
            else:
                rate = self.gv
                if last is not None and self.t > last[0]:
                    rate = max((last[1] - F) / (self.t - last[0]), 0.2 * self.gv)
                last = self.t, F
                self.t += (1.02 * excess + 1e-7) / rate
                if self.t > 1.0:
                    self.a, self.t, last = 0.5 * self.a, 0.0, None
            site = self.trial()
        return None

    def _further(self, site: Site) -> Site:
        """Double a step after which most of the slack is left, contrary to the model: f is flatter than it says."""
        while site.slack > _LEFT and self.a * self.gain <= FAR * self.search.wald:
            start = self.a
            middle, longer = self.scaled(1.5), self.scaled(2.0 / 1.5)
            if not (longer.feasible and middle.feasible):
                self.a = start
                break
            site = longer
        return site

    def _connected(self, site: Site) -> Site | None:
        """A long step shortened until points of its segment lie in the region as well."""
        start = self.search.site
        shares = (0.5,) if self.search.iterations or self.agrees else (0.5, 0.8)
        for _ in range(12):
            if site.feasible and all(self.region.at(start.z + c * (site.z - start.z)).feasible for c in shares):
                return site
            site = self.scaled(0.4)
        return None

    def _lower(self, site: Site) -> tuple[Site, Reading] | None:
        before = self.search.reading.value
        for _ in range(12):
            if site.feasible:
                reading = self.aim.at(site)
                if math.inf > before - reading.value >= 1e-4 * self.a * self.gain and reading.finite:
                    return site, reading
            site = self.scaled(0.4)
        return None
