"""The teleportation problem and its geometry: the level, the trust region, the way back, and the KKT certificate.

With g = ∇f(x), n = g/‖g‖, H = ∇²f(x) and P = I - n nᵀ, the KKT conditions of max ‖∇f‖ on {f ≤ f(w)} say H g = λ g:
nothing along the level set makes the gradient longer. :class:`Certificate` follows from the one product H n, which is
taken with the unit vector because H g over- or underflows in float32 long before f does.

:func:`retract` goes back to the level: the root of f(x - t n) = f(w) along the normal n, by secants on values, from
either side. The first step solves the parabola f - ‖g‖ t + ½ λ t², whose curvature λ the caller knows; the later ones
are secants, kept inside the bracket once there is one. A value costs half a gradient, and only the point returned needs
its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field

import torch
from torch import Tensor

from levelport.objective import Objective, Point
from levelport.vectors import all_finite, norm, read

INSIDE = 0.95
"""The part of the trust radius that steps may use; the rest is left for the way back onto the level."""

SLOW_GROWTH = 0.3
"""Slope of log ‖∇f‖ over that of the distance from w, below which growth has ended; 1 where both are proportional."""

_BAND = 1e-10  # of the decrease that a Newton step predicts; costs half as much of the gradient norm
_MAX_VALUES = 10  # of a way back to the level

State = Mapping[str, float]
"""What a solver remembers from one teleport of a run to the next, as plain numbers; empty before the first."""


@dataclass(frozen=True)
class Certificate:
    """The KKT conditions in a few numbers.

    * ``curvature``     λ = ⟨g, H g⟩ / ‖g‖²; 1/λ is the Newton step size at a KKT point
    * ``kkt_residual``  ‖P H g‖ / ‖g‖², the Riemannian gradient norm of ½ log ‖∇f‖²
    * ``alignment``     cos ∠(g, H g): 1 at a KKT point, and free of units
    * ``misalignment``  sin ∠(g, H g), the scale-free size of the residual; below 1e-8 the cosine does not show it

    At a KKT point below the level, where f is not convex, H g = 0: λ is 0 up to rounding, and the angles mean nothing.
    What is not known is NaN, and the misalignment infinite.
    """

    curvature: float = math.nan
    kkt_residual: float = math.nan
    alignment: float = math.nan
    misalignment: float = math.inf

    @classmethod
    def at(cls, point: Point) -> Certificate:
        """Certify ``point``; costs one HVP if it has not been spent there yet."""
        if not 0.0 < point.gradient_norm < math.inf:
            return cls()
        if point.product_sizes is None:
            normal = point.normal
            along, tangential = split(normal, point.hessian_normal_of(normal))
            curvature, residual = read([along], [tangential])
            point.product_sizes = curvature, residual, math.hypot(curvature, residual)
        return cls.from_sizes(point)

    @classmethod
    def from_sizes(cls, point: Point) -> Certificate:
        """The certificate of a point whose product has been taken."""
        assert point.product_sizes is not None
        curvature, residual, length = point.product_sizes
        # H n = 0 satisfies the KKT conditions with λ = 0: nothing pulls the gradient away from itself.
        alignment, misalignment = (curvature / length, residual / length) if length > 0.0 else (1.0, 0.0)
        return cls(curvature, residual / point.gradient_norm, alignment, misalignment)

    def __str__(self) -> str:
        known = f"λ {self.curvature:.4g}"
        if math.isnan(self.alignment):
            return known
        return f"{known}, alignment {self.alignment:.6g}, KKT residual {self.kkt_residual:.2g}"

    def aligned(self, *, level_set: bool, tol: float) -> bool:
        """True if H g is parallel to g to ``tol``, and its multiplier has the right sign: KKT conditions on the level.

        In the sub-level set that is λ ≥ 0: where λ < 0 the gradient grows into the interior.
        """
        return self.misalignment <= tol and (level_set or self.curvature >= 0.0)


@dataclass(frozen=True)
class Frame:
    """The geometry at a point with a gradient: its normal n, the direction of ascent of log ‖∇f‖, the certificate.

    On the level set, and at the level where λ ≥ 0, the ascent is P H n/‖g‖. Where λ < 0 the gradient grows into the
    interior of the sub-level set, and well inside there is no constraint to respect: there it is H n/‖g‖.
    """

    point: Point
    normal: Tensor
    ascent: Tensor
    on_level: bool
    ascent_norm: float
    image_norm: float
    certificate: Certificate

    @classmethod
    def of(cls, point: Point, normal: Tensor, ascent: Tensor, *, on_level: bool) -> Frame:
        """From the vectors, at a point whose product has been taken."""
        assert point.product_sizes is not None
        _, residual, length = point.product_sizes
        steepness = (residual if on_level else length) / point.gradient_norm
        return cls(point, normal, ascent, on_level, steepness, length, Certificate.from_sizes(point))

    @property
    def finite(self) -> bool:
        """True if the HVP was usable."""
        return math.isfinite(self.image_norm)


def split(normal: Tensor, image: Tensor) -> tuple[Tensor, Tensor]:
    """λ = ⟨n, H n⟩, still on the device, and P H n."""
    along = torch.dot(normal, image)
    return along, torch.addcmul(image, normal, along, value=-1.0)


@dataclass(frozen=True)
class Limits:
    """How long and how far a solver may go, and how well the problem is to be solved.

    Args:
        max_hvps: budget of Hessian-vector products per teleport, certificate included.
        max_cost: budget of gradient equivalents per teleport, checked between evaluations.
        max_seconds: budget of time per teleport, checked between evaluations.
        tol: KKT tolerance on sin ∠(∇f, ∇²f ∇f), free of units.
        radius: largest distance from w; None derives it from the problem's own scale.
        target_gain: stop once ‖∇f‖ has grown by this factor.
        target_alignment: stop once cos ∠(∇f, ∇²f ∇f) is at least this.
        least_decrease: do not move where the solver's model predicts less decrease of f from the teleport and the step
            after it; solvers without such a model ignore it.
    """

    _: KW_ONLY
    max_hvps: int = 50
    max_cost: float = math.inf
    max_seconds: float = math.inf
    tol: float = 1e-6
    radius: float | None = None
    target_gain: float = math.inf
    target_alignment: float = math.inf
    least_decrease: float = 0.0


@dataclass(frozen=True)
class TeleportProblem(Limits):
    """max ‖∇f(x)‖ subject to f(x) ≤ f(w), with the limits of its solver.

    Attributes:
        objective, start: f and the point w to teleport from.
        level_set: stay on {f = f(w)} instead of {f ≤ f(w)}.
        slack: by how much f may exceed f(w) in the returned point; how far it may fall short in level-set mode.
        state: what the solver returned from the teleport before this one of the same run.
    """

    objective: Objective
    start: Point
    level_set: bool = False
    slack: float = 0.0
    state: State = field(default_factory=dict)

    @property
    def level(self) -> float:
        """f(w)."""
        return self.start.value

    def violation(self, value: float) -> float:
        """How far ``value`` is above the level, or off it in level-set mode."""
        return abs(value - self.level) if self.level_set else max(0.0, value - self.level)

    def feasible(self, value: float) -> bool:
        """Return True if ``value`` keeps the level, up to the slack."""
        excess = value - self.level
        return abs(excess) <= self.slack if self.level_set else excess <= self.slack

    def within_radius(self, point: Point) -> bool:
        """Return True if ``point`` is no further from w than allowed."""
        return self.radius is None or point is self.start or float(norm(point.x - self.start.x)) <= self.radius

    def meets_target(self, point: Point, certificate: Certificate) -> bool:
        """Return True if ``point`` is feasible and good enough for the caller."""
        if not self.feasible(point.value):
            return False
        grown = point.gradient_norm >= self.target_gain * self.start.gradient_norm
        return grown or certificate.alignment >= self.target_alignment

    def fulfilled_by(self, point: Point) -> bool:
        """The guarantee: ``point`` is finite, keeps level and radius, and its gradient is no smaller than w's.

        Finite also in the variables underneath: in a metric those are the ones returned.
        """
        innermost = point
        while innermost.inner is not None:
            innermost = innermost.inner
        return (
            point.finite
            and all_finite(point.x)
            and all_finite(innermost.x)
            and self.feasible(point.value)
            and self.within_radius(point)
            and point.gradient_norm >= self.start.gradient_norm
        )


@dataclass
class TrustRegion:
    """How far from w the ascents of one solve may go; they share it.

    Attributes:
        length: the problem's own length, over which a vanishing curvature is told from a small one.
        radius: the longest allowed distance from w. Where the problem has none it was derived, and is widened where the
            gradient grows slowly, for all ascents: another one begins where the one before it has come to.
    """

    length: float
    radius: float


def is_kkt(point: Point, problem: TeleportProblem, *, on_level: bool, length: float) -> bool:
    """True if the KKT conditions hold at ``point``, whose product has been taken, and ‖∇f‖ has not just grown far out.

    They hold where H n is parallel to n, or zero off the level; or where λ = 0: over ``length``, the problem's own, H n
    hardly changes g. Where ‖∇f‖ has no maximum, the angle between H n and n vanishes far out all the same: with ‖∇f‖
    proportional to the distance from w the slope of its logarithm times the distance is 1, wherever one stands.
    """
    assert point.product_sizes is not None
    _, residual, image = point.product_sizes
    left, size = (residual if on_level else image), point.gradient_norm
    if left > problem.tol * image and image * length > problem.tol * size:
        return False
    return left * float(norm(point.x - problem.start.x)) <= SLOW_GROWTH * size


def log_gain(point: Point, problem: TeleportProblem) -> float:
    """log of ‖∇f‖ at ``point`` over that at the start; neither may vanish."""
    size, start = point.gradient_norm, problem.start.gradient_norm
    ratio = size / start
    return math.log(ratio) if 0.0 < ratio < math.inf else math.log(size) - math.log(start)


def merit(frame: Frame, point: Point, problem: TeleportProblem) -> float:
    """log ‖∇f‖ as it will be on the level: ‖∇f‖² changes by 2λ per unit of f along the normal, with λ of ``frame``.

    Relative to the start's, so that units cancel. Exact for a quadratic along an eigenvector; the linear form
    log ‖g‖ - λ e/‖g‖² overrates points beside the level.
    """
    size = point.gradient_norm
    if size == 0.0:
        return -math.inf
    gain = log_gain(point, problem)
    if not frame.on_level:
        return gain
    left = 1.0 - 2.0 * frame.certificate.curvature * ((point.value - problem.level) / size) / size
    return gain + 0.5 * math.log(left) if left > 0.0 else -math.inf


def room(along: float, distance: float, radius: float) -> float:
    """The largest a with ‖offset + a·direction‖ ≤ INSIDE·radius for a unit direction; 0 outside, heading out.

    ``along`` is ⟨offset, direction⟩ and ``distance`` ‖offset‖. From outside, a direction that heads inwards may be
    followed to where it is as far out as it began.
    """
    if math.isinf(radius) or radius == 0.0:  # 0: derived from lengths that underflowed
        return radius
    along, distance = along / radius, distance / radius  # so that no square leaves the range
    inside = INSIDE * INSIDE - distance * distance
    if inside <= 0.0:
        return 0.0 if along >= 0.0 else -2.0 * along * radius
    return radius * (math.sqrt(along * along + inside) - along)


def parabola_root(excess: float, slope: float, curvature: float) -> float:
    """The smaller t with slope·t - ½ curvature·t² = excess, or that of the tangent where the parabola has none."""
    tangent = excess / slope  # first: the square of the slope may leave the range
    below = 1.0 - 2.0 * curvature * (tangent / slope)
    return 2.0 * tangent / (1.0 + math.sqrt(below)) if below > 0.0 else tangent


def shifted(x: Tensor, v: Tensor, by: float) -> Tensor:
    """x + by·v, infinite where ``by`` is beyond the range of x: torch refuses such a factor in its fused form."""
    return torch.add(x, v, alpha=by) if abs(by) <= torch.finfo(x.dtype).max else x + by * v


def level_band(problem: TeleportProblem, size: float, curvature: float) -> float:
    """Return how far from the level f may end, at a point with this gradient norm and curvature.

    1e-10 of ‖g‖²/(2|λ|), the decrease that a Newton step predicts: it costs 5e-11 of the gradient norm, and rounding
    does not decide whether a point is inside; never below the resolution of f, which is all where ``curvature`` is 0.
    """
    band = 4.0 * torch.finfo(problem.objective.dtype).eps * abs(problem.level)
    if curvature != 0.0:
        band = max(band, _BAND * 0.5 * size * (size / abs(curvature)))
    return min(band, 0.5 * problem.slack) if problem.level_set else band


def retract(problem: TeleportProblem, point: Point, curvature: float | None = None) -> Point:
    """A point near ``point`` with f(w) - band ≤ f ≤ f(w), :func:`level_band`, or the nearest to that which was found.

    ``curvature`` is λ near the point; without it the point's own is taken if it is known, else 0.
    """
    size = point.gradient_norm
    if not point.finite or size == 0.0:
        return point
    if curvature is None:
        curvature = 0.0 if point.product_sizes is None else point.product_sizes[0]
    band = level_band(problem, size, curvature)
    ceiling, aim = (band, 0.0) if problem.level_set else (0.0, -0.5 * band)
    excess = point.value - problem.level
    if -band <= excess <= ceiling:
        return point
    normal = point.normal
    best = point if problem.feasible(point.value) else None
    above, below = (0.0 if excess > 0.0 else None), (0.0 if excess <= 0.0 else None)
    before, t = (0.0, excess), parabola_root(excess - aim, size, curvature)
    for _ in range(_MAX_VALUES):
        trial = problem.objective.at(shifted(point.x, normal, -t), curvature=True)
        excess = trial.value - problem.level
        if not math.isfinite(excess):
            t = 0.5 * (before[0] + t)
            continue
        if -band <= excess <= ceiling and trial.finite:
            return trial
        if problem.feasible(trial.value) and (best is None or trial.value > best.value):
            best = trial
        above, below = (t, below) if excess > 0.0 else (above, t)
        rate = (before[1] - excess) / (t - before[0]) if t != before[0] else size
        before, t = (t, excess), t + (excess - aim) / (rate if rate > 0.0 else size)
        if above is not None and below is not None and not min(above, below) < t < max(above, below):
            t = 0.5 * (above + below)
    return best if best is not None and best.finite else point
