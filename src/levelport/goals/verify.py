"""The second look at an end, with the exact Hessian there: what a Newton step along the level would still gain.

At an end of the interval p = -μ g. With κ = 1/μ, W = ∇²(F + κh) and q = g + κp, the Newton step along the level

    min ⟨q, d⟩ + ½ dᵀWd   subject to   ⟨g, d⟩ = 0

predicts a fall of F + κh by δ = ½ ⟨q, W⁻¹q⟩ on the tangent plane, hence a gain of μ (δ + slack) in h. If the least
curvature of W on that plane is negative, h can be lowered further along the level, however small q is. If it is small
beside 1, which is the curvature at the minimizer, the end is the top of a shallow hill, and a farther one may lie
behind it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from levelport.goals.chart import Region, Site
from levelport.goals.goal import Aim, LinearGoal, Reading
from levelport.numerics.newton import hessian_by_columns
from levelport.objective import Point
from levelport.vectors import all_finite

_ROUNDING = 16.0  # errors of the least curvature, in units of eps × dimension × the largest, from which it is known


class SecondLook(NamedTuple):
    """The gain in sign·h that the Newton step predicts, and the least curvature along the level with its direction.

    The gain is infinite where the least curvature is negative, or zero as far as its digits tell.
    """

    gain: float
    least: float
    softest: Tensor


def second_look(region: Region, aim: Aim, site: Site, reading: Reading) -> SecondLook | None:
    """Newton's step along the level at ``site``; None where p and g do not oppose each other."""
    p, g = reading.gradient, site.gradient
    gg, pg = float(g @ g), float(p @ g)
    if not (gg > 0.0 and pg < 0.0):
        return None
    price = -pg / gg
    if not 0.0 < price < math.inf:
        return None

    def pulled(point: Point) -> Tensor:
        T = region.chart.matrix
        assert isinstance(T, Tensor)
        H = T.T @ hessian_by_columns(point).to(T) @ T
        return 0.5 * (H + H.T)

    W = pulled(site.point) / region.unit
    if not isinstance(aim.goal, LinearGoal):
        W = W + (aim.sign / price) * pulled(reading.point)
    if not all_finite(W.reshape(-1)):
        return None
    plane = torch.linalg.svd(g[None])[2][1:].T
    e, V = torch.linalg.eigh(plane.T @ W @ plane)
    q = V.T @ (plane.T @ (g + p / price))
    least = float(e[0]) if len(e) else 1.0
    if len(e) and abs(least) <= _ROUNDING * torch.finfo(site.point.x.dtype).eps * len(e) * float(e[-1]):
        least = 0.0
    gain = price * (0.5 * float((q * q / e).sum()) + site.slack) if least > 0.0 else math.inf
    return SecondLook(gain, least, plane @ V[:, 0] if len(e) else torch.zeros_like(g))
