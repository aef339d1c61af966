"""The constants of a problem, each with the side of the truth on which it lies.

A bound is only as good as its constants: L, R and L̃ must not be too small, μ and μ̃ not too large. Every constant says
whether it is exact, a bound, or an estimate, and :meth:`Constants.caveats` names those that spoil a guarantee.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TypeGuard

import torch
from torch import Tensor

from levelport.numerics.newton import Minimum
from levelport.objective import Objective
from levelport.objectives.linear import LinearObjective, LogisticLoss, PointwiseLoss, SoftmaxLoss, SquaredLoss
from levelport_lab.problems.minimum import find_minimum, hessian_matrix, weighted_gram
from levelport_lab.problems.spectrum import extremes, smoothness
from levelport_lab.theory.margins import MarginBounds, curvature_ends, margin_bounds
from levelport_lab.theory.rates_stable import Stability
from levelport_lab.theory.stability import curvature_ratio, sampled_stability, self_concordant_stability
from levelport_lab.theory.sublevel import largest_distance, strongly_convex_radius

DIMENSION_WRITTEN_OUT = 200
"""Up to this dimension Hessians of functions of which nothing is known are written out."""


class Kind(Enum):
    """The relation of a constant to the true one."""

    EXACT = "exact"
    UPPER = "upper bound"
    LOWER = "lower bound"
    ESTIMATE = "estimate"


@dataclass(frozen=True)
class Constant:
    """A number, how it relates to the truth, and where it comes from."""

    value: float
    kind: Kind
    origin: str

    @property
    def not_too_small(self) -> bool:
        """True if the truth is proved to be at most ``value``: nothing exceeds ∞, wherever that comes from."""
        return self.kind in (Kind.EXACT, Kind.UPPER) or self.value == math.inf

    @property
    def not_too_large(self) -> bool:
        """True if the truth is proved to be at least ``value``."""
        return self.kind in (Kind.EXACT, Kind.LOWER)

    def __str__(self) -> str:
        return f"{self.value:.6g} ({self.kind.value}: {self.origin})"


@dataclass(frozen=True)
class Constants:
    """The constants of f and the start w_0 that the theorems need.

    Attributes:
        L, mu: smoothness and strong convexity on all of ℝᵈ.
        radius: R, the largest distance from w* in {f ≤ f(w_0)}.
        radius_reached: the distance of a point of that set: R is at least this.
        stability_upper, stability_lower: L̃ and μ̃ on {f ≤ f(w_0)}.
        distance: ‖w_0 - w*‖.
        initial_gap: δ_0 = f(w_0) - f*.
        minimum: w* and f*, as found.
    """

    L: Constant
    mu: Constant
    radius: Constant
    radius_reached: Constant
    stability_upper: Constant
    stability_lower: Constant
    distance: float
    initial_gap: float
    minimum: Minimum

    @property
    def stability(self) -> Stability | None:
        """(L̃, μ̃), or None where samples refute Hessian stability.

        An L̃ that is infinite as an upper bound is one of which nothing is known; as a lower bound, from samples, it is
        a refutation.
        """
        upper, lower = self.stability_upper.value, self.stability_lower.value
        refuted = not lower > 0.0 or (math.isinf(upper) and self.stability_upper.kind is Kind.LOWER)
        return None if refuted or math.isnan(upper) else Stability(max(1.0, upper), min(1.0, lower))

    @property
    def convex(self) -> bool:
        """False if negative curvature was met anywhere; True proves nothing."""
        return self.minimum.convex and self.mu.value >= -negligible_share(self.minimum.x) * abs(self.L.value)

    def doubtful(self) -> list[str]:
        """Names of the constants that may lie on the wrong side of the truth."""
        upper = (("L", self.L), ("R", self.radius), ("L̃", self.stability_upper))
        lower = (("μ", self.mu), ("μ̃", self.stability_lower))
        return [name for name, constant in upper if not constant.not_too_small] + [
            name for name, constant in lower if not constant.not_too_large
        ]

    def caveats(self, *about: str) -> list[str]:
        """Return why bounds made of these constants (all, or those named) are not guarantees; empty if they are."""
        known, found = dict(self.table()), []
        doubtful = [name for name in self.doubtful() if not about or name in about]
        if observed := [name for name in doubtful if known[name].kind is Kind.ESTIMATE]:
            found.append(f"{', '.join(observed)} rest on an observation: {known[observed[0]].origin}")
        for kind, side in ((Kind.LOWER, "small"), (Kind.UPPER, "large")):
            if names := [name for name in doubtful if known[name].kind is kind]:
                bounds = f"{kind.value}s" if len(names) > 1 else f"{_article(kind)}"
                verb = "are" if len(names) > 1 else "is"
                found.append(f"{', '.join(names)} {verb} only {bounds} (sampled) and may be too {side}")
        if not self.convex:
            found.append("negative curvature was met: f is not convex, and the theorems do not apply")
        return found

    def table(self) -> list[tuple[str, Constant]]:
        """The constants by name, for people."""
        return [
            ("L", self.L),
            ("μ", self.mu),
            ("R", self.radius),
            ("R reached", self.radius_reached),
            ("L̃", self.stability_upper),
            ("μ̃", self.stability_lower),
        ]


def _article(kind: Kind) -> str:
    return f"an {kind.value}" if kind in (Kind.UPPER, Kind.ESTIMATE) else f"a {kind.value}"


def constants_of(objective: Objective, start: Tensor, minimum: Minimum | None = None) -> Constants:
    """Every constant of ``objective`` and ``start`` by the best means available.

    Closed forms for least squares, for objectives with a constant ``hessian`` attribute, and for logistic regression;
    the same for functions whose Hessian was found not to change, marked as estimates; eigenvalues at the start and the
    minimum, and sampling, for the rest. ``minimum`` saves finding it again.
    """
    found = find_minimum(objective, start) if minimum is None else minimum
    level = objective.at(start).value
    gap = level - found.value
    distance = float(torch.linalg.vector_norm(start - found.x))
    if not gap > 0.0:
        raise ValueError("the start is already a minimizer: there is no sub-level set to measure. Start elsewhere.")
    hessian = constant_hessian(objective)
    if hessian is not None:
        return _quadratic_constants(hessian, distance, gap, found)
    hessian = unchanging_hessian(objective, start, found)
    if hessian is not None:
        return _quadratic_constants(hessian, distance, gap, found, observed=True)
    reach = _margins(objective, found, gap)
    L, mu = _smoothness(objective, start, found), _strong_convexity(objective, start, found)
    upper, lower = _stability(objective, found, level, L, mu, reach)
    reached = max(distance, largest_distance(objective, found, level))
    radius = _radius(gap, mu, reached, reach)
    if radius.not_too_small:
        reached = min(reached, radius.value)  # for tiny gaps the two meet, and rounding of f may cross them
    return Constants(
        L=L,
        mu=mu,
        radius=radius,
        radius_reached=Constant(reached, Kind.LOWER, "largest distance found in the sub-level set"),
        stability_upper=upper,
        stability_lower=lower,
        distance=distance,
        initial_gap=gap,
        minimum=found,
    )


def constant_hessian(objective: Objective) -> Tensor | None:
    """∇²f if it is known not to depend on x: least squares, or an objective with a ``hessian`` attribute."""
    if _has_loss(objective, SquaredLoss):
        return weighted_gram(objective, objective.X.new_ones(()))
    hessian = getattr(objective, "hessian", None)
    return hessian if isinstance(hessian, Tensor) else None


def negligible_share(x: Tensor) -> float:
    """A negative curvature below this share of the largest one is rounding, in the dimension and dtype of ``x``."""
    return float(max(1e-10, 8.0 * x.numel() * torch.finfo(x.dtype).eps))


def convex_by_construction(objective: Objective) -> bool:
    """True if f is a linear model with one of the losses known to be convex; a loss of one's own may be anything."""
    return _has_loss(objective, SquaredLoss, LogisticLoss, SoftmaxLoss)


