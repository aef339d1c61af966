"""Linear models in closed form: logistic, squared and softmax loss.

With rows xᵢ of the data matrix X, predictions Z = X W and a loss ℓ per sample,

    f(W)     = (1/n) Σᵢ ℓ(zᵢ, yᵢ) + penalty ‖W‖²
    ∇f(W)    = (1/n) Xᵀ R + 2 penalty W,             rᵢ = ∂ℓ(zᵢ, yᵢ)/∂zᵢ
    ∇²f(W)V  = (1/n) Xᵀ [D·(X V)] + 2 penalty V,      D = ∂²ℓ/∂z²  (diagonal, or a small block per sample)

Z, R and D are computed once per point and kept, so value, gradient and HVPs at one point share products with
X: a value takes one product, the gradient one more, each HVP two. A constant column of X is an intercept, and is
penalized like every other weight.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from levelport import checks
from levelport.objective import Objective, ObjectiveError, Point


class PointwiseLoss(ABC):
    """ℓ(z, y) per sample with its first two derivatives in z."""

    outputs: int = 1

    @abstractmethod
    def mean(self, z: Tensor) -> Tensor:
        """(1/n) Σ ℓ(zᵢ, yᵢ) as a 0-d tensor."""

    @abstractmethod
    def residual(self, z: Tensor) -> Tensor:
        """∂ℓ/∂z, in the shape of z."""

    @abstractmethod
    def curvature(self, z: Tensor) -> Tensor:
        """Return the part of ∂²ℓ/∂z² that :meth:`apply` needs."""

    def apply(self, curvature: Tensor, direction: Tensor) -> Tensor:
        """∂²ℓ/∂z² · direction, in the shape of z."""
        return curvature * direction


class LogisticLoss(PointwiseLoss):
    """ℓ = log(1 + exp(-y z)), y ∈ {-1, +1}."""

    def __init__(self, y: Tensor) -> None:
        if not bool(((y == 1) | (y == -1)).all()):
            raise ObjectiveError("the labels of a logistic loss must be -1 or +1. Map 0/1 labels by 2*y - 1.")
        self.y = y

    def mean(self, z: Tensor) -> Tensor:
        # softplus is linear above 20 in torch, which loses 2e-9 per sample there; logsigmoid is exact.
        return -F.logsigmoid(self.y * z).mean()

    def residual(self, z: Tensor) -> Tensor:
        return -self.y * torch.sigmoid(-self.y * z)

    def curvature(self, z: Tensor) -> Tensor:
        return torch.sigmoid(z) * torch.sigmoid(-z)


class SquaredLoss(PointwiseLoss):
    """ℓ = ½ (z - y)²."""

    def __init__(self, y: Tensor) -> None:
        self.y = y

    def mean(self, z: Tensor) -> Tensor:
        return 0.5 * (z - self.y).square().mean()

    def residual(self, z: Tensor) -> Tensor:
        return z - self.y

    def curvature(self, z: Tensor) -> Tensor:
        return z.new_ones(())


class SoftmaxLoss(PointwiseLoss):
    """ℓ = log Σ_k exp(z_k) - z_y for a class y; ∂²ℓ/∂z² = diag(p) - p pᵀ."""

    def __init__(self, y: Tensor, classes: int) -> None:
        rule = f"the labels of a softmax loss must be integers from 0 to {classes - 1}"
        if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
            raise ObjectiveError(f"{rule}, not of the dtype {y.dtype}. Convert them by y.long().")
        self.y = y.long()  # not all kinds of integers can be compared or be indices
        if bool(((self.y < 0) | (self.y >= classes)).any()):
            raise ObjectiveError(
                f"{rule}, not from {int(self.y.min())} to {int(self.y.max())}. Number the classes from 0, and pass how "
                "many there are."
            )
        self.outputs = classes

    def mean(self, z: Tensor) -> Tensor:
        return F.cross_entropy(z, self.y)

    def residual(self, z: Tensor) -> Tensor:
        residual = torch.softmax(z, dim=1)
        residual[torch.arange(len(z), device=z.device), self.y] -= 1.0
        return residual

    def curvature(self, z: Tensor) -> Tensor:
        return torch.softmax(z, dim=1)

    def apply(self, curvature: Tensor, direction: Tensor) -> Tensor:
        weighted = curvature * direction
        return weighted - curvature * weighted.sum(dim=1, keepdim=True)


class LinearObjective(Objective):
    """f(W) of a linear model, exact and without autograd.

    ``x`` is W flat: d entries, or d·classes (row by row) for softmax.

    Example:
        >>> X = torch.tensor([[1.0, 2.0], [3.0, -1.0]], dtype=torch.float64)
        >>> y = torch.tensor([1.0, -1.0], dtype=torch.float64)
        >>> objective = LinearObjective.logistic(X, y, penalty=0.1)
        >>> round(objective.at(torch.zeros(2, dtype=torch.float64)).value, 6)
        0.693147
    """

    deterministic = True
    cheap_products = True
    """A Hessian-vector product takes two products with X, no more than a gradient: solvers need no substitute."""

    def __init__(self, X: Tensor, loss: PointwiseLoss, *, penalty: float = 0.0) -> None:
        super().__init__()
        if X.ndim != 2 or X.numel() == 0:
            raise ObjectiveError(f"X must be a matrix with a row per sample, not of shape {tuple(X.shape)}.")
        if not X.is_floating_point():
            raise ObjectiveError(f"X has the dtype {X.dtype}; use a floating-point matrix: X.double().")
        self.X = X
        self.loss = loss
        self.penalty = checks.weight("penalty", penalty)
        self.samples, self.features = X.shape
        self.dimension = self.features * loss.outputs
        self.dtype, self.device = X.dtype, X.device

    @classmethod
    def logistic(cls, X: Tensor, y: Tensor, *, penalty: float = 0.0) -> LinearObjective:
        """Mean log(1 + exp(-y Xw)) + penalty ‖w‖², labels ±1."""
        return cls(X, LogisticLoss(_matching(X, y, X.dtype)), penalty=penalty)

    @classmethod
    def squared(cls, X: Tensor, y: Tensor, *, penalty: float = 0.0) -> LinearObjective:
        """Mean ½ (Xw - y)² + penalty ‖w‖²."""
        return cls(X, SquaredLoss(_matching(X, y, X.dtype)), penalty=penalty)

    @classmethod
    def softmax(cls, X: Tensor, y: Tensor, classes: int, *, penalty: float = 0.0) -> LinearObjective:
        """Mean cross entropy of softmax(XW) + penalty ‖W‖², integer labels."""
        return cls(X, SoftmaxLoss(_matching(X, y, y.dtype), classes), penalty=penalty)

    def at(self, x: Tensor, *, curvature: bool = False) -> Point:
        return _LinearPoint(x, self)

    def predict(self, x: Tensor, X: Tensor) -> Tensor:
        """X W: margins, predictions or logits for the rows of ``X``."""
        return X @ (x if self.loss.outputs == 1 else x.view(self.features, self.loss.outputs))


class _LinearPoint(Point):
    def __init__(self, x: Tensor, objective: LinearObjective) -> None:
        super().__init__(x, objective.ledger)
        self._objective = objective

    @cached_property
    def _predictions(self) -> Tensor:
        return self._objective.predict(self.x, self._objective.X)

    @cached_property
    def _curvature(self) -> Tensor:
        return self._objective.loss.curvature(self._predictions)

    def _evaluate_value(self) -> Tensor:
        o = self._objective
        value = o.loss.mean(self._predictions)
        return value + o.penalty * torch.dot(self.x, self.x) if o.penalty else value

    def _back(self, per_sample: Tensor, x: Tensor) -> Tensor:
        """(1/n) Xᵀ per_sample + 2 penalty x."""
        o = self._objective
        product = (o.X.T @ per_sample).reshape(-1).div_(o.samples)
        return product.add_(x, alpha=2.0 * o.penalty) if o.penalty else product

    def _evaluate_gradient(self) -> tuple[float | Tensor, Tensor]:
        value = self._value if self._value is not None else self._evaluate_value()
        return value, self._back(self._objective.loss.residual(self._predictions), self.x)

    def _evaluate_hvp(self, v: Tensor) -> Tensor:
        o = self._objective
        return self._back(o.loss.apply(self._curvature, o.predict(v, o.X)), v)


def _matching(X: Tensor, y: Tensor, dtype: torch.dtype) -> Tensor:
    """``y`` on the device of X, if it has a label per row."""
    if y.ndim != 1 or len(y) != len(X):
        raise ObjectiveError(
            f"y must hold one label for each of the {len(X)} rows of X, not {tuple(y.shape)}. Flatten a column by "
            "y.reshape(-1)."
        )
    return y.to(dtype=dtype, device=X.device)
