"""The contract between :func:`levelport.minimize` and the methods: from a point to the next.

A step rule is a frozen description of a method; what a method remembers from step to step is its *state*, handed in
and out. The same arithmetic serves the torch optimizers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

from levelport.objective import Objective, Point
from levelport.solvers import TeleportResult


@dataclass(frozen=True)
class Step:
    """What a step rule hands back.

    Attributes:
        point: the next point; None if no acceptable step was found.
        state: what the rule wants to see again.
        size: the step size, for the record.
    """

    point: Point | None
    state: Any
    size: float


class StepRule(Protocol):
    """One method of descent."""

    def advance(self, objective: Objective, point: Point, state: Any, teleport: TeleportResult | None) -> Step:
        """The step from ``point``; ``state`` is None at first, ``teleport`` what has just led to ``point``, if any."""


def newton_step_size(curvature: float) -> float | None:
    """1/λ, the Newton step size at a KKT point of the teleport, where ∇²f ∇f = λ ∇f; None unless λ > 0."""
    return 1.0 / curvature if curvature > 0.0 else None


def after_teleport(teleport: TeleportResult | None) -> float | None:
    """:func:`newton_step_size` of the teleport that led here, if its first step is still to be taken."""
    if teleport is None or not math.isnan(teleport.first_step):
        return None
    return newton_step_size(teleport.curvature)
