"""A quadratic model of f in a Krylov space, built from Hessian-vector products.

m steps of the Lanczos process on H = ∇²f(x), started at g = ∇f(x), give an orthonormal basis Q of
span{g, Hg, …, Hᵐ⁻¹g} and the tridiagonal T = Qᵀ H Q. With T = U diag(θ) Uᵀ and c = ‖g‖ Uᵀe₁ the model along the Ritz
vectors v_i = Q u_i is separable,

    f(x + Σ a_i v_i) ≈ f(x) + Σ c_i a_i + ½ θ_i a_i²,

so that its constrained minimiser and its largest gradient are closed forms. Rows are added one HVP at a time; the basis
is kept orthonormal by explicit re-orthogonalisation, because the extreme Ritz pairs are what is wanted.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from levelport.objective import Point


class KrylovModel:
    """The Lanczos model of f around ``point``, at most ``capacity`` basis vectors."""

    def __init__(self, point: Point, capacity: int) -> None:
        self.point = point
        self.capacity = min(capacity, point.x.numel())
        self._basis = point.gradient.new_empty(self.capacity, point.x.numel())
        self._basis[0] = point.normal
        self._diagonal: list[float] = []
        self._off_diagonal: list[float] = []
        self._next_norm = math.inf
        self.ritz_values = torch.empty(0, dtype=torch.float64)
        self._ritz_basis = torch.empty(0, 0, dtype=torch.float64)

    @property
    def size(self) -> int:
        """Number of HVPs the model is made of."""
        return len(self._diagonal)

    @property
    def exhausted(self) -> bool:
        """Whether the space cannot grow: it is invariant under H, or the memory is full."""
        return self.size >= self.capacity or self.invariant

    @property
    def invariant(self) -> bool:
        """Whether H maps the space into itself, so that the model is exact for a quadratic f."""
        if self.size == 0:
            return False
        scale = max(abs(a) for a in self._diagonal)
        return self._next_norm <= 1e2 * torch.finfo(self._basis.dtype).eps * scale

    def extend(self) -> bool:
        """Add one basis vector by one HVP; False if the product was not finite."""
        m = self.size
        q = self._basis[m]
        # The first product is H n, which the certificate of the point shares.
        image = self.point.hessian_normal if m == 0 else self.point.hvp(q)
        spanned = self._basis[: m + 1]
        coefficients = spanned @ image
        image = image - spanned.T @ coefficients
        image = image - spanned.T @ (spanned @ image)  # twice is enough (Kahan and Parlett)
        diagonal, norm = torch.stack([coefficients[m], torch.linalg.vector_norm(image)]).tolist()
        if not (math.isfinite(diagonal) and math.isfinite(norm)):
            return False
        self._diagonal.append(diagonal)
        self._off_diagonal.append(norm)
        self._next_norm = norm
        if not self.exhausted:
            self._basis[m + 1] = image / norm
        self._diagonalise()
        return True

    def _diagonalise(self) -> None:
        tridiagonal = torch.diag(torch.tensor(self._diagonal, dtype=torch.float64))
        if self.size > 1:
            off = torch.tensor(self._off_diagonal[: self.size - 1], dtype=torch.float64)
            tridiagonal += torch.diag(off, 1) + torch.diag(off, -1)
        self.ritz_values, self._ritz_basis = torch.linalg.eigh(tridiagonal)

    @property
    def slopes(self) -> Tensor:
        """c_i = ⟨g, v_i⟩."""
        return self.point.gradient_norm * self._ritz_basis[0]

    @property
    def largest(self) -> float:
        """θ_max."""
        return float(self.ritz_values[-1])

    def convex(self) -> bool:
        """Whether all Ritz values are safely positive."""
        floor = 1e1 * torch.finfo(self._basis.dtype).eps * float(self.ritz_values.abs().max())
        return float(self.ritz_values[0]) > floor

    def descent(self, radius: float = math.inf) -> tuple[Tensor, float]:
        """The minimiser of the model within ``radius``, in Ritz coordinates, and the decrease that it predicts.

        a_i = -c_i / (θ_i + σ) with the least σ ≥ 0 that makes θ + σ positive and keeps the step inside.
        """
        theta, c = self.ritz_values, self.slopes
        shift = 0.0
        if not self.convex():
            # Just right of the pole; a finite radius moves it further.
            shift = max(0.0, -float(theta[0])) + 1e-6 * float(theta.abs().max())
        step = -c / (theta + shift)
        if float(step.norm()) > radius:
            low, high = shift, shift + float(c.norm()) / radius
            for _ in range(60):
                shift = 0.5 * (low + high)
                step = -c / (theta + shift)
                low, high = (shift, high) if float(step.norm()) > radius else (low, shift)
                if high - low <= 1e-3 * high:
                    break
            step = -c / (theta + high)
        decrease = -float(c @ step + 0.5 * (theta * step) @ step)
        return step, decrease

    def lift(self, coordinates: Tensor) -> Tensor:
        """Σ a_i v_i as a vector of the full space."""
        weights = (self._ritz_basis @ coordinates).to(self._basis)
        return self._basis[: self.size].T @ weights

    def project(self, v: Tensor) -> Tensor:
        """⟨v_i, v⟩, the Ritz coordinates of the part of ``v`` inside the space."""
        return self._ritz_basis.T @ (self._basis[: self.size] @ v).to(self._ritz_basis)

    def steepest(self) -> Tensor:
        """v_max, the Ritz vector of the largest Ritz value."""
        unit = torch.zeros_like(self.ritz_values)
        unit[-1] = 1.0
        return self.lift(unit)

    def predicted_norm(self) -> float:
        """sqrt(2 θ_max · decrease): the largest gradient norm that the model sees on its level set."""
        _, decrease = self.descent()
        return math.sqrt(max(0.0, 2.0 * self.largest * decrease)) if self.convex() else math.nan
