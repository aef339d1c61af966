"""What the theory says of *this* step: a certificate after every teleport, between the worst case and the measurement.

The proof of linear progress uses Hessian stability at two pairs of points only: (w⁺, w_{k+1}) for L̃ and (w⁺, w*) for μ̃.
Let g, H be gradient and Hessian at w⁺, s = ‖g‖²_{H⁻¹}, λ = ⟨g, Hg⟩/‖g‖² and a = ‖g‖⁴/(⟨g, Hg⟩ s), the squared cosine
between gradient and Newton direction in the metric of H (1 after an exact teleport). If

    f(w_{k+1}) ≤ f(w⁺) - η‖g‖² + r/2 η²⟨g, Hg⟩      and      f* ≥ f(w⁺) + ⟨g, w* - w⁺⟩ + m/2 ‖w* - w⁺‖²_H,

then δ⁺ ≤ s/(2m), by minimizing the right side over all directions, and with t = ηλ

    δ_{k+1} ≤ (1 - 2amt(1 - rt/2)) δ⁺,       for the largest Armijo step, t ≥ 1/r:   δ_{k+1} ≤ (1 - am/r) δ⁺.

Three values of (r, m) give three columns:

* *proved*: no function value is looked at, only how far the margins move between the two points of each pair
  (self-concordance), or the constants of the whole sub-level set, whichever is better; and never worse than 1 - μ/L
  where the step is at least 1/L;
* *pair*: the exact ratios of the two pairs. What is lost is that w* - w⁺ is not quite the Newton direction;
* *measured*: δ_{k+1}/δ_k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from levelport.numerics.newton import hessian_by_columns, newton_step
from levelport.objective import Objective, Point
from levelport.objectives.linear import LinearObjective, LogisticLoss
from levelport.vectors import all_finite
from levelport_lab.theory.constants import DIMENSION_WRITTEN_OUT, Constants
from levelport_lab.theory.rates_stable import Stability
from levelport_lab.theory.stability import self_concordant_stability, stability_ratio
from levelport_lab.theory.trajectory import Trajectory


@dataclass(frozen=True)
class NewtonAlignment:
    """The angle between the gradient and the Newton direction H⁻¹g.

    ``angle`` is in degrees. ``squared`` is a = ‖g‖⁴/((gᵀHg)(gᵀH⁻¹g)): the largest Armijo step from here lowers f -
    f* by a factor 1 - a·μ̃/L̃, see :func:`step_factor`. ``solved`` says whether
    H⁻¹g was found; if it was not, a may be too large, and nothing can be proved with it.
    """

    angle: float
    squared: float
    solved: bool = True


def newton_alignment(point: Point, *, max_products: int = 500) -> NewtonAlignment | None:
    """Angle and squared H-cosine between gradient and Newton direction; None where H is not positive definite.

    H is written out up to :data:`~levelport_lab.theory.constants.DIMENSION_WRITTEN_OUT`; beyond, conjugate gradients
    solve for H⁻¹g with at most ``max_products`` products. A singular H counts as positive definite if g lies in its
    range.
    """
    g = point.gradient
    if not point.gradient_norm > 0.0:
        return None
    if g.numel() <= min(DIMENSION_WRITTEN_OUT, max_products):
        newton, solved = _written_out(point)
    else:
        newton, solved = _by_conjugate_gradients(point, max_products)
    curvature, decrement = float(g @ point.hvp(g)), float(g @ newton)
    if not (curvature > 0.0 and decrement > 0.0):
        return None
    size = float(torch.linalg.vector_norm(newton))
    cosine = min(1.0, decrement / (size * point.gradient_norm))
    squared = min(1.0, point.gradient_norm**4 / (curvature * decrement))
    return NewtonAlignment(math.degrees(math.acos(cosine)), squared, solved)


def _written_out(point: Point) -> tuple[Tensor, bool]:
    """H⁻¹g, and whether gᵀH⁻¹g is known to a thousandth; 0 where H is not positive definite.

    An error of ε‖H‖ in H changes the part c²/λ of an eigenvalue λ in gᵀH⁻¹g by a share of ε‖H‖/λ.
    """
    H = hessian_by_columns(point)
    if not all_finite(H):
        return torch.zeros_like(point.gradient), False
    values, vectors = torch.linalg.eigh(H)
    parts = vectors.T @ point.gradient
    eps, size = torch.finfo(values.dtype).eps, float(values.abs().max())
    rounding = 8.0 * len(values) * eps * size
    flat = values <= rounding
    leak = float(torch.linalg.vector_norm(parts[flat])) / point.gradient_norm
    if float(values[0]) < -rounding or leak > math.sqrt(eps):
        return torch.zeros_like(point.gradient), False
    step = torch.where(flat, 0.0, parts / torch.where(flat, 1.0, values))
    doubt = rounding * float(step @ step) / max(float(parts @ step), 1e-300)
    return vectors @ step, doubt <= 1e-3 and leak <= 1e2 * len(values) * eps


def _by_conjugate_gradients(point: Point, max_products: int) -> tuple[Tensor, bool]:
    """The same by products alone. The residual that they update drifts away from the true one, which decides."""
    g = point.gradient
    found = newton_step(point, tolerance=1e-10, max_hvps=max_products)
    if found.negative:
        return torch.zeros_like(g), False
    residual = float(torch.linalg.vector_norm(g + point.hvp(found.step))) / point.gradient_norm
    return -found.step, residual <= math.sqrt(torch.finfo(g.dtype).eps)


@dataclass(frozen=True)
class StepCertificate:
    """The three factors of the step after the teleport at iteration ``k``; nan where one is not known.

    ``proved`` and ``pair`` are upper bounds on ``measured``, but for rounding. ``alignment`` is a.
    """

    k: int
    proved: float
    pair: float
    measured: float
    alignment: float


def certify(objective: Objective, trajectory: Trajectory, constants: Constants) -> tuple[StepCertificate, ...]:
    """A certificate for every teleport whose gap is more than rounding."""
    trivial = 1.0 - constants.mu.value / constants.L.value if _safe(constants, "L", "μ") else math.nan
    found = []
    for k, row in enumerate(trajectory.rows):
        if not row.teleported or not trajectory.resolved(k) or row.step == 0.0:
            continue
        landed = objective.at(row.landed, curvature=True)
        following = landed.x - row.step * landed.gradient
        aligned = newton_alignment(landed)
        a, t = (aligned.squared if aligned is not None and aligned.solved else math.nan), row.step * row.curvature
        r = stability_ratio(objective, landed.x, following)
        m = stability_ratio(objective, landed.x, constants.minimum.x)
        # The largest Armijo step meets its test with equality, so that rounding of f would decide.
        rounding = 8.0 * torch.finfo(objective.dtype).eps * abs(landed.value)
        armijo = objective.at(following).value <= landed.value - 0.5 * row.step * landed.gradient_norm**2 + rounding
        proved = _proved(objective, landed.x, following, constants)
        sure = math.nan if proved is None else step_factor(proved.upper, proved.lower, a, t, armijo=armijo)
        found.append(
            StepCertificate(
                k,
                # The trivial factor is that of steps which lower f by ‖g‖²/(2L), as Armijo's largest does.
                proved=_smaller(sure, trivial) if armijo and row.step * constants.L.value >= 1.0 - 1e-9 else sure,
                pair=step_factor(r, m, a, t, armijo=armijo),
                measured=trajectory.gaps[k + 1] / row.gap if trajectory.resolved(k + 1) else 0.0,
                alignment=a,
            )
        )
    return tuple(found)


def step_factor(upper: float, lower: float, alignment: float, t: float, *, armijo: bool) -> float:
    """1 - am·min(t, 1/r) where the step passed Armijo's test, 1 - 2amt(1 - rt/2) otherwise; nan if there is no bound.

    ``upper`` is r, ``lower`` m, ``alignment`` a and ``t`` = ηλ. Armijo's test alone gives 1 - amt; the largest such
    step has t ≥ 1/r. The argument replaces s by 2mδ⁺ ≤ s, so it needs m > 0 and, without Armijo's test, rt ≤ 2: the
    decrease of a longer step would have to be replaced by something smaller.
    """
    passed = min(t, 1.0 / upper) if upper > 0.0 else t  # where r is not known, Armijo's test alone
    share = passed if armijo else 2.0 * t * (1.0 - 0.5 * upper * t)
    factor = 1.0 - alignment * lower * share
    if not (lower > 0.0 and share >= 0.0) or math.isnan(factor):
        return math.nan  # max(0, nan) would be 0, the strongest bound
    return max(0.0, factor)


def _smaller(*factors: float) -> float:
    """The smallest of those that are known; nan if none is."""
    return min((factor for factor in factors if not math.isnan(factor)), default=math.nan)


def _proved(objective: Objective, landed: Tensor, following: Tensor, constants: Constants) -> Stability | None:
    """L̃ at the pair (w⁺, w_{k+1}) and μ̃ at (w⁺, w*), without a look at f."""
    whole = constants.stability if _safe(constants, "L̃", "μ̃") else None
    if not (isinstance(objective, LinearObjective) and type(objective.loss) is LogisticLoss):
        return whole
    step, way = (float((objective.X @ (end - landed)).abs().max()) for end in (following, constants.minimum.x))
    upper, lower = self_concordant_stability(step).upper, self_concordant_stability(way).lower
    if whole is None:
        return Stability(upper, lower)
    return Stability(min(upper, whole.upper), max(lower, whole.lower))


def _safe(constants: Constants, *names: str) -> bool:
    """Return True if these constants lie on the safe side of the truth."""
    return not set(names) & set(constants.doubtful()) and constants.convex
