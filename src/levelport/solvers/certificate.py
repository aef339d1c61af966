"""How near a point is to a KKT point of the teleportation problem, from one Hessian-vector product.

With g = ∇f(x), n = g/‖g‖, H = ∇²f(x) and P = I - n nᵀ, the KKT conditions say H g = λ g: nothing along the level set
makes the gradient longer. Everything here follows from the one product H n, which is taken with the unit vector because
H g over- or underflows in float32 long before f does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from levelport.objective import Point
from levelport.vectors import read


@dataclass(frozen=True)
class Certificate:
    """The KKT conditions in a few numbers.

    * ``curvature``     λ = ⟨g, H g⟩ / ‖g‖²; 1/λ is the Newton step size at a KKT point
    * ``kkt_residual``  ‖P H g‖ / ‖g‖², the Riemannian gradient norm of ½ log ‖∇f‖²
    * ``alignment``     cos ∠(g, H g): 1 at a KKT point, and free of units
    * ``misalignment``  sin ∠(g, H g), the scale-free size of the residual; below 1e-8 the cosine does not show it

    At a KKT point below the level, where f is not convex, H g = 0: λ is 0 but for rounding, and both angles are any.
    """

    curvature: float
    kkt_residual: float
    alignment: float
    misalignment: float = math.inf

    @classmethod
    def at(cls, point: Point) -> Certificate:
        """Certify ``point``; costs one HVP if it has not been spent there yet."""
        size = point.gradient_norm
        if size == 0.0 or not math.isfinite(size):
            return cls.unknown()
        if point.product_sizes is None:
            normal = point.normal
            along, tangential = split(normal, point.hessian_normal_of(normal))
            curvature, residual = read([along], [tangential])
            point.product_sizes = curvature, residual, math.hypot(curvature, residual)
        return cls.from_sizes(point)

    @classmethod
    def from_sizes(cls, point: Point) -> Certificate:
        """The certificate of a point whose product has been taken."""
        assert point.product_sizes is not None
        curvature, residual, length = point.product_sizes
        # H n = 0 satisfies the KKT conditions with λ = 0: nothing pulls the gradient away from itself.
        alignment, misalignment = (curvature / length, residual / length) if length > 0.0 else (1.0, 0.0)
        return cls(curvature, residual / point.gradient_norm, alignment, misalignment)

    @classmethod
    def unknown(cls) -> Certificate:
        """Where there is nothing to certify: no gradient, or no finite one."""
        return cls(math.nan, math.nan, math.nan)

    @classmethod
    def averaged(cls, before: Point, after: Point) -> Certificate | None:
        """Certify ``before`` by a gradient step from it to ``after``, both evaluated: free of charge.

        ∇f(before) - ∇f(after) = η H̄ ∇f(before), H̄ the Hessian averaged along the step: exact for a quadratic, and as
        far from the certificate at ``before`` as the Hessian changes along the step. None if the step was no
        gradient step.
        """
        step, normal = before.x - after.x, before.normal
        image = before.gradient - after.gradient
        along = torch.dot(normal, image)
        lengths_of = [step, image - along * normal, image]
        advance, curvature, length, residual, size = read([torch.dot(step, normal), along], lengths_of)
        if not (length > 0.0 and advance > 0.999 * length and math.isfinite(size)):
            return None
        alignment, misalignment = (curvature / size, residual / size) if size > 0.0 else (1.0, 0.0)
        return cls(curvature / length, residual / length / before.gradient_norm, alignment, misalignment)

    def __str__(self) -> str:
        known = f"λ {self.curvature:.4g}"
        if math.isnan(self.alignment):
            return known
        return f"{known}, alignment {self.alignment:.6g}, KKT residual {self.kkt_residual:.2g}"

    def aligned(self, *, level_set: bool, tol: float) -> bool:
        """Whether H g is parallel to g to ``tol``, and its multiplier has the right sign: KKT conditions on the level.

        In the sub-level set that is λ ≥ 0: where λ < 0 the gradient grows into the interior.
        """
        return self.misalignment <= tol and (level_set or self.curvature >= 0.0)


@dataclass(frozen=True)
class Frame:
    """The geometry at a point with a gradient: its normal n, the direction of ascent of log ‖∇f‖, the certificate.

    On the level set, and at the level where λ ≥ 0, the ascent is P H n/‖g‖. Where λ < 0 the gradient grows into the
    interior of the sub-level set, and well inside there is no constraint to respect: there it is H n/‖g‖.
    """

    point: Point
    normal: Tensor
    ascent: Tensor
    on_level: bool
    ascent_norm: float
    image_norm: float
    certificate: Certificate

    @classmethod
    def of(cls, point: Point, normal: Tensor, ascent: Tensor, *, on_level: bool) -> Frame:
        """From the vectors, at a point whose product has been taken."""
        assert point.product_sizes is not None
        _, residual, length = point.product_sizes
        steepness = (residual if on_level else length) / point.gradient_norm
        return cls(point, normal, ascent, on_level, steepness, length, Certificate.from_sizes(point))

    @property
    def finite(self) -> bool:
        """Whether the HVP was usable."""
        return math.isfinite(self.image_norm)


def split(normal: Tensor, image: Tensor) -> tuple[Tensor, Tensor]:
    """λ = ⟨n, H n⟩, still on the device, and P H n."""
    along = torch.dot(normal, image)
    return along, torch.addcmul(image, normal, along, value=-1.0)


def is_kkt(point: Point, *, on_level: bool, tol: float, length: float) -> bool:
    """H n parallel to n, or zero off the level; or λ = 0: over ``length``, the problem's own, H n hardly changes g."""
    assert point.product_sizes is not None
    _, residual, image = point.product_sizes
    left = residual if on_level else image
    return left <= tol * image or image * length <= tol * point.gradient_norm
