"""Hessian-stability constants: proved where an argument applies, sampled for anything else.

*Strong convexity.* If μI ≼ ∇²f ≼ LI then L̃ ≤ L/μ and μ̃ ≥ μ/L: the remainder f(y) - f(x) - ⟨∇f(x), y - x⟩ lies
between μ/2‖y - x‖² and L/2‖y - x‖², and ‖y - x‖²_H between μ‖y - x‖² and L‖y - x‖².

*Ranges of curvature.* If H_c ≼ ∇²f ≼ H_C on a convex set, the same argument gives L̃ ≤ Λ and μ̃ ≥ 1/Λ, with Λ the
largest eigenvalue of H_c⁻¹H_C. For logistic regression the margins of :mod:`levelport_lab.theory.margins` give a range
of φ″ for each sample, and so H_c and H_C; L/μ is the case in which nothing is known of the margins.

*Self-concordance.* φ(t) = log(1 + e^{-t}) satisfies |φ‴| ≤ φ″ (Bach 2010, Karimireddy, Stich and Jaggi 2018). Along a
segment the Hessian therefore changes by at most e^{±D}, D = max_i |x_iᵀ(y - x)|, a penalty only helping, and
integrating twice,

    L̃(D) = 2(e^D - 1 - D)/D²,       μ̃(D) = 2(e^{-D} - 1 + D)/D².

The second is the better one for a large D (it falls like 2/D), the first two for a small one or a strong penalty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from levelport.numerics.newton import Minimum
from levelport.objective import Objective
from levelport.objectives.linear import LinearObjective
from levelport_lab.problems.minimum import weighted_gram
from levelport_lab.theory.margins import MarginBounds, curvature_ends
from levelport_lab.theory.rates_stable import Stability
from levelport_lab.theory.sublevel import boundary


def self_concordant_stability(diameter: float) -> Stability:
    """L̃(D) and μ̃(D) above, for a set whose points differ by at most D in every xᵢᵀw."""
    D = diameter
    if not D >= 0.0:
        raise ValueError(f"diameter must not be negative, not {D}.")
    if D < 1e-3:  # the closed forms cancel; the series does not
        return Stability(1.0 + D / 3.0 + D**2 / 12.0 + D**3 / 50.0, max(0.0, 1.0 - D / 3.0))
    upper = math.inf if D > 700.0 else 2.0 * (math.expm1(D) - D) / D**2
    return Stability(upper, 2.0 * (math.expm1(-D) + D) / D**2)


def curvature_ratio(objective: LinearObjective, minimum: Minimum, reach: MarginBounds) -> float:
    """Λ above, the largest eigenvalue of H_c⁻¹H_C; ``inf`` where H_c is singular."""
    low, high = reach.curvature_range(objective.X @ minimum.x)
    H = weighted_gram(objective, low)
    factor, failed = torch.linalg.cholesky_ex(H)
    if bool(failed) or not curvature_ends(H)[0] > 0.0:
        return math.inf
    half = torch.linalg.solve_triangular(factor, weighted_gram(objective, high), upper=False)
    whole = torch.linalg.solve_triangular(factor, half.T, upper=False)
    return max(1.0, float(torch.linalg.eigvalsh(0.5 * (whole + whole.T))[-1]) * (1.0 + 1e-12))


def stability_ratio(objective: Objective, x: Tensor, y: Tensor) -> float:
    """2(f(y) - f(x) - ⟨∇f(x), y - x⟩)/‖y - x‖²_{∇²f(x)}: stability means that it stays in [μ̃, L̃]; nan if undefined."""
    point, d = objective.at(x, curvature=True), y - x
    curvature = float(d @ point.hvp(d))
    remainder = objective.at(y).value - point.value - float(point.gradient @ d)
    scale = max(abs(point.value), 1e-300)
    if not (math.isfinite(remainder) and math.isfinite(curvature)):  # overflow says nothing of f
        return math.nan
    if abs(remainder) < max(1e-10, 1e3 * torch.finfo(x.dtype).eps) * scale:  # rounding would decide
        return math.nan
    return math.inf if curvature <= 0.0 else 2.0 * remainder / curvature


@dataclass(frozen=True)
class SampledStability:
    """Extremes of :func:`stability_ratio` over pairs: the true L̃ is at least ``upper``, the true μ̃ at most ``lower``.

    Never a proof of stability; it can refute it (``lower`` ≤ 0, or ``upper`` infinite because H vanished).
    """

    upper: float
    lower: float
    pairs: int


def sampled_stability(objective: Objective, minimum: Minimum, level: float) -> SampledStability:
    """Sample ten points of {f ≤ level} on random rays from w*, and compare forty pairs of them and w*."""
    generator = torch.Generator().manual_seed(0)
    points = [minimum.x]
    for index in range(10):
        u = torch.randn(objective.dimension, generator=generator, dtype=torch.float64).to(minimum.x)
        u = u / torch.linalg.vector_norm(u)
        reach = min(boundary(objective, minimum.x, u, level), 1e6)
        fraction = 1.0 if index % 2 else float(torch.rand((), generator=generator))
        points.append(minimum.x + fraction * reach * u)
    ratios: list[float] = []
    for _ in range(40):
        i, j = torch.randperm(len(points), generator=generator)[:2].tolist()
        ratios.append(stability_ratio(objective, points[i], points[j]))
    known = [ratio for ratio in ratios if not math.isnan(ratio)]
    if not known:
        return SampledStability(1.0, 1.0, 0)
    return SampledStability(max(1.0, *known), min(1.0, *known), len(known))
