"""Points of many members of a grid: values, gradients and Hessian-vector products, a row per member.

The counterpart of :class:`levelport.objective.Point` for the rows of a matrix W. What a product needs again from the
evaluation of the gradient is kept with the point, and moves with it when members leave or change places.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

Numbers = NDArray[np.float64]
Rows = NDArray[np.intp]


class MemberPoints(ABC):
    """f, ∇f, ‖∇f‖ at the rows of ``W``, with a penalty per row; ``losses`` is f in the precision of ``W``."""

    def __init__(self, W: Tensor, regs: Tensor, losses: Tensor, gradients: Tensor) -> None:
        self.W = W
        self.regs = regs
        self.losses = losses
        self.gradients = gradients

    @cached_property
    def values(self) -> Numbers:
        """f in double precision."""
        return self.losses.double().numpy()

    @cached_property
    def sizes(self) -> Numbers:
        """‖∇f‖."""
        return row_norms(self.gradients)

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
        some.regs = picked([(points.regs, row) for points, row in places])
        some.losses = picked([(points.losses, row) for points, row in places])
        some.gradients = picked([(points.gradients, row) for points, row in places])
        return some


class LogisticPoints(MemberPoints):
    """Logistic regression on ``signed``, the rows y_i (x_i, 1): with m = signed·w and s = σ(-m),

    f     = mean log(1 + exp(-m)) + reg ‖w‖²
    ∇f    = -signedᵀ s/n + 2 reg w
    ∇²f v = signedᵀ (s (1-s) signed·v)/n + 2 reg v
    """

    def __init__(self, W: Tensor, signed: Tensor, regs: Tensor) -> None:
        margins = W @ signed.T
        values = F.logsigmoid(margins).mean(dim=1).neg_().addcmul_(W.square().sum(dim=1), regs)
        self._signed = signed
        self._shares = torch.sigmoid_(margins.neg_())
        gradients = (self._shares @ signed).div_(-len(signed)).addcmul_(W, regs[:, None], value=2.0)
        super().__init__(W, regs, values, gradients)

    def hvps(self, V: Tensor) -> Tensor:
        weights = torch.addcmul(self._shares, self._shares, self._shares, value=-1.0)
        along = (V @ self._signed.T).mul_(weights)
        return (along @ self._signed).div_(len(self._signed)).addcmul_(V, self.regs[:, None], value=2.0)

    @classmethod
    def assembled(cls, places: Sequence[tuple[Self, int]]) -> Self:
        some = cls._common(places)
        some._signed = places[0][0]._signed
        some._shares = picked([(points._shares, row) for points, row in places])
        return some


def picked(places: Sequence[tuple[Tensor, int]]) -> Tensor:
    """One row after the other, each from its tensor, in a single copy."""
    first = places[0][0]
    if all(rows is first for rows, _ in places):
        return first[[row for _, row in places]]
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
