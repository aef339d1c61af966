"""Several losses over the same live parameters, which take turns.

A :class:`~levelport.objectives.parameters.ParametersObjective` keeps the graph of the point that it evaluated last, as
long as nothing else writes to the parameters. Where a loss and a goal read the same module, each of them writes. So
whichever did not evaluate last loads its point afresh, which drops its graph.
"""

from __future__ import annotations

from torch import Tensor

from levelport.objective import Ledger, Objective, Point
from levelport.objectives.parameters import ParametersObjective


class Turn:
    """Which of the objectives wrote to the parameters last."""

    def __init__(self) -> None:
        self.holder: ParametersObjective | None = None

    def take(self, objective: ParametersObjective, x: Tensor) -> None:
        """Let ``objective`` evaluate at ``x``."""
        if self.holder is not objective:
            objective.load(x)
            self.holder = objective


class InTurn(Objective):
    """A loss over live parameters that shares them with others; the ledger is its own."""

    def __init__(self, objective: ParametersObjective, turn: Turn) -> None:
        self.objective, self.turn = objective, turn
        self.ledger = objective.ledger
        self.dimension, self.dtype, self.device = objective.dimension, objective.dtype, objective.device

    def at(self, x: Tensor, *, curvature: bool = False) -> Point:
        return _TurnPoint(x, self, self.objective.at(x, curvature=curvature))


class _TurnPoint(Point):
    inner: Point

    def __init__(self, x: Tensor, objective: InTurn, inner: Point) -> None:
        super().__init__(x, Ledger())  # the point inside does the counting
        self.inner = inner
        self._objective = objective

    def _here(self) -> Point:
        self._objective.turn.take(self._objective.objective, self.x)
        return self.inner

    def _evaluate_value(self) -> float:
        return self._here().value

    def _evaluate_gradient(self) -> tuple[float, Tensor]:
        gradient = self._here().gradient
        return self.inner.value, gradient

    def _evaluate_hvp(self, v: Tensor) -> Tensor:
        return self._here().hvp(v)
