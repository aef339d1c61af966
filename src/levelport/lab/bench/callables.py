"""A watched objective as other libraries ask for it: NumPy functions for SciPy, a differentiable one for torch.

Both keep the last point, so that calls at the same x share its evaluations: SciPy asks for value and gradient
separately, and nobody is charged twice for that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from levelport.lab.bench.watched import Watched
from levelport.objective import Point

Vector = NDArray[np.float64]


class NumpyFunctions:
    """``fun``, ``jac`` and ``hessp`` for ``scipy.optimize.minimize``."""

    def __init__(self, objective: Watched) -> None:
        self._last = _LastPoint(objective)

    def fun(self, x: Vector) -> float:
        """f(x)."""
        return self._at(x).value

    def jac(self, x: Vector) -> Vector:
        """∇f(x)."""
        gradient: Vector = self._at(x).gradient.numpy().copy()
        return gradient

    def hessp(self, x: Vector, v: Vector) -> Vector:
        """∇²f(x) v."""
        product: Vector = self._at(x).hvp(torch.tensor(v)).numpy().copy()
        return product

    def _at(self, x: Vector) -> Point:
        return self._last.at(torch.tensor(x))


class TorchFunction:
    """f as a function that torch can differentiate twice: the derivatives are those of the watched objective."""

    def __init__(self, objective: Watched) -> None:
        self._last = _LastPoint(objective)

    def __call__(self, x: Tensor) -> Tensor:
        value: Tensor = _Value.apply(x, self._last)
        return value


class _LastPoint:
    def __init__(self, objective: Watched) -> None:
        self._objective = objective
        self._point: Point | None = None

    def at(self, x: Tensor) -> Point:
        if self._point is None or not torch.equal(self._point.x, x):
            self._point = self._objective.at(x.detach().clone())
        return self._point


class _Value(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, last: _LastPoint) -> Tensor:
        ctx.save_for_backward(x)
        ctx.last = last
        return x.new_tensor(last.at(x).value)

    @staticmethod
    def backward(ctx: Any, *weights: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return weights[0] * _Gradient.apply(x, ctx.last), None


class _Gradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, last: _LastPoint) -> Tensor:
        ctx.save_for_backward(x)
        ctx.last = last
        with torch.enable_grad():
            return last.at(x).gradient.clone()

    @staticmethod
    def backward(ctx: Any, *vectors: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        with torch.enable_grad():  # a backward pass switches graphs off, and the inner objective may need one
            return ctx.last.at(x).hvp(vectors[0]), None
