"""The one policy for teleports inside an optimizer: schedule → move → first step → undo → account.

:func:`levelport.minimize` and :class:`levelport.Teleporter` differ in where x lives, and in nothing else. Both ask, for
every step,

1. does the loss rise after the last move? (:meth:`UndoMonitor.rises`) Then they go back;
2. is a teleport due? (:meth:`TeleportPolicy.due`) The schedule decides, from the history of the run;
3. then they make the move (:meth:`TeleportPolicy.move`), within what the schedule allows, with the state of the solver
   from the move before, and say what became of it (:meth:`TeleportPolicy.made`).

All state is here: plain numbers, and the way back from the last move.

A move ends at no higher a loss (:mod:`levelport.optim.first_step`), but what the method does next may still go wrong:
its momentum points elsewhere, or its step size is too long for the new valley. :class:`UndoMonitor` looks at the fifty
losses that follow. Where one is above the level that was left, the move is undone. A loss that climbs again but stays
below the level is no reason to go back: the way back leads higher. After each undone move in a row the schedule is
ignored for 1, 3, 7, … requests.

Losses of mini-batches rise by themselves. How far is told by those before the move; where too few of them were seen, by
the first ones after it, and until then only a sharp rise counts. A level is a loss of the steps, never of something
else that was teleported on: only losses of one kind can be compared.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Generic, TypeVar

from levelport.objective import Objective, Point
from levelport.optim.first_step import StabilityLimit, Taken, take_first_step
from levelport.optim.schedules import History, Schedule
from levelport.solvers import Solver, State, move_from

_WATCHED = 50  # steps after a move in which losses must not rise above the level
_FEWEST = 5  # losses from which the noise of the run can be judged before a move
_SHARP = 3.0  # times the level: what a loss may rise above it while the noise is not known

KEPT = 20
"""Losses from which the noise of the run is judged, where so many are known."""

Back = TypeVar("Back")
"""Whatever leads back: parameters and state of an optimizer, a point and the state of a step rule."""


class UndoMonitor(Generic[Back]):
    """Watches the losses after the last move.

    Args:
        noisy: whether losses may rise by themselves, from batch to batch; f itself does not.

    Attributes:
        undone: moves taken back.
        back: what leads back from the last move; None where there is none to watch.
        level: the loss before it; where that is not known, the first one after it.
        steps: taken since.
    """

    def __init__(self, *, noisy: bool = False) -> None:
        self.undone = 0
        self.back: Back | None = None
        self.level, self.steps = math.nan, 0
        self._margin: float | None = None  # what the run jumps by itself; None while it is unknown
        self._noisy = noisy
        self._recent: deque[float] = deque(maxlen=KEPT)  # the last losses of the run, without a gap
        self._since = 0  # how many of them there were since the last teleport
        self._skip = 0  # requests of the schedule that are still ignored
        self._failures = 0  # in a row
        self._shown = False  # the loss before the step to come, or that there is none

    @property
    def watching(self) -> bool:
        """True if a move may still be undone, so that the next loss is asked for."""
        return self.back is not None

    def rises(self, value: float) -> bool:
        """Return True if the last move should be undone, now that the loss is ``value``."""
        if self.back is None:
            return False
        self._shown = True
        if self._margin is None and self._since >= KEPT:
            self._learn(self._jump())
        self.level = value if math.isnan(self.level) else self.level
        margin = _SHARP * abs(self.level) if self._margin is None else self._margin
        self.steps += 1
        if not value <= self.level + margin:
            return True
        if self.steps >= _WATCHED:
            self._failures = 0
            self.end()
        return False

    def _learn(self, jump: float | None) -> None:
        """How far the loss rises without a move."""
        self._margin = None if jump is None else 2.0 * max(0.0, jump) + 1e-6 * abs(self.level)

    def _jump(self) -> float | None:
        """The largest rise from one loss to the next: what the batches, or the optimizer, do without a teleport.

        Among the losses since the last teleport, where there are enough; None where there are not enough at all.
        """
        if len(self._recent) < _FEWEST:
            return None
        among = list(self._recent)[-max(self._since, _FEWEST) :]
        return max(later - earlier for earlier, later in pairwise(among))

    def blames_move(self, before: float, value: float) -> bool:
        """True if a rise to ``value`` is caused by the move: the loss at the point that was left is still the level.

        ``before`` is this step's loss there. Where it is higher, too, the data have changed.
        """
        if not math.isfinite(before):
            return False
        if self._margin is None or not math.isfinite(value):
            return not value <= before
        return before <= self.level + self._margin

    def undo(self) -> Back:
        """The way back from the last move, which counts as a failure."""
        back = self.back
        assert back is not None
        self.end()
        self.undone += 1
        self._failures += 1
        self._skip = 2**self._failures - 1
        return back

    def stepped(self) -> None:
        """The method took a step. One without a look at the loss before it counts as well."""
        if not self._shown:
            self._gap()
            self.steps += 1
            if self.steps >= _WATCHED:
                self.end()
        self._shown = False

    def end(self) -> None:
        """Watch no longer. The copy on the way back is as large as the parameters and the state."""
        self.back = None

    def allows(self, due: bool, value: float) -> bool:
        """Whether a teleport that is due before the step from ``value`` may take place."""
        self._shown = True
        if math.isfinite(value):
            self._recent.append(value)
            self._since += 1
        else:
            self._gap()
        if due and self._skip > 0:
            self._skip -= 1
            return False
        return due

    def watch(self, level: float, back: Back) -> None:
        """A move has been made, from the loss ``level`` of the steps; NaN where it was made on something else."""
        known = self._recent[-1] if self._recent else math.nan
        self._failures = 0 if self.watching else self._failures  # the move before this one has stood
        self.level, self.steps, self.back = known if math.isnan(level) else level, 0, back
        self._learn(self._jump() if self._noisy else 0.0)

    def forget(self) -> None:
        """After a teleport, whatever came of it, the losses before it say little about the noise after it."""
        self._since = 0

    def _gap(self) -> None:
        self._recent.clear()
        self._since = 0

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers; the way back is the owner's to store."""
        return {
            "undone": self.undone,
            "skip": self._skip,
            "failures": self._failures,
            "recent": list(self._recent),
            "since": self._since,
            "level": self.level,
            "steps": self.steps,
            "margin": self._margin,
        }

    def load_state_dict(self, state: Mapping[str, Any], back: Back | None) -> None:
        """The inverse of :meth:`state_dict`."""
        self.undone, self._skip, self._failures = state["undone"], state["skip"], state["failures"]
        self._recent, self._since = deque(state["recent"], maxlen=KEPT), state["since"]
        self.level, self.steps, self._margin, self.back = state["level"], state["steps"], state["margin"], back


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
        counts: "trials", and what came of them: "teleports", "descents".
        cost: gradient equivalents of all trials.
        declined: steps since the schedule last asked for a teleport.
        undoes: whether moves are watched and may be undone.
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
        self.declined = 0
        self.undoes = undoes and first_step
        self._state: State = {}

    def due(self, step: int | None, value: float, cost: float, judged: float | None = None) -> bool:
        """Decide whether to teleport before the step from the loss ``value``, when the run has cost ``cost``.

        ``step`` is its number; None where the schedule is not asked. ``judged`` is what an adaptive schedule goes by,
        if not the loss of the step.
        """
        asked = False
        if step is not None:
            if self.schedule.watches:
                self.history.observe(step, value if judged is None else judged, cost)
            asked = self.schedule.due(step, self.history)
        self.declined = 0 if asked else self.declined + 1
        return self.monitor.allows(asked, value)

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
        solver = self.schedule.limit(self.solver, self.history) if due else self.solver
        if max_cost < math.inf or max_seconds < math.inf:
            solver = solver.within(max_cost=max_cost, max_seconds=max_seconds)
        move = move_from(start, objective, solver, self._state, certify=False)
        self._state = move.state
        if self.first_step:
            return take_first_step(objective, start, move, limit)
        return Taken(move, move.lower or (move.point if move.result.moved else start), math.nan)

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
        if self.undoes:
            self.monitor.watch(level, back)

    def silence(self) -> str:
        """Why an adaptive schedule has declined up to now; empty where it has not."""
        asked = self.schedule.watches and self.declined > 0 and self.history.steps
        return self.schedule.declines_because(self.history) if asked else ""

    def summary(self, steps: int, spent: float) -> str:
        """What was tried, made, declined and undone in a run of so many steps, and what it cost."""
        made, share = self.counts, self.cost / spent if spent > 0.0 else 0.0
        lines = [
            f"schedule   {self.schedule}, {steps} steps",
            f"tried      {made['trials']} teleports",
            f"made       {made['teleports']} teleports, {made['descents']} descents; {self.monitor.undone} undone",
            f"cost       {self.cost:g} of {spent:g} gradient equivalents ({share:.0%})",
        ]
        if why := self.silence():
            lines.append(f"declined   for {self.declined} steps: {why}")
        return "\n".join(lines)

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers; the way back is the owner's to store."""
        return {
            "history": self.history.state_dict(),
            "monitor": self.monitor.state_dict(),
            "counts": dict(self.counts),
            "cost": self.cost,
            "declined": self.declined,
            "solver": dict(self._state),
        }

    def load_state_dict(self, state: Mapping[str, Any], back: Back | None) -> None:
        """The inverse of :meth:`state_dict`."""
        self.history.load_state_dict(state["history"])
        self.monitor.load_state_dict(state["monitor"], back)
        self.counts = Counter(state["counts"])
        self.cost, self.declined = state["cost"], state["declined"]
        self._state = dict(state["solver"])
