"""Objectives given as NumPy callables in SciPy's convention: ``fun``, ``jac`` and ``hessp``.

What is not given is made of differences. Hessian-vector products come from gradients, one per product
(:mod:`levelport.objectives.differences`). Gradients come from values, one per variable,

    ∂f/∂xᵢ ≈ (f(x + hᵢ eᵢ) - f(x))/hᵢ,      hᵢ = √u max(1, |xᵢ|),      u the unit roundoff,

or from central differences with hᵢ = u^(1/3) max(1, |xᵢ|). Their errors are √u and u^(2/3) instead of u, so
the steps of products made from such gradients are longer, by u^(-1/4) and u^(-1/6), and the products good to about
four and five digits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from levelport import checks
from levelport.objective import Objective, ObjectiveError, Point
from levelport.objectives.differences import GradientDifferences

_FORWARD = torch.finfo(torch.float64).eps ** 0.5
_CENTRAL = torch.finfo(torch.float64).eps ** (1 / 3)
_LONGER = {"2-point": torch.finfo(torch.float64).eps ** (-1 / 4), "3-point": torch.finfo(torch.float64).eps ** (-1 / 6)}
"""What the steps of products are multiplied by where gradients are differences."""


class NumpyObjective(Objective):
    """f from ``fun(x, *args)`` and, where given, ``jac(x, *args)`` and ``hessp(x, v, *args)`` on float64 arrays.

    Args:
        fun: f, or f and its gradient where ``jac`` is True.
        jac: the gradient; True if ``fun`` returns value and gradient together, as in SciPy; None, False or "2-point"
            for forward differences of f, "3-point" for central ones, at twice the cost and with some eleven digits.
        hessp: Hessian-vector products; None for differences of gradients.
        dimension: the number of variables.
        args: passed to all of them after x.

    Example:
        >>> import numpy as np
        >>> f = NumpyObjective(lambda x: (x @ x, 2 * x), True, dimension=3)
        >>> f.at(torch.ones(3, dtype=torch.float64)).hvp(torch.ones(3, dtype=torch.float64)).round(decimals=5)
        tensor([2., 2., 2.], dtype=torch.float64)
        >>> f.cost.gradients, f.cost.hvps
        (2, 0)
    """

    dtype = torch.float64
    device = torch.device("cpu")
    cheap_products = True
    """``hessp`` is called where it is given, and there are differences already where it is not."""

    def __init__(
        self,
        fun: Callable[..., Any],
        jac: Callable[..., Any] | bool | str | None = None,
        hessp: Callable[..., Any] | None = None,
        dimension: int = 0,
        args: tuple[Any, ...] = (),
    ) -> None:
        super().__init__()
        checks.function("fun", fun, of="x")
        if not (callable(jac) or jac in (None, True, False, "2-point", "3-point")):
            raise ObjectiveError(f"jac must be a function, True, None, '2-point' or '3-point', not {jac!r}.")
        if hessp is not None and not callable(hessp):
            raise ObjectiveError("hessp must be a function of x and v, or None for differences of gradients.")
        checks.whole("dimension", dimension, at_least=1, why="it is the number of variables")
        self.fun = fun
        self.jac = jac
        self.hessp = hessp
        self.args = args
        self.dimension = dimension
        self.length = 1.0 if callable(jac) or jac is True else _LONGER["3-point" if jac == "3-point" else "2-point"]

    def at(self, x: Tensor, *, curvature: bool = False) -> Point:
        return _NumpyPoint(x, self)


def is_array(x: object) -> bool:
    """Return True if ``x`` is a NumPy array, or a list of numbers, which SciPy takes for one."""
    if isinstance(x, list | tuple):
        return len(x) > 0 and all(isinstance(entry, int | float) for entry in x)
    return not isinstance(x, Tensor) and hasattr(x, "__array_interface__")


def from_arrays(fun: Callable[..., Any] | Objective, x0: Any, jac: Any) -> tuple[Objective, Tensor]:
    """The objective and the start as a tensor, of NumPy callables and a NumPy start."""
    start = torch.as_tensor(x0, dtype=torch.float64, device="cpu").clone()
    if start.ndim != 1:
        raise ObjectiveError(f"x0 has the shape {tuple(start.shape)}; a NumPy start must be a vector: x0.reshape(-1).")
    if isinstance(fun, Objective):
        return fun, start
    return NumpyObjective(fun, jac, dimension=len(start)), start


def products(hess: Callable[..., Any]) -> Callable[..., Any]:
    """Products with ``hess(x, *args)``, evaluated once per point: it is expensive, and a teleport takes many there."""
    known: list[Any] = []

    def product(x: Any, v: Any, *args: Any) -> Any:
        if not known or not (known[0] == x).all():
            known[:] = x, hess(x.copy(), *args)
        return known[1] @ v

    return product


class _NumpyPoint(Point):
    def __init__(self, x: Tensor, objective: NumpyObjective) -> None:
        super().__init__(x, objective.ledger)
        self.shares_forward = objective.jac is True or callable(objective.jac)
        self._objective = objective

    @property
    def _array(self) -> Any:
        """x as a copy of its own for every call: a callable that writes to its argument cannot move the point."""
        return self.x.detach().numpy().copy()

    @cached_property
    def _together(self) -> tuple[float, Tensor]:
        both = self._objective.fun(self._array, *self._objective.args)
        if not isinstance(both, tuple | list) or len(both) != 2:
            raise ObjectiveError("fun must return value and gradient, (f, g), where jac=True; or pass jac itself.")
        return _scalar(both[0]), self._vector(both[1], "jac")

    def _evaluate_value(self) -> float:
        if self._objective.jac is True:
            return self._together[0]
        return _scalar(self._objective.fun(self._array, *self._objective.args))

    def _evaluate_gradient(self) -> tuple[float | Tensor, Tensor]:
        jac = self._objective.jac
        if jac is True:
            return self._together
        if not callable(jac):
            self._ledger.gradients -= 1  # the values that it is made of are counted instead
            return self.value, self._differences_of_values(central=jac == "3-point")
        gradient = self._vector(jac(self._array, *self._objective.args), "jac")
        return (self._value if self._value is not None else self._evaluate_value()), gradient

    def _differences_of_values(self, *, central: bool) -> Tensor:
        gradient = torch.empty_like(self.x)
        for index, entry in enumerate(self.x.tolist()):
            length = (_CENTRAL if central else _FORWARD) * max(1.0, abs(entry))
            above, f_above = self._value_beside(index, entry + length)
            below, f_below = self._value_beside(index, entry - length) if central else (entry, self.value)
            gradient[index] = (f_above - f_below) / (above - below)
        return gradient

    def _value_beside(self, index: int, entry: float) -> tuple[float, float]:
        """The entry as x stores it, and f where only this entry of x is different."""
        array = self._array
        array[index] = entry
        self._ledger.values += 1
        return float(array[index]), _scalar(self._objective.fun(array, *self._objective.args))

    def hvp(self, v: Tensor) -> Tensor:
        if self._objective.hessp is not None:
            return super().hvp(v)
        return GradientDifferences(self._objective, length=self._objective.length).around(self).hvp(v)

    def _evaluate_hvp(self, v: Tensor) -> Tensor:
        assert self._objective.hessp is not None
        product = self._objective.hessp(self._array, v.detach().numpy().copy(), *self._objective.args)
        return self._vector(product, "hessp")

    def _vector(self, array: Any, name: str) -> Tensor:
        vector = torch.as_tensor(array, dtype=torch.float64, device="cpu").reshape(-1).clone()
        if vector.numel() != self.x.numel():
            raise ObjectiveError(
                f"{name} returned {vector.numel()} entries for an x of {self.x.numel()}; they must agree."
            )
        return vector


def _scalar(value: Any) -> float:
    """``value`` as a number; SciPy lets an array of one entry be one, ``float`` does not."""
    try:
        return float(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ObjectiveError(
            f"fun returned a {type(value).__name__} that is no real number; it must return a scalar "
            "(or (f, g) with jac=True)."
        ) from error