def _has_loss(objective: Objective, *kinds: type[PointwiseLoss]) -> TypeGuard[LinearObjective]:
    """Return True if f is a linear model with a loss of just these types: a subclass may have other derivatives."""
    return isinstance(objective, LinearObjective) and type(objective.loss) in kinds


def unchanging_hessian(objective: Objective, start: Tensor, minimum: Minimum) -> Tensor | None:
    """∇²f where it was the same at the start, at the minimum and at two points elsewhere: f looks quadratic.

    An observation, not a proof: f may bend between samples. None beyond :data:`DIMENSION_WRITTEN_OUT`.
    """
    if isinstance(objective, LinearObjective) or objective.dimension > DIMENSION_WRITTEN_OUT:
        return None
    generator = torch.Generator().manual_seed(0)
    scale = max(1.0, float(torch.linalg.vector_norm(start - minimum.x)))
    first = hessian_matrix(objective, minimum.x)
    size = float(torch.linalg.matrix_norm(first))
    for x in (start, None, None):
        if x is None:
            u = torch.randn(objective.dimension, generator=generator, dtype=torch.float64).to(minimum.x)
            x = minimum.x + 3.0 * scale * u / torch.linalg.vector_norm(u)
        change = float(torch.linalg.matrix_norm(hessian_matrix(objective, x) - first))
        if not change <= 1e3 * torch.finfo(objective.dtype).eps * size:
            return None
    return first


