"""The Newton system ∇²f s = -∇f by conjugate gradients, truncated where it has done enough. One HVP per iteration."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from levelport.objective import Point


@dataclass
class NewtonStep:
    """A truncated solution of the Newton system.

    Attributes:
        step: s; zero if the very first direction had no positive curvature.
        decrease: what the quadratic model promises for s, ½ gᵀ(∇²f)⁻¹g when solved exactly.
        negative: whether a direction of negative curvature ended the solve; one that is flat ends it, too.
    """

    step: Tensor
    decrease: float = 0.0
    negative: bool = False

    def or_downhill(self, gradient: Tensor) -> Tensor:
        """s, or -∇f where the solve found nothing: a direction of descent in either case."""
        return self.step if self.decrease > 0.0 else -gradient


def newton_step(point: Point, *, tolerance: float, max_hvps: int) -> NewtonStep:
    """Solve ∇²f s = -∇f at ``point`` to a relative residual of ``tolerance``, with at most ``max_hvps`` products."""
    residual = -point.gradient
    result = NewtonStep(torch.zeros_like(residual))
    search, energy = residual, point.gradient_norm**2
    for _ in range(max_hvps):
        image = point.hvp(search)
        curvature, bound = torch.stack(
            [torch.dot(search, image), torch.linalg.vector_norm(search) * torch.linalg.vector_norm(image)]
        ).tolist()
        noise = torch.finfo(residual.dtype).eps * bound  # below it the sign of the curvature means nothing
        if not curvature > noise:
            result.negative = curvature < -noise
            break
        length = energy / curvature
        result.step.add_(search, alpha=length)
        residual = torch.sub(residual, image, alpha=length)
        result.decrease += 0.5 * length * energy
        following = float(torch.dot(residual, residual))
        if following <= (tolerance * point.gradient_norm) ** 2:
            break
        search = torch.add(residual, search, alpha=following / energy)
        energy = following
    return result
