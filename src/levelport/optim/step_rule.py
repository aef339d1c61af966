"""The contract between :func:`levelport.minimize` and the methods: from a point to the next.

A step rule is a frozen description of a method; what a method remembers from step to step is its *state*, handed in
and out. The same arithmetic serves the torch optimizers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from levelport.objective import Objective, Point
from levelport.optim.first_step import UNLIMITED, StabilityLimit


@dataclass(frozen=True)
class Arrival:
    """The move that has just led to a point.

    Attributes:
        curvature: λ along the gradient there, if the first step is the rule's to take; NaN where it has been taken.
    """

    curvature: float = math.nan

    @property
    def newton_step(self) -> float | None:
        """1/λ, the Newton step size at a KKT point of the teleport, where ∇²f ∇f = λ ∇f; None unless λ > 0."""
        return 1.0 / self.curvature if self.curvature > 0.0 else None


@dataclass(frozen=True)
class Step:
    """The answer of a step rule.

    Attributes:
        point: the next point; None if no acceptable step was found.
        state: what the rule wants to see again.
        size: the step size, for the record.
    """

    point: Point | None
    state: Any
    size: float


class StepRule(ABC):
    """One method of descent."""

    @property
    def safe_after_teleport(self) -> bool:
        """True if it may step where the gradient is large: it searches, or its step does not grow with the gradient."""
        return False

    @property
    def stability_limit(self) -> StabilityLimit:
        """Return the curvature above which its steps diverge, for methods with a fixed step size."""
        return UNLIMITED

    def within(self, max_cost: float) -> StepRule:
        """The rule with its own inner iterations limited to so many gradient equivalents, at least one of them."""
        return self

    @abstractmethod
    def advance(self, objective: Objective, point: Point, state: Any, arrival: Arrival | None) -> Step:
        """The step from ``point``; ``state`` is None at first, ``arrival`` the move that has led to it, if any."""

    @property
    def learns(self) -> bool:
        """True if :meth:`learn` has a use for what teleports find out about f."""
        return False

    def learn(self, objective: Objective, state: Any, pairs: tuple[Tensor, Tensor]) -> Any:
        """The state with the pairs (v, ∇²f v), rows of two matrices, that a teleport has paid for."""
        return state
