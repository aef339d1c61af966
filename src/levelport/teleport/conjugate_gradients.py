"""The Newton system ∇²f s = -∇f by preconditioned conjugate gradients, truncated where it has done enough.

Each iteration spends one HVP. What it learns, directions p with their images ∇²f p, is handed back: the next solve is
preconditioned by it (Morales and Nocedal, "Automatic preconditioning by limited memory quasi-Newton updating", 2000).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from levelport.objective import Point


@dataclass
class NewtonStep:
    """A truncated solution of the Newton system.

    Attributes:
        step: s; zero if the very first direction had no positive curvature.
        decrease: what the quadratic model promises for s, ½ gᵀ(∇²f)⁻¹g when solved exactly.
        pairs: directions p and images ∇²f p, oldest first.
        negative: whether a direction without positive curvature ended the solve.
    """

    step: Tensor
    decrease: float = 0.0
    pairs: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    negative: bool = False


def newton_step(
    point: Point,
    *,
    tolerance: float,
    max_hvps: int,
    preconditioner: Callable[[Tensor], Tensor] | None = None,
    keep: int = 0,
) -> NewtonStep:
    """Solve ∇²f s = -∇f at ``point`` to a relative residual of ``tolerance``, with at most ``max_hvps`` products.

    ``keep`` pairs, the last ones, are returned.
    """
    gradient = point.gradient
    residual = -gradient
    result = NewtonStep(torch.zeros_like(gradient))
    precondition = preconditioner if preconditioner is not None else torch.clone
    search = precondition(residual)
    energy = float(torch.dot(residual, search))
    for _ in range(max_hvps):
        image = point.hvp(search)
        curvature, bound = torch.stack(
            [torch.dot(search, image), torch.linalg.vector_norm(search) * torch.linalg.vector_norm(image)]
        ).tolist()
        # Below the rounding error of the product the sign of the curvature means nothing.
        if not (curvature > torch.finfo(gradient.dtype).eps * bound and energy > 0.0):
            result.negative = True
            break
        length = energy / curvature
        result.step.add_(search, alpha=length)
        residual = torch.sub(residual, image, alpha=length)
        result.decrease += 0.5 * length * energy
        if keep:
            result.pairs.append((search, image))
            del result.pairs[:-keep]
        conjugate = precondition(residual)
        size, following = torch.stack([torch.linalg.vector_norm(residual), torch.dot(residual, conjugate)]).tolist()
        if size <= tolerance * point.gradient_norm:
            break
        search = torch.add(conjugate, search, alpha=following / energy)
        energy = following
    return result
