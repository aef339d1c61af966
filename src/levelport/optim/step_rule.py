"""The contract between :func:`levelport.minimize` and the methods: from a point to the next.

A step rule is a frozen description of a method; what a method remembers from step to step is its *state*, handed in
and out. The same arithmetic serves the torch optimizers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from levelport.objective import Objective, Point
from levelport.optim.first_step import StabilityLimit


def newton_size(curvature: float) -> float | None:
    """1/λ, the Newton step size at a KKT point of a teleport, where ∇²f ∇f = λ ∇f; None unless λ > 0."""
    return 1.0 / curvature if curvature > 0.0 else None


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

    safe_after_teleport: ClassVar[bool] = False
    """True if it may step where the gradient is large: it searches, or its step does not grow with the gradient."""

    @property
    def stability_limit(self) -> StabilityLimit:
        """Return the curvature above which its steps diverge, for methods with a fixed step size."""
        return StabilityLimit()

    def within(self, max_cost: float) -> StepRule:
        """The rule with its own inner iterations limited to so many gradient equivalents, at least one of them."""
        return self

    @abstractmethod
    def advance(self, objective: Objective, point: Point, state: Any, newton: float | None) -> Step:
        """The step from ``point``; ``state`` is None at first.

        ``newton`` is 1/λ where a teleport has just led to ``point``, λ the curvature along the gradient there, and the
        first step from it is the rule's to take.
        """

    learns: ClassVar[bool] = False
    """True if :meth:`learn` has a use for what teleports find out about f."""

    def learn(self, objective: Objective, state: Any, pairs: tuple[Tensor, Tensor]) -> Any:
        """The state with the pairs (v, ∇²f v), rows of two matrices, that a teleport has paid for."""
        return state
