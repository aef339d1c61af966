"""One instrument for all competitors: an objective that counts, times and stops.

Every value, gradient and HVP of a minimizer passes through :class:`Metered`. It writes a record whenever a gradient
has been evaluated (a value alone is a trial, not yet an iterate), and ends the run from inside when the target is
reached or the budget is spent. So no competitor is measured by a rule of its own.

:class:`NumpyFunctions` and :class:`TorchFunction` are the same objective as other libraries ask for it. Both keep the
last point, so that calls at the same x share its evaluations: SciPy asks for value and gradient separately, and is not
charged twice for that.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from levelport.objective import Objective, Point
from levelport_lab.engine.spec import Curve

T = TypeVar("T")
Vector = NDArray[np.float64]


class Enough(Exception):
    """The target is reached or the budget is spent."""


class Metered(Objective):
    """``inner`` with a ledger, a clock and a limit of its own.

    Methods are to treat it as a function of which they know nothing but evaluations, as functions by autograd are. So
    the ``cheap_products`` of a closed form, which is here to save time, are not passed on: Krylov models take
    differences of gradients in float64, unless a competitor says otherwise.

    Attributes:
        records: (gradient equivalents, value, seconds since the first evaluation) after every gradient.
        evaluation_seconds: spent inside evaluations of ``inner``; the rest of a run is the competitor's own work.
        done: whether :class:`Enough` has been raised.
    """

    inner: Objective

    def __init__(
        self,
        inner: Objective,
        *,
        target: float = -math.inf,
        max_cost: float = math.inf,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__()
        self.inner = inner
        self.target = target
        self.max_cost = max_cost
        self.clock = clock
        self.dimension, self.dtype, self.device = inner.dimension, inner.dtype, inner.device
        self.deterministic = inner.deterministic
        self.records: list[tuple[float, float, float]] = []
        self.evaluation_seconds = 0.0
        self.done = False
        self._began = math.nan

    def at(self, x: Tensor, *, curvature: bool = False) -> Point:
        return _MeteredPoint(x, self, curvature)

    @property
    def spent(self) -> float:
        """Gradient equivalents so far."""
        ledger = self.ledger  # not through a Cost: this runs at every evaluation
        return 0.5 * ledger.values + ledger.gradients + 2.0 * ledger.hvps

    def evaluate(self, evaluation: Callable[[], T]) -> T:
        """Run one evaluation on the clock; refuse once the budget is spent."""
        if self.done or self.spent > self.max_cost:
            self.done = True
            raise Enough
        began = self.clock()
        if math.isnan(self._began):
            self._began = began
        result = evaluation()
        self.evaluation_seconds += self.clock() - began
        return result

    @contextmanager
    def until_enough(self) -> Iterator[None]:
        """Run a method inside it: ends quietly with :class:`Enough`, and without the method's warnings."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # complaints about line searches are answered by the records
                yield
        except Exception:
            # TorchScript turns any exception into one of its own, so the type cannot be relied on.
            if not self.done:
                raise

    def note(self, value: float) -> None:
        """Write a record; stop if the target is reached."""
        self.records.append((self.spent, value, self.clock() - self._began))
        if value <= self.target:
            self.done = True
            raise Enough

    def best_so_far(self) -> dict[str, Curve]:
        """The records that improved on all before them, as curves for the store."""
        table = np.array(self.records, dtype=np.float64).reshape(-1, 3)
        values = np.where(np.isfinite(table[:, 1]), table[:, 1], np.inf)
        improved = np.empty(len(values), dtype=bool)
        improved[:1] = True
        improved[1:] = values[1:] < np.minimum.accumulate(values)[:-1]
        kept = table[improved]
        return {"gradient_equivalents": kept[:, 0], "value": kept[:, 1], "seconds": kept[:, 2]}


class _MeteredPoint(Point):
    """A point that asks the inner one, on the meter of the objective. The inner ledger is not read."""

    def __init__(self, x: Tensor, objective: Metered, curvature: bool) -> None:
        super().__init__(x, objective.ledger)
        self._objective = objective
        self._inner = objective.inner.at(x, curvature=curvature)
        self.shares_forward = self._inner.shares_forward

    def release(self) -> None:
        self._inner.release()

    def _evaluate_value(self) -> float:
        return self._objective.evaluate(lambda: self._inner.value)

    def _evaluate_gradient(self) -> tuple[float, Tensor]:
        gradient = self._objective.evaluate(lambda: self._inner.gradient)
        self._objective.note(self._inner.value)
        return self._inner.value, gradient

    def _evaluate_hvp(self, v: Tensor) -> Tensor:
        return self._objective.evaluate(lambda: self._inner.hvp(v))


class NumpyFunctions:
    """``fun``, ``jac`` and ``hessp`` for ``scipy.optimize.minimize``."""

    def __init__(self, objective: Objective) -> None:
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
    """f as a function that torch can differentiate twice: the derivatives are those of the metered objective."""

    def __init__(self, objective: Metered) -> None:
        self._last = _LastPoint(objective)

    def __call__(self, x: Tensor) -> Tensor:
        value: Tensor = _Value.apply(x, self._last)
        return value


class _LastPoint:
    def __init__(self, objective: Objective) -> None:
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
