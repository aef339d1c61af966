"""The local condition of the SQP theorem at a KKT point: how large its step ρ may be, and how fast it then converges.

The paper's solver maximizes ½ log ‖∇f‖² over {f ≤ f(w)} with I/ρ in place of the Hessian of the Lagrangian

    ℒ(x) = -½ log ‖∇f(x)‖² + ν(f(x) - f(w)).

At a KKT point, with g = ∇f, H = ∇²f, Hg = λg and T = ∇³f[g], one finds ν = λ/‖g‖² and

    ∇²ℒ = (λH - H² - T + 2λ² gg'/‖g‖²)/‖g‖².

The theorem asks for a point that is second-order critical (∇²ℒ positive on the tangent space of the level set) and, for
linear convergence, ρ ≤ 1/λ_max(∇²ℒ). The normal direction is corrected by the linearized constraint at once, so the
errors that remain are tangential, and with the eigenvalues θ of ∇²ℒ on the tangent space they shrink by

    max |1 - ρθ| per iteration,        below 1 for 0 < ρ < 2/θ_max.

T v is a central difference of Hessian-vector products along g.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from levelport.objective import Objective, Point
from levelport.solvers.problem import Certificate
from levelport_lab.problems.spectrum import extremes_by_lanczos

_DENSE = 100
"""Up to this dimension the Lagrangian's Hessian is written out; each column costs four HVPs."""


@dataclass(frozen=True)
class LocalSQP:
    """The theorem's conditions at a KKT point.

    Attributes:
        multiplier: λ; strict complementarity asks for λ > 0.
        alignment: cos ∠(g, Hg): how nearly this is a KKT point.
        largest: λ_max(∇²ℒ) on the whole space.
        tangent_smallest, tangent_largest: θ_min and θ_max, on the tangent space of the level set; nan in one dimension,
            where the level set is made of isolated points and nothing is tangential.
        exact: whether eigenvalues are exact; Lanczos finds them from inside.
    """

    multiplier: float
    alignment: float
    largest: float
    tangent_smallest: float
    tangent_largest: float
    exact: bool

    @property
    def critical(self) -> bool:
        """True if the point is second-order critical with strict complementarity, which the theorem asks for."""
        if self.isolated:
            return self.multiplier > 0.0
        return self.multiplier > 0.0 and self.tangent_smallest > 1e-10 * abs(self.largest)

    @property
    def isolated(self) -> bool:
        """True if there is no tangent space: one dimension."""
        return math.isnan(self.tangent_smallest)

    @property
    def published_limit(self) -> float:
        """ρ ≤ 1/λ_max(∇²ℒ), the theorem's condition."""
        return 1.0 / self.largest if self.largest > 0.0 else math.inf

    @property
    def tangent_limit(self) -> float:
        """ρ < 2/θ_max, from which on SQP with a fixed ρ does not converge to this point."""
        return 2.0 / self.tangent_largest if self.tangent_largest > 0.0 else math.inf

    def rate(self, rho: float) -> float:
        """max |1 - ρθ|: the factor by which the error shrinks per iteration near the point; 0 in one dimension."""
        if self.isolated:
            return 0.0
        return max(abs(1.0 - rho * self.tangent_smallest), abs(1.0 - rho * self.tangent_largest))

    def sentence(self) -> str:
        """The finding in words."""
        if not self.multiplier > 0.0:
            return (
                "At the point reached the level holds nothing back (its multiplier is not positive), so the SQP "
                "theorem does not apply to it."
            )
        if not self.critical:
            return (
                "The point reached is not second-order critical along its level set, so the SQP theorem predicts no "
                "linear convergence to it."
            )
        if self.isolated:
            return (
                "The level set is made of isolated points: along it nothing is left to converge. The theorem's "
                f"condition on the steps of the paper's SQP is ρ ≤ {self.published_limit:.3g}."
            )
        best = self.rate(2.0 / (self.tangent_smallest + self.tangent_largest))
        speed = f", at best by a factor of {best:.3g} per iteration" if best > 1e-9 else ""
        return (
            f"The paper's SQP would converge linearly to the point reached with steps ρ ≤ {self.published_limit:.3g} "
            f"(the theorem's condition; along the level set ρ < {self.tangent_limit:.3g} is enough){speed}."
        )


def local_sqp_condition(objective: Objective, x: Tensor, *, products: int = 40) -> LocalSQP:
    """The condition at ``x``, which should be a KKT point: check ``alignment``."""
    point = objective.at(x, curvature=True)
    normal, size = point.normal, point.gradient_norm
    certificate = Certificate.at(point)
    shift = _difference_step(point)
    ahead, behind = (objective.at(x + sign * shift * normal, curvature=True) for sign in (1.0, -1.0))
    lam = certificate.curvature

    def lagrangian(v: Tensor) -> Tensor:
        image = point.hvp(v)
        third = (ahead.hvp(v) - behind.hvp(v)) * (size / (2.0 * shift))
        inner = lam * image - point.hvp(image) - third + 2.0 * lam**2 * torch.dot(normal, v) * normal
        return inner / size**2

    def tangential(v: Tensor) -> Tensor:
        v = v - torch.dot(normal, v) * normal
        image = lagrangian(v)
        return image - torch.dot(normal, image) * normal

    low, high, top, exact = _ends(lagrangian, tangential, normal, products)
    return LocalSQP(lam, certificate.alignment, top, low, high, exact)


def _difference_step(point: Point) -> float:
    """The step of central differences: ∛eps in units of ‖g‖/‖Hn‖, over which the gradient changes by its own size.

    No length of ours would do: x may be measured in any unit. Where ‖x‖ is much larger still, the shifted x must differ
    from x by more than rounding.
    """
    eps, distance = torch.finfo(point.x.dtype).eps, float(torch.linalg.vector_norm(point.x))
    image = float(torch.linalg.vector_norm(point.hessian_normal))
    length = point.gradient_norm / image if image > 0.0 else max(1.0, distance)
    return float(max(eps ** (1 / 3) * length, eps ** (2 / 3) * distance))


def _ends(
    whole: Callable[[Tensor], Tensor], tangential: Callable[[Tensor], Tensor], normal: Tensor, products: int
) -> tuple[float, float, float, bool]:
    """θ_min, θ_max on the tangent space, nan where there is none, and λ_max of the whole."""
    d = normal.numel()
    if d > _DENSE:
        ends = extremes_by_lanczos(tangential, normal, products, without=normal)
        return ends.smallest, ends.largest, extremes_by_lanczos(whole, normal, products).largest, False
    matrix = torch.stack([whole(column) for column in torch.eye(d, dtype=normal.dtype, device=normal.device)])
    matrix = 0.5 * (matrix + matrix.T)
    top = float(torch.linalg.eigvalsh(matrix)[-1])
    if d == 1:
        return math.nan, math.nan, top, True
    # An orthonormal basis of the tangent space: the null space of the normal.
    basis = torch.linalg.svd(normal[None, :]).Vh[1:]
    inside = torch.linalg.eigvalsh(basis @ matrix @ basis.T)
    return float(inside[0]), float(inside[-1]), top, True
