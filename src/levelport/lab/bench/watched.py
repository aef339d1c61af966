"""One instrument for all competitors: an objective that counts, times and stops.

Whoever minimises, every value, gradient and HVP passes through :class:`Watched`. It writes a record whenever a gradient
has been evaluated (a value alone is a trial, not yet an iterate), and ends the run from inside when the target is
reached or the budget is spent. So no competitor is measured by a rule of its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from torch import Tensor

from levelport.lab.engine.spec import Curve
from levelport.objective import Objective, Point

T = TypeVar("T")


class Enough(Exception):
    """The target is reached or the budget is spent."""


class Watched(Objective):
    """``inner`` with a ledger, a clock and a limit of its own.

    Attributes:
        records: (gradient equivalents, value, seconds since the first evaluation) after every gradient.
        evaluation_seconds: spent inside evaluations of ``inner``; the rest of a run is the competitor's own work.
        done: whether :class:`Enough` has been raised.
    """

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
        return _WatchedPoint(x, self, curvature)

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


class _WatchedPoint(Point):
    """A point that asks the inner one, under the watch of the objective. The inner ledger is not read."""

    def __init__(self, x: Tensor, objective: Watched, curvature: bool) -> None:
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