def _quadratic_constants(
    hessian: Tensor, distance: float, gap: float, minimum: Minimum, *, observed: bool = False
) -> Constants:
    low, high = curvature_ends(hessian)  # a negative end stays: it says that f is not convex

    def known(value: float, origin: str) -> Constant:
        if observed:
            return Constant(value, Kind.ESTIMATE, "the Hessian was the same at 4 points, so f looks quadratic")
        return Constant(value, Kind.EXACT, origin)

    # The sub-level set is an ellipsoid with half-axes sqrt(2δ_0/λ_i).
    radius = reached = known(strongly_convex_radius(gap, low), "longest half-axis of the ellipsoid")
    mu = known(low, "smallest eigenvalue")
    if low == 0.0 and not observed:  # rounding cannot tell a flat direction from one that is nearly so
        mu = Constant(0.0, Kind.LOWER, "smallest eigenvalue, 0 to rounding")
        radius = Constant(math.inf, Kind.UPPER, "the ellipsoid is flat, to rounding")
        reached = Constant(distance, Kind.LOWER, "the start")
    return Constants(
        L=known(high, "largest eigenvalue"),
        mu=mu,
        radius=radius,
        radius_reached=reached,
        stability_upper=known(1.0, "quadratic"),
        stability_lower=known(1.0, "quadratic"),
        distance=distance,
        initial_gap=gap,
        minimum=minimum,
    )


def _smoothness(objective: Objective, start: Tensor, minimum: Minimum) -> Constant:
    if _has_loss(objective, LogisticLoss):
        return Constant(smoothness(objective), Kind.EXACT, "‖X‖²/(4n) + 2 penalty, attained at 0")
    if _has_loss(objective, SoftmaxLoss):
        return Constant(smoothness(objective), Kind.UPPER, "‖X‖²/(2n) + 2 penalty")
    seen = [extremes(objective.at(x, curvature=True)).largest for x in (start, minimum.x)]
    return Constant(max(seen), Kind.LOWER, "largest curvature at the start and the minimum")


def _strong_convexity(objective: Objective, start: Tensor, minimum: Minimum) -> Constant:
    if isinstance(objective, LinearObjective) and convex_by_construction(objective):
        return Constant(2.0 * objective.penalty, Kind.LOWER, "2 penalty; convex losses add to it")
    seen = [extremes(objective.at(x, curvature=True)).smallest for x in (start, minimum.x)]
    return Constant(min(seen), Kind.UPPER, "smallest curvature at the start and the minimum")


def _margins(objective: Objective, minimum: Minimum, gap: float) -> MarginBounds | None:
    if _has_loss(objective, LogisticLoss):
        return margin_bounds(objective, minimum, gap)
    return None


def _radius(gap: float, mu: Constant, reached: float, reach: MarginBounds | None) -> Constant:
    best = Constant(reached, Kind.LOWER, "largest distance found in the sub-level set")
    if mu.not_too_large and mu.value > 0.0:
        best = Constant(strongly_convex_radius(gap, mu.value), Kind.UPPER, "sqrt(2δ_0/μ)")
    if reach is not None and (reach.radius < 0.999 * best.value or not best.not_too_small):
        best = Constant(reach.radius, Kind.UPPER, "least curvature in the sub-level set")
    return best


def _stability(
    objective: Objective, minimum: Minimum, level: float, L: Constant, mu: Constant, reach: MarginBounds | None
) -> tuple[Constant, Constant]:
    """The least L̃ and the largest μ̃ that any argument proves; samples where none does."""
    uppers: list[Constant] = []
    lowers: list[Constant] = []

    def proved(upper: float, lower: float, origins: tuple[str, str]) -> None:
        uppers.append(Constant(max(1.0, upper), Kind.UPPER, origins[0]))
        lowers.append(Constant(min(1.0, lower), Kind.LOWER, origins[1]))

    if L.not_too_small and mu.not_too_large and mu.value > 0.0:
        proved(L.value / mu.value, mu.value / L.value, ("L/μ", "μ/L"))
    if reach is not None and math.isfinite(reach.diameter):
        assert isinstance(objective, LinearObjective)
        ratio = curvature_ratio(objective, minimum, reach)
        if math.isfinite(ratio):
            proved(ratio, 1.0 / ratio, ("range of curvature over the sub-level set",) * 2)
        concordant = self_concordant_stability(reach.diameter)
        origin = f"self-concordance, margins differ by at most {reach.diameter:.3g}"
        proved(concordant.upper, concordant.lower, (origin,) * 2)
    if uppers:
        return min(uppers, key=lambda one: one.value), max(lowers, key=lambda one: one.value)
    sampled = sampled_stability(objective, minimum, level)
    origin = f"sampled at {sampled.pairs} pairs"
    return Constant(sampled.upper, Kind.LOWER, origin), Constant(sampled.lower, Kind.UPPER, origin)
