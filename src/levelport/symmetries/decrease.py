"""Along a linear symmetry: the point from which the best gradient step is predicted to gain most.

Where w → D w leaves f unchanged, the gradient becomes D⁻ᵀ g and the Hessian D⁻ᵀ H D⁻¹. With u = (DᵀD)⁻¹ g,

    ‖g'‖⁴/(2 ⟨g', H' g'⟩) = ⟨g, u⟩²/(2 ⟨u, H u⟩),

the decrease of the best step along u, which is what a gradient step after D amounts to: a step preconditioned by
(DᵀD)⁻¹. So every evaluation is one product with the Hessian *at the start*, whatever D is, and its derivative is

    ∂/∂u log(⟨g, u⟩²/⟨u, H u⟩) = 2 g/⟨g, u⟩ - 2 H u/⟨u, H u⟩,

pulled back to the coordinates of the group by automatic differentiation of u. Ascended by projected gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from levelport.objective import Point


def ascend_decrease(
    start: Point,
    pull: Callable[[Tensor], Tensor],
    project: Callable[[Tensor], Tensor],
    coordinates: Tensor,
    *,
    reach: float,
    products: int,
) -> Tensor:
    """The coordinates with the largest predicted decrease found.

    Args:
        start: where g and H are taken.
        pull: coordinates ↦ u = (DᵀD)⁻¹ g, differentiable; zero coordinates are D = I.
        project: onto the box.
        reach: half-width of the box, which sets the first step.
        products: Hessian-vector products to spend; the start's own is free if it is known.
    """
    best, u = coordinates, start.gradient
    height, slope = _evaluate(start, u, start.hessian_gradient, pull, best)
    step = 0.25 * reach
    while products > 0 and slope is not None and step > 1e-3 * reach:
        steepest = float(slope.abs().max())
        if not (math.isfinite(steepest) and steepest > 0.0):
            break
        trial = project(best + (step / steepest) * slope)
        u = pull(trial).detach()
        image, products = start.hvp(u), products - 1
        value, trial_slope = _evaluate(start, u, image, pull, trial)
        if value > height:
            best, height, slope, step = trial, value, trial_slope, 2.0 * step
        else:
            step *= 0.25
    return best


def _evaluate(
    start: Point, u: Tensor, image: Tensor, pull: Callable[[Tensor], Tensor], coordinates: Tensor
) -> tuple[float, Tensor | None]:
    """log(⟨g, u⟩²/⟨u, H u⟩) and its derivative; (-∞, None) where the curvature is not positive."""
    along, curved = torch.stack([torch.dot(start.gradient, u), torch.dot(u, image)]).tolist()
    if not (math.isfinite(along) and math.isfinite(curved) and along > 0.0 and curved > 0.0):
        return -math.inf, None
    with torch.enable_grad():
        leaf = coordinates.detach().requires_grad_()
        sensitivity = 2.0 * start.gradient / along - 2.0 * image / curved
        (slope,) = torch.autograd.grad(torch.dot(sensitivity, pull(leaf)), leaf)
    return 2.0 * math.log(along) - math.log(curved), slope
