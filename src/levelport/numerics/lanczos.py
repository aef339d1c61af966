"""The Lanczos process, and the quadratic model of f that is made of it.

m steps of the Lanczos process on H = ∇²f(x), started at g = ∇f(x), give an orthonormal basis Q of
span{g, Hg, …, Hᵐ⁻¹g} and the tridiagonal T = Qᵀ H Q. With T = U diag(θ) Uᵀ and c = ‖g‖ Uᵀe₁ the model along the Ritz
vectors v_i = Q u_i is separable,

    f(x + Σ a_i v_i) ≈ f(x) + Σ c_i a_i + ½ θ_i a_i²,

so that its constrained minimizer and its largest gradient are closed forms. Rows are added one HVP at a time; the basis
is kept orthonormal by explicit re-orthogonalisation, because the extreme Ritz pairs are what is wanted.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from levelport.objective import Point
from levelport.vectors import norm, read


class Lanczos:
    """The Lanczos process on a symmetric product, started at a unit vector, with at most ``capacity`` basis vectors."""

    def __init__(self, product: Callable[[Tensor], Tensor], start: Tensor, capacity: int) -> None:
        self._product = product
        self.capacity = min(capacity, start.numel())
        self._basis = start.new_empty(self.capacity, start.numel())
        self._basis[0] = start
        self._diagonal: list[float] = []
        self._off_diagonal: list[float] = []
        self._remainder = start  # of the last product, outside the space
        self.ritz_values = torch.empty(0, dtype=torch.float64, device="cpu")
        self._ritz_basis = self.ritz_values.reshape(0, 0)

    @property
    def size(self) -> int:
        """Number of products the space is made of."""
        return len(self._diagonal)

    @property
    def exhausted(self) -> bool:
        """True if the space cannot grow: it is invariant, or the memory is full."""
        return self.size >= self.capacity or self.invariant

    @property
    def invariant(self) -> bool:
        """True if the matrix maps the space into itself."""
        if self.size == 0:
            return False
        scale = max(abs(a) for a in self._diagonal)
        return self._off_diagonal[-1] <= 1e2 * torch.finfo(self._basis.dtype).eps * scale

    def extend(self) -> bool:
        """Add one basis vector by one product; False if it was not finite."""
        m = self.size
        image = self._image(self._basis[m])
        spanned = self._basis[: m + 1]
        coefficients = spanned @ image
        image = torch.addmv(image, spanned.T, coefficients, alpha=-1.0)
        image.addmv_(spanned.T, spanned @ image, alpha=-1.0)  # twice is enough (Kahan and Parlett)
        diagonal, length = read([coefficients[m]], [image])
        if not (math.isfinite(diagonal) and math.isfinite(length)):
            return False
        self._diagonal.append(diagonal)
        self._off_diagonal.append(length)
        self._remainder = image
        if not self.exhausted:
            self._basis[m + 1] = image / length
        self._diagonalise()
        return True

    def _image(self, v: Tensor) -> Tensor:
        return self._product(v)

    def _diagonalise(self) -> None:
        tridiagonal = torch.diag(torch.tensor(self._diagonal, dtype=torch.float64, device="cpu"))
        if self.size > 1:
            off = tridiagonal.new_tensor(self._off_diagonal[: self.size - 1])
            tridiagonal += torch.diag(off, 1) + torch.diag(off, -1)
        self.ritz_values, self._ritz_basis = torch.linalg.eigh(tridiagonal)

    def lift(self, coordinates: Tensor) -> Tensor:
        """Σ a_i v_i as a vector of the full space."""
        weights = (self._ritz_basis @ coordinates).to(self._basis)
        return self._basis[: self.size].T @ weights

    def ritz_pairs(self) -> tuple[Tensor, Tensor]:
        """All v_i and H v_i as rows, in the order of the Ritz values.

        They need no further product: H Q = Q T + r eₘᵀ with the remainder r, so H v_i = θ_i v_i + r (eₘᵀ u_i).
        """
        u = self._ritz_basis.to(self._basis)
        vectors = u.T @ self._basis[: self.size]
        images = self.ritz_values.to(self._basis)[:, None] * vectors
        return vectors, images.addr_(u[-1], self._remainder)

    def ritz_vector(self, index: int) -> Tensor:
        """v_i, in the order of the Ritz values."""
        unit = torch.zeros_like(self.ritz_values)
        unit[index] = 1.0
        return self.lift(unit)


class KrylovModel(Lanczos):
    """The Lanczos model of f around ``point``, at most ``capacity`` basis vectors.

    Where the space is invariant, the model is exact for a quadratic f.
    """

    def __init__(self, point: Point, capacity: int) -> None:
        # Not a method of its own: a model that refers to itself would keep its basis until the next garbage collection.
        super().__init__(point.hvp, point.normal, capacity)
        self.point = point

    def _image(self, v: Tensor) -> Tensor:
        # The first product is H n, which the certificate of the point shares.
        return self.point.hessian_normal if self.size == 0 else super()._image(v)

    @property
    def slopes(self) -> Tensor:
        """c_i = ⟨g, v_i⟩."""
        return self.point.gradient_norm * self._ritz_basis[0]

    @property
    def largest(self) -> float:
        """θ_max."""
        return float(self.ritz_values[-1])

    def residual(self, coordinates: Tensor) -> float:
        """‖(H + σ) s + g‖ at a minimizer s of the model, from :meth:`descent`: all of it lies outside the space."""
        return self._off_diagonal[-1] * abs(float(self._ritz_basis[-1] @ coordinates))

    def convex(self) -> bool:
        """Return True if all Ritz values are safely positive."""
        floor = 1e1 * torch.finfo(self._basis.dtype).eps * float(self.ritz_values.abs().max())
        return float(self.ritz_values[0]) > floor

    def descent(self, radius: float = math.inf) -> tuple[Tensor, float]:
        """The minimizer of the model within ``radius``, in Ritz coordinates, and the decrease that it predicts.

        a_i = -c_i / (θ_i + σ) with the least σ ≥ 0 that makes θ + σ positive and keeps the step inside.
        """
        theta, c = self.ritz_values, self.slopes
        if radius == 0.0:  # derived from lengths that underflowed
            return torch.zeros_like(c), 0.0
        shift = 0.0
        if not self.convex():
            # Just right of the pole; a finite radius moves it further.
            shift = max(0.0, -float(theta[0])) + 1e-6 * float(theta.abs().max())
        step = -c / (theta + shift)
        if float(norm(step)) > radius:
            low, high = shift, shift + float(norm(c)) / radius
            for _ in range(60):
                shift = 0.5 * (low + high)
                step = -c / (theta + shift)
                low, high = (shift, high) if float(norm(step)) > radius else (low, shift)
                if high - low <= 1e-3 * high:
                    break
            step = -c / (theta + high)
        decrease = -float(c @ step + 0.5 * (theta * step) @ step)
        return step, decrease
