"""The second look at an end: how much a Newton step along the level would still gain.

At an end of the interval p = -μ g. With κ = 1/μ, W = ∇²(F + κh) and q = g + κp, the Newton step along the level

    min ⟨q, d⟩ + ½ dᵀWd   subject to   ⟨g, d⟩ = 0

predicts a fall of F + κh by δ = ½ ⟨q, W⁻¹q⟩ on the tangent plane, hence a gain of μ (δ + slack) in h. The step is found
by conjugate gradients with exact Hessian-vector products, preconditioned by B⁻¹ and projected on the tangent plane.
A direction of negative curvature means that h can be lowered further along the level, however small q is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from levelport.goals.chart import Region, Site
from levelport.goals.goal import Aim, LinearGoal, Reading
from levelport.goals.pairs import Pairs

_SOLVED = 1e-8  # fall of the energy of the residual at which the step is exact enough, however poor B is


@dataclass
class SecondLook:
    """The result of the Newton step.

    Attributes:
        gain: the gain in sign·h that it predicts; infinite where curvature is negative.
        pairs: directions and their products with W, which improve B.
    """

    gain: float
    pairs: list[tuple[Tensor, Tensor]] = field(default_factory=list)


def second_look(region: Region, aim: Aim, site: Site, reading: Reading, pairs: Pairs, *, products: int) -> SecondLook:
    """Newton's step along the level at ``site``, with at most ``products`` exact products."""
    p, g = reading.gradient, site.gradient
    v = pairs.solve(g)
    gv, pv = float(g @ v), float(p @ v)
    if not (gv > 0.0 and pv < 0.0):
        return SecondLook(math.inf)
    price = -pv / gv
    kappa = 1.0 / price

    def times(s: Tensor) -> Tensor:
        chart = region.chart
        moved = chart.push(s).to(region.objective.dtype)
        image = chart.pull(site.point.hvp(moved)) / region.unit
        if not isinstance(aim.goal, LinearGoal):
            image = image + (kappa * aim.sign) * chart.pull(reading.point.hvp(moved))
        return image

    def preconditioned(r: Tensor) -> Tensor:
        y = pairs.solve(r)
        return y - (float(g @ y) / gv) * v

    found = SecondLook(0.0)
    r = -(g + kappa * p)
    y = preconditioned(r)
    search, energy, decrease = y, float(r @ y), 0.0
    first = energy
    for _ in range(products):
        # B is what is in doubt, so a small energy in its metric is no reason to stop before it has fallen.
        if not energy > _SOLVED * first:
            break
        image = times(search)
        curvature = float(search @ image)
        size = math.sqrt(float(search @ search) * float(image @ image))
        if not math.isfinite(curvature) or curvature <= torch.finfo(site.point.x.dtype).eps * size:
            found.gain = math.inf
            return found
        found.pairs.append((search, image))
        length = energy / curvature
        decrease += 0.5 * length * energy
        r = r - length * image
        y = preconditioned(r)
        following = float(r @ y)
        search = y + (following / energy) * search
        energy = following
    found.gain = price * (decrease + max(energy, 0.0) + site.slack)
    return found
