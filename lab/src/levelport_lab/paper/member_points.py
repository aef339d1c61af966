"""Points of many members of a grid: values, gradients and Hessian-vector products, a row per member.

The counterpart of :class:`levelport.objective.Point` for the rows of a matrix W. What a product needs again from the
evaluation of the gradient is kept with the point, and moves with it when members leave or change places.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from levelport.objective import Point

Numbers = NDArray[np.float64]
Rows = NDArray[np.intp]


class MemberPoints(ABC):
    """f, ∇f, ‖∇f‖ at the rows of ``W``."""

    def __init__(self, W: Tensor, values: Numbers, gradients: Tensor) -> None:
        self.W = W
        self.values = values
        self.gradients = gradients
        self.sizes = row_norms(gradients)

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Where value and gradient are numbers and the gradient is not zero."""
        return np.isfinite(self.values) & np.isfinite(self.sizes) & (self.sizes > 0.0)

    @abstractmethod
    def hvps(self, V: Tensor) -> Tensor:
        """∇²f(w_j) v_j, as rows."""

    @classmethod
    @abstractmethod
    def assembled(cls, places: Sequence[tuple[Self, int]]) -> Self:
        """One member after the other, each from its row among some points."""

    def take(self, rows: Rows) -> Self:
        """Some of the members."""
        return self.assembled([(self, int(row)) for row in rows])

    @classmethod
    def _common(cls, places: Sequence[tuple[Self, int]]) -> Self:
        """What all kinds of points have; the rest is the subclass's."""
        some = object.__new__(cls)
        some.W = picked([(points.W, row) for points, row in places])
        some.gradients = picked([(points.gradients, row) for points, row in places])
        some.values = np.array([points.values[row] for points, row in places])
        some.sizes = np.array([points.sizes[row] for points, row in places])
        return some


class LogisticPoints(MemberPoints):
    """Logistic regression on ``signed``, the rows y_i (x_i, 1): with m = signed·w and s = σ(-m),

    f     = mean log(1 + exp(-m)) + reg ‖w‖²
    ∇f    = -signedᵀ s/n + 2 reg w
    ∇²f v = signedᵀ (s (1-s) signed·v)/n + 2 reg v
    """

    def __init__(self, W: Tensor, signed: Tensor, reg: float) -> None:
        margins = W @ signed.T
        values = F.logsigmoid(margins).mean(dim=1).neg_().add_(W.square().sum(dim=1), alpha=reg)
        self._signed, self._reg = signed, reg
        self._shares = torch.sigmoid_(margins.neg_())
        gradients = (self._shares @ signed).div_(-len(signed)).add_(W, alpha=2.0 * reg)
        super().__init__(W, values.double().numpy(), gradients)

    def hvps(self, V: Tensor) -> Tensor:
        weights = torch.addcmul(self._shares, self._shares, self._shares, value=-1.0)
        along = (V @ self._signed.T).mul_(weights)
        return (along @ self._signed).div_(len(self._signed)).add_(V, alpha=2.0 * self._reg)

    @classmethod
    def assembled(cls, places: Sequence[tuple[Self, int]]) -> Self:
        some = cls._common(places)
        some._signed, some._reg = places[0][0]._signed, places[0][0]._reg
        some._shares = picked([(points._shares, row) for points, row in places])
        return some


class SeparatePoints(MemberPoints):
    """Any objective, one member after the other."""

    def __init__(self, W: Tensor, points: Sequence[Point]) -> None:
        self._points = list(points)
        gradients = torch.stack([point.gradient for point in points]) if points else torch.empty_like(W)
        super().__init__(W, np.array([point.value for point in points], dtype=np.float64), gradients)

    def hvps(self, V: Tensor) -> Tensor:
        return torch.stack([point.hvp(v) for point, v in zip(self._points, V, strict=True)])

    @classmethod
    def assembled(cls, places: Sequence[tuple[Self, int]]) -> Self:
        some = cls._common(places)
        some._points = [points._points[row] for points, row in places]
        return some


def picked(places: Sequence[tuple[Tensor, int]]) -> Tensor:
    """One row after the other, each from its tensor, in a single copy."""
    return torch.stack([rows[row] for rows, row in places])


def row_norms(rows: Tensor) -> Numbers:
    """The lengths of the rows; where their squares may leave the range, in double precision, which takes longer."""
    limits = torch.finfo(rows.dtype)
    lengths = torch.linalg.vector_norm(rows, dim=1).numpy().astype(np.float64)
    if ((limits.tiny < lengths * lengths) & (lengths * lengths < limits.max)).all():
        return lengths
    exact: Numbers = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).numpy()
    return exact


def column(numbers: Numbers, like: Tensor) -> Tensor:
    """A number per member, to be multiplied with rows."""
    return torch.from_numpy(numbers).to(like.dtype)[:, None]
