"""The initial sub-level set {f ≤ f(w_0)} of a convex function: how far it reaches from the minimizer."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from levelport.numerics.newton import Minimum
from levelport.objective import Objective
from levelport_lab.problems.spectrum import extremes


def boundary(objective: Objective, centre: Tensor, direction: Tensor, level: float) -> float:
    """The largest t with f(centre + t·direction) ≤ level, from inside; ``inf`` if the ray does not leave before 1e12.

    For convex f with f(centre) < level there is exactly one crossing.
    """

    def inside(t: float) -> bool:
        return objective.at(centre + t * direction).value <= level

    high = 1.0
    while inside(high):
        high *= 2.0
        if high > 1e12:
            return math.inf
    low = 0.0
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if inside(middle) else (low, middle)
        if high < 1e-300:
            break
    return low


def largest_distance(objective: Objective, minimum: Minimum, level: float) -> float:
    """A point of the sub-level set far from w*: a *lower* bound on R, ``inf`` if a ray never leaves the set.

    Ascends the reach r(u) of the ray w* + r u over unit vectors u. On the boundary f(w* + r(u)u) = level, so

        ∇ log r(u) = -(g - ⟨g, u⟩u)/⟨g, u⟩,     g = ∇f(w* + r(u)u).

    Maximizing a convex function is not a convex problem: four starts are tried (both ends of the flattest direction
    at the minimum, then random ones) and the best is returned. For a quadratic the first start is already the answer.
    """
    generator = torch.Generator().manual_seed(0)
    flattest = extremes(objective.at(minimum.x, curvature=True)).lowest_vector
    directions = [flattest, -flattest]
    for _ in range(2):
        u = torch.randn(objective.dimension, generator=generator, dtype=torch.float64).to(minimum.x)
        directions.append(u / torch.linalg.vector_norm(u))
    return max(_ascend(objective, minimum.x, u, level) for u in directions)


def _ascend(objective: Objective, centre: Tensor, u: Tensor, level: float, iterations: int = 60) -> float:
    reach = boundary(objective, centre, u, level)
    step = 1.0
    for _ in range(iterations):
        if math.isinf(reach):
            return reach
        g = objective.at(centre + reach * u).gradient
        outward = float(g @ u)
        if not outward > 0.0:
            return reach
        ascent = u - g / outward  # tangential: ⟨u, u⟩ - ⟨g, u⟩/⟨g, u⟩ = 0
        if float(torch.linalg.vector_norm(ascent)) < 1e-8:
            return reach
        while step > 1e-10:
            trial = u + step * ascent
            trial = trial / torch.linalg.vector_norm(trial)
            further = boundary(objective, centre, trial, level)
            if further > reach * (1.0 + 1e-12):
                u, reach, step = trial, further, 2.0 * step
                break
            step *= 0.5
        else:
            return reach
    return reach


def strongly_convex_radius(initial_gap: float, mu: float) -> float:
    """R ≤ sqrt(2δ_0/μ): from μ/2 ‖w - w*‖² ≤ f(w) - f*. Equality for a quadratic with smallest eigenvalue μ."""
    return math.inf if mu <= 0.0 else math.sqrt(2.0 * initial_gap / mu)
