"""Coordinates in which the problem has no units.

With H ≈ ∇²f(x̂) at the minimizer x̂ and a rise r, write x = x̂ + T z with T Tᵀ = r H⁻¹ and F = (f - f(x̂))/r. Then

    F(z) ≈ ½ ‖z‖²,   the region {f ≤ f(x̂) + r} is {F ≤ 1}, nearly the ball ‖z‖ ≤ √2,

and lengths, angles and tolerances in z mean the same whatever x, f and the quantity are measured in. H is brought to
unit diagonal before it is factorized, so units of single parameters do not enter its condition either. Eigenvalues of
the scaled matrix below a floor are raised to it: along them f is flat as far as its digits tell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from levelport.objective import Objective, Point

_LARGE = 10**6  # entries of x from which twenty pairs in float64 would fill the memory


def working_dtype(x: Tensor) -> torch.dtype:
    """Float64 where the device has it and memory allows: the algebra is small beside f, units may be anything."""
    return x.dtype if x.device.type == "mps" or x.numel() > _LARGE else torch.float64


@dataclass(frozen=True)
class Chart:
    """x = center + T z; T is a matrix, or a number that multiplies z.

    Attributes:
        center: x at z = 0.
        matrix: T.
        inverse: T⁻¹, as a matrix or a number.
        least: smallest eigenvalue of the Hessian scaled to unit diagonal; NaN where there is no matrix.
    """

    center: Tensor
    matrix: Tensor | float = 1.0
    inverse: Tensor | float = 1.0
    least: float = math.nan

    @classmethod
    def whitening(cls, center: Tensor, hessian: Tensor) -> Chart:
        """T from the Hessian at ``center``, as above, for a rise of 1."""
        H = hessian.to(working_dtype(center))
        D = H.diagonal().abs()
        D = torch.where(torch.finfo(H.dtype).tiny < D, D, torch.full_like(D, float(D.max()) or 1.0)).sqrt()
        e, V = torch.linalg.eigh(H / D[:, None] / D)
        raised = e.abs().clamp_min(1e3 * torch.finfo(center.dtype).eps * len(D))
        root = raised.rsqrt()
        T = (V * root) @ V.T / D[:, None]
        inverse = (V / root) @ V.T * D
        return cls(center, T, inverse, float(e[0]))

    @property
    def whitens(self) -> bool:
        """Whether T comes from a Hessian, so that lengths in z have a meaning."""
        return isinstance(self.matrix, Tensor)

    def point(self, z: Tensor) -> Tensor:
        """x, in the dtype of f."""
        moved = self.center.to(z.dtype) + self.push(z)
        return moved.to(self.center.dtype)

    def push(self, z: Tensor) -> Tensor:
        """T z."""
        return self.matrix @ z if isinstance(self.matrix, Tensor) else self.matrix * z

    def pull(self, gradient: Tensor) -> Tensor:
        """Tᵀ times a gradient in x: the gradient in z."""
        gradient = gradient.to(working_dtype(gradient))
        return self.matrix.T @ gradient if isinstance(self.matrix, Tensor) else self.matrix * gradient

    def coordinates(self, x: Tensor) -> Tensor:
        """z of the point x."""
        moved = x.to(working_dtype(x)) - self.center.to(working_dtype(x))
        return self.inverse @ moved if isinstance(self.inverse, Tensor) else self.inverse * moved


class Site:
    """A point of the region in the coordinates of a chart: z, F(z) and ∇F(z)."""

    def __init__(self, z: Tensor, point: Point, region: Region) -> None:
        self.z = z
        self.point = point
        self._region = region

    @property
    def value(self) -> float:
        """F(z) = (f(x) - base)/unit; NaN counts as +∞, since such a point is not in the region."""
        f = self.point.value
        return (f - self._region.base) / self._region.unit if not math.isnan(f) else math.inf

    @property
    def feasible(self) -> bool:
        """True if f(x) ≤ level, in the numbers of f itself, and no overflow where the level is infinite."""
        self._region.lowest.see(self)
        return self.point.value <= self._region.level and self.point.value < math.inf

    @property
    def excess(self) -> float:
        """(f(x) - level)/unit, +∞ where f is NaN."""
        f = self.point.value
        return (f - self._region.level) / self._region.unit if not math.isnan(f) else math.inf

    @property
    def slack(self) -> float:
        """The rise of F that is left."""
        return max(0.0, -self.excess)

    @cached_property
    def gradient(self) -> Tensor:
        """∇F(z)."""
        return self._region.chart.pull(self.point.gradient) / self._region.unit


class Lowest:
    """The lowest point met with F below ``threshold``: there the start was no minimizer."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self.site: Site | None = None

    def see(self, site: Site) -> None:
        """Remember ``site`` if it is lower than all before."""
        F = site.value
        if self.threshold > F and (self.site is None or self.site.value > F):
            self.site = site


@dataclass(frozen=True)
class Region:
    """{f ≤ level} seen in a chart; F = (f - base)/unit; ``lowest`` watches for points below the start."""

    objective: Objective
    chart: Chart
    base: float
    unit: float
    level: float
    lowest: Lowest = field(default_factory=lambda: Lowest(-math.inf))

    def at(self, z: Tensor) -> Site:
        """The site at z."""
        return Site(z, self.objective.at(self.chart.point(z)), self)
