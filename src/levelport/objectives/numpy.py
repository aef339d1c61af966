"""Objectives given as NumPy callables in SciPy's convention: ``fun``, ``jac`` and ``hessp``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from levelport.objective import Objective, ObjectiveError, Point


class NumpyObjective(Objective):
    """f from ``fun(x, *args)``, ``jac(x, *args)`` and ``hessp(x, v, *args)`` on float64 arrays.

    ``jac=True`` means that ``fun`` returns value and gradient together, as in SciPy.
    """

    dtype = torch.float64
    device = torch.device("cpu")
    cheap_products = True
    """Whoever writes down ``hessp`` wants it called: solvers put no differences of gradients in its place."""

    def __init__(
        self,
        fun: Callable[..., Any],
        jac: Callable[..., Any] | bool,
        hessp: Callable[..., Any],
        dimension: int,
        args: tuple[Any, ...] = (),
    ) -> None:
        super().__init__()
        if not callable(hessp):
            raise ObjectiveError("hessp is missing: pass hessp=lambda x, v: (Hessian at x) times v.")
        if jac is not True and not callable(jac):
            raise ObjectiveError("jac is missing: pass the gradient function, or jac=True if fun returns (f, g).")
        self.fun = fun
        self.jac = jac
        self.hessp = hessp
        self.args = args
        self.dimension = dimension

    def at(self, x: Tensor, *, curvature: bool = False) -> Point:
        return _NumpyPoint(x, self)


class _NumpyPoint(Point):
    def __init__(self, x: Tensor, objective: NumpyObjective) -> None:
        super().__init__(x, objective.ledger)
        self._objective = objective
        self._together: tuple[float, Tensor] | None = None

    @property
    def _array(self) -> Any:
        """x as a copy of its own for every call: a callable that writes to its argument cannot move the point."""
        return self.x.detach().numpy().copy()

    def _evaluate_together(self) -> tuple[float, Tensor]:
        if self._together is None:
            both = self._objective.fun(self._array, *self._objective.args)
            if not isinstance(both, tuple | list) or len(both) != 2:
                raise ObjectiveError("fun must return value and gradient, (f, g), where jac=True; or pass jac itself.")
            self._together = _scalar(both[0]), self._vector(both[1], "jac")
        return self._together

    def _evaluate_value(self) -> float:
        if self._objective.jac is True:
            return self._evaluate_together()[0]
        return _scalar(self._objective.fun(self._array, *self._objective.args))

    def _evaluate_gradient(self) -> tuple[float | Tensor, Tensor]:
        jac = self._objective.jac
        if jac is True:
            return self._evaluate_together()
        assert not isinstance(jac, bool)
        gradient = self._vector(jac(self._array, *self._objective.args), "jac")
        return (self._value if self._value is not None else self._evaluate_value()), gradient

    def _evaluate_hvp(self, v: Tensor) -> Tensor:
        product = self._objective.hessp(self._array, v.detach().numpy().copy(), *self._objective.args)
        return self._vector(product, "hessp")

    def _vector(self, array: Any, name: str) -> Tensor:
        vector = torch.as_tensor(array, dtype=torch.float64).reshape(-1).clone()
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
