"""Convex quadratics of any spectrum, for which everything is known in closed form.

    f(w) = ½ (w - w*)ᵀ H (w - w*) + f*,     H = Q diag(λ) Qᵀ.

The sub-level set is an ellipsoid; the gradient norm is largest at both ends of its *shortest* axis (Mishkin, Bietti and
Gower, section 2: there the gradient is an eigenvector of H with eigenvalue λ_max):

    w⁺ = w* ± sqrt(2 (f(w) - f*) / λ_max) v_max,     ‖∇f(w⁺)‖ = sqrt(2 λ_max (f(w) - f*)).
"""

from __future__ import annotations

import torch
from torch import Tensor

from levelport.objective import Objective, ObjectiveError, Point
from levelport_lab.problems.models import check_seed


class Quadratic(Objective):
    """f(w) = ½ (w - w*)ᵀ H (w - w*) + f* for a symmetric H given by eigenvalues and eigenvectors."""

    deterministic = True

    def __init__(self, eigenvalues: Tensor, eigenvectors: Tensor, minimizer: Tensor, minimum: float = 0.0) -> None:
        super().__init__()
        if bool((eigenvalues < 0).any()):
            raise ObjectiveError("the eigenvalues of a convex quadratic must not be negative.")
        self.eigenvalues = eigenvalues
        self.eigenvectors = eigenvectors
        self.hessian = (eigenvectors * eigenvalues) @ eigenvectors.T
        self.minimizer = minimizer
        self.minimum = minimum
        self.dimension = len(eigenvalues)
        self.dtype = eigenvalues.dtype
        self.device = eigenvalues.device

    @classmethod
    def random(cls, eigenvalues: Tensor, seed: int, minimum: float = 0.0) -> Quadratic:
        """The given spectrum with random orthonormal eigenvectors and a Gaussian minimizer."""
        check_seed(seed)
        generator = torch.Generator().manual_seed(seed)
        d = len(eigenvalues)
        gaussian = torch.randn(d, d, generator=generator, dtype=torch.float64)
        orthonormal = torch.linalg.qr(gaussian).Q.to(eigenvalues)
        minimizer = torch.randn(d, generator=generator, dtype=torch.float64).to(eigenvalues)
        return cls(eigenvalues, orthonormal, minimizer, minimum)

    def at(self, x: Tensor, *, curvature: bool = False) -> Point:
        return _QuadraticPoint(x, self)


class _QuadraticPoint(Point):
    def __init__(self, x: Tensor, objective: Quadratic) -> None:
        super().__init__(x, objective.ledger)
        self._objective = objective
        self._image: Tensor | None = None

    def _evaluate_image(self) -> Tensor:
        """H (x - w*), which is the gradient and half of the value."""
        if self._image is None:
            self._image = self._objective.hessian @ (self.x - self._objective.minimizer)
        return self._image

    def _evaluate_value(self) -> Tensor:
        residual = self.x - self._objective.minimizer
        return 0.5 * torch.dot(residual, self._evaluate_image()) + self._objective.minimum

    def _evaluate_gradient(self) -> tuple[float | Tensor, Tensor]:
        return (self._value if self._value is not None else self._evaluate_value()), self._evaluate_image()

    def _evaluate_hvp(self, v: Tensor) -> Tensor:
        return self._objective.hessian @ v
