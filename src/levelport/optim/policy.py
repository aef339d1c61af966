"""The one policy for teleports inside an optimizer: schedule → move → first step → undo → account.

:func:`levelport.minimize` and :class:`levelport.Teleporter` differ in where x lives, and in nothing else. Both ask, for
every step,

1. does the loss rise after the last move? (:meth:`UndoMonitor.rises`) Then they go back;
2. is a teleport due? (:meth:`TeleportPolicy.due`) The schedule decides, from the history of the run;
3. then they make the move (:meth:`TeleportPolicy.move`), within what the schedule allows, with the state of the solver
   from the move before, and say what became of it (:meth:`TeleportPolicy.made`).

All state is here: plain numbers, and the way back from the last move.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic

from levelport.objective import Objective, Point
from levelport.optim.first_step import FirstStep, StabilityLimit, take_first_step
from levelport.optim.history import History
from levelport.optim.schedules import Schedule
from levelport.optim.undo import Back, UndoMonitor
from levelport.solvers import Move, Solver, State, move_from


@dataclass(frozen=True)
class Taken:
    """A move and its first step, as far as they were made.

    Attributes:
        move: the teleport.
        step: where it ends.
    """

    move: Move
    step: FirstStep

    @property
    def descent(self) -> bool:
        """Whether the move is an ordinary step down, because no teleport was worth it."""
        return self.move.lower is not None


class TeleportPolicy(Generic[Back]):
    """When and how to teleport, and what came of it.

    Args:
        schedule, solver: when and how.
        first_step: whether the first step belongs to the move; else it is the method's, and moves are not undone.
        noisy: whether losses rise by themselves, from batch to batch.
        undoes: whether moves are watched; ranks that see different losses would decide differently.

    Attributes:
        history: what the schedule knows.
        monitor: the undo monitor.
        counts: what happened how often: "steps", "trials", "teleports", "descents", and why moves were refused.
        cost: gradient equivalents of all trials.
    """

    def __init__(
        self, schedule: Schedule, solver: Solver, *, first_step: bool, noisy: bool = False, undoes: bool = True
    ) -> None:
        self.schedule = schedule
        self.solver = solver
        self.first_step = first_step
        self.history = History()
        self.monitor: UndoMonitor[Back] = UndoMonitor(noisy=noisy)
        self.counts: Counter[str] = Counter()
        self.cost = 0.0
        self._undoes = undoes and first_step
        self._state: State = {}

    @property
    def undoes(self) -> bool:
        """Whether moves are watched and may be undone."""
        return self._undoes

    def due(self, tick: int | None, value: float, cost: float) -> bool:
        """Whether to teleport before the step from the loss ``value``, when the run has cost ``cost``.

        ``tick`` is the number of this step for the schedule; None where it has nothing to decide.
        """
        return self.monitor.grants(tick is not None and self.asks(tick, value, cost), value)

    def asks(self, tick: int, value: float, cost: float) -> bool:
        """Whether the schedule asks for a teleport; undone moves may make the policy ignore it."""
        if self.schedule.watches:
            self.history.observe(tick, value, cost)
        return self.schedule.due(tick, self.history)

    def move(
        self,
        objective: Objective,
        start: Point,
        limit: StabilityLimit,
        *,
        due: bool = True,
        max_cost: float = math.inf,
        max_seconds: float = math.inf,
    ) -> Taken:
        """Teleport from ``start`` and take the first step; nothing is made yet.

        Args:
            objective, start: f and the point.
            limit: of the method that goes on from there.
            due: whether the schedule asked for it, so that its limits apply.
            max_cost, max_seconds: what is left of the budget of the run.
        """
        limits = self.schedule.limits(self.history) if due else None
        solver = self.solver if limits is None else limits.of(self.solver)
        if max_cost < math.inf or max_seconds < math.inf:
            solver = solver.within(max_cost=max_cost, max_seconds=max_seconds)
        move = move_from(start, objective, solver, self._state, certify=False)
        self._state = move.state
        if self.first_step:
            return Taken(move, take_first_step(objective, start, move, limit))
        return Taken(move, FirstStep(move.lower or (move.point if move.result.moved else start)))

    def made(self, taken: Taken | None, moved: bool, cost: float, *, due: bool = True) -> None:
        """Account for a trial: what it led to (None: to an error), whether x moved, and what it cost."""
        self.cost += cost
        self.counts["trials"] += 1
        if taken is not None and moved:
            self.counts["descents" if taken.descent else "teleports"] += 1
        if due and self.schedule.watches:
            self.history.teleported(cost)
        self.monitor.forget()

    def watch(self, level: float, back: Back) -> None:
        """Watch the losses after a move from the loss ``level``; ``back`` leads to where it started."""
        if self._undoes:
            self.monitor.watch(level, back)

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers; the way back is the owner's to store."""
        return {
            "history": self.history.state_dict(),
            "monitor": self.monitor.state_dict(),
            "counts": dict(self.counts),
            "cost": self.cost,
            "solver": dict(self._state),
        }

    def load_state_dict(self, state: Mapping[str, Any], back: Back | None) -> None:
        """The inverse of :meth:`state_dict`."""
        self.history.load_state_dict(state["history"])
        self.monitor.load_state_dict(state["monitor"], back)
        self.counts = Counter(state["counts"])
        self.cost = state["cost"]
        self._state = dict(state["solver"])
