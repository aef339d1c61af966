"""Hessian-stability constants: proved for logistic regression, sampled for anything else.

*Logistic regression.* φ(t) = log(1 + e^{-t}) satisfies |φ‴| ≤ φ″ (generalised self-concordance; Bach 2010, Karimireddy,
Stich and Jaggi 2018). Along a segment the Hessian therefore changes by at most e^{±D}, D = max_i |x_iᵀ(y - x)|, a
penalty only helping, and integrating twice,

    L̃(D) = 2(e^D - 1 - D)/D²,       μ̃(D) = 2(e^{-D} - 1 + D)/D².

*Reach of the sub-level set.* Let H* = ∇²f(w*), s = ‖w - w*‖_{H*} and ϱ = max_i ‖x_i‖_{H*⁻¹}, so that D(w*, w) ≤ ϱs.
The lower inequality at w* reads f(w) - f* ≥ s²μ̃(D)/2 ≥ (e^{-ϱs} - 1 + ϱs)/ϱ²,
because μ̃ decreases. On {f ≤ f(w_0)} hence

    ϱs ≤ t,     t the root of  e^{-t} - 1 + t = ϱ²δ_0,

which bounds D ≤ 2t between any two of its points and R ≤ t/(ϱ sqrt(λ_min(H*))), usually far below sqrt(2δ_0/μ).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from levelport.numerics.newton import Minimum
from levelport.objective import Objective
from levelport.objectives.linear import LinearObjective, LogisticLoss
from levelport.theory.rates_stable import Stability
from levelport.theory.sublevel import boundary


def self_concordant_stability(diameter: float) -> Stability:
    """L̃(D) and μ̃(D) above, for a set whose points differ by at most D in every xᵢᵀw."""
    D = diameter
    if not D >= 0.0:
        raise ValueError(f"diameter must not be negative, not {D}.")
    if D < 1e-3:  # the closed forms cancel; the series does not
        return Stability(1.0 + D / 3.0 + D**2 / 12.0 + D**3 / 50.0, max(0.0, 1.0 - D / 3.0))
    upper = math.inf if D > 700.0 else 2.0 * (math.expm1(D) - D) / D**2
    return Stability(upper, 2.0 * (math.expm1(-D) + D) / D**2)


@dataclass(frozen=True)
class Reach:
    """Upper bounds on the initial sub-level set of a logistic problem.

    ``diameter`` bounds max_i |x_iᵀ(v - w)| over two of its points, ``radius`` bounds ‖w - w*‖.
    """

    diameter: float
    radius: float


def logistic_reach(objective: LinearObjective, minimum: Minimum, initial_gap: float) -> Reach:
    """The reach of {f ≤ f* + initial_gap}, proved by generalised self-concordance (to the accuracy of ``minimum``)."""
    if not isinstance(objective.loss, LogisticLoss):
        raise ValueError("logistic_reach needs a logistic loss; use sampled_stability for other objectives.")
    X = objective.X
    weights = objective.loss.curvature(X @ minimum.x)
    H = X.T @ (weights[:, None] * X) / objective.samples
    H = H + 2.0 * objective.penalty * torch.eye(len(H), dtype=H.dtype, device=H.device)
    values, vectors = torch.linalg.eigh(H)
    if float(values[0]) <= 1e-14 * float(values[-1]):
        return Reach(math.inf, math.inf)
    whitened = (X @ vectors) / values.sqrt()
    size = float(torch.linalg.vector_norm(whitened, dim=1).max())
    t = _root(size**2 * initial_gap)
    return Reach(2.0 * t, t / (size * math.sqrt(float(values[0]))))


def _root(level: float) -> float:
    """The t ≥ 0 with e^{-t} - 1 + t = level, rounded up."""
    low, high = 0.0, 1.0 + level + math.sqrt(2.0 * level) * 2.0
    while high - low > 1e-13 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if math.expm1(-middle) + middle < level else (low, middle)
    return high


def stability_ratio(objective: Objective, x: Tensor, y: Tensor) -> float:
    """2(f(y) - f(x) - ⟨∇f(x), y - x⟩)/‖y - x‖²_{∇²f(x)}: stability means that it stays in [μ̃, L̃]; nan if undefined."""
    point, d = objective.at(x, curvature=True), y - x
    curvature = float(d @ point.hvp(d))
    remainder = objective.at(y).value - point.value - float(point.gradient @ d)
    scale = max(abs(point.value), 1e-300)
    if abs(remainder) < 1e-10 * scale:  # rounding would decide
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


def sampled_stability(
    objective: Objective, minimum: Minimum, level: float, *, pairs: int = 40, seed: int = 0
) -> SampledStability:
    """Sample points of {f ≤ level} on random rays from w*, and compare pairs of them and each with w*."""
    generator = torch.Generator().manual_seed(seed)
    points = [minimum.x]
    for index in range(max(2, pairs // 4)):
        u = torch.randn(objective.dimension, generator=generator, dtype=torch.float64).to(minimum.x)
        u = u / torch.linalg.vector_norm(u)
        reach = min(boundary(objective, minimum.x, u, level), 1e6)
        fraction = 1.0 if index % 2 else float(torch.rand((), generator=generator))
        points.append(minimum.x + fraction * reach * u)
    ratios: list[float] = []
    for _ in range(pairs):
        i, j = torch.randperm(len(points), generator=generator)[:2].tolist()
        ratios.append(stability_ratio(objective, points[i], points[j]))
    known = [ratio for ratio in ratios if not math.isnan(ratio)]
    if not known:
        return SampledStability(1.0, 1.0, 0)
    return SampledStability(max(1.0, *known), min(1.0, *known), len(known))
