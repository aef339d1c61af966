"""When to teleport, and what a schedule can see of a run. The adaptive one is in :mod:`levelport.optim.affordable`.

A schedule is a frozen description. What it decides depends on the number of the step, from 0, and on the
:class:`History` alone, which is plain numbers: a run resumes from a checkpoint of those two.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from operator import sub
from typing import Any, ClassVar

from levelport import checks
from levelport.solvers import Solver

KEPT_TICKS = 512
"""Older ticks are forgotten; no schedule looks further back."""

JUMP_TICKS = 20
"""Plain ticks by which the noise of the losses is judged."""


@dataclass(frozen=True)
class Trial:
    """One teleport and the steps up to the next tick.

    Attributes:
        index: the tick at which it happened.
        cost: gradient equivalents of the teleport; of the whole tick once that is known.
        decrease: of f from before the teleport to the next tick; NaN until that is known.
        plain_rate: decrease of f per gradient equivalent of the plain steps before it; NaN if there were none.
        cost_before: the cost of the run when it began.
        scale: what losses are measured against there.
        jump: the largest rise between plain losses before it.
    """

    index: int
    cost: float
    decrease: float = math.nan
    plain_rate: float = math.nan
    cost_before: float = 0.0
    scale: float = 1.0
    jump: float = 0.0


class History:
    """Ticks and teleports of a run. A tick is one look at it, before the teleport of that step if there is one.

    Attributes:
        steps, values, costs: of each tick: the number of the step, f there, gradient equivalents spent up to it.
        trials: the teleports.
        product_cost: gradient equivalents of a Hessian-vector product, as the solver makes them.
        unit: of a gradient of the loss that is teleported on, in gradients of steps.
    """

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.values: list[float] = []
        self.costs: list[float] = []
        self.trials: list[Trial] = []
        self.product_cost = 1.0
        self.unit = 1.0

    def observe(self, index: int, value: float, cost: float) -> None:
        """Record a tick; completes the record of a teleport at the previous one."""
        if self.trials and self.steps and self.trials[-1].index == self.steps[-1]:
            # The cost of the tick, teleport and ordinary step together.
            completed = replace(self.trials[-1], cost=cost - self.costs[-1], decrease=self.values[-1] - value)
            self.trials[-1] = completed
        self.steps.append(index)
        self.values.append(value)
        self.costs.append(cost)
        if len(self.steps) > 2 * KEPT_TICKS:
            del self.steps[:-KEPT_TICKS], self.values[:-KEPT_TICKS], self.costs[:-KEPT_TICKS]

    def teleported(self, cost: float) -> None:
        """Record a teleport at the last tick, with its cost."""
        self.trials.append(
            Trial(
                self.steps[-1],
                cost,
                plain_rate=self.plain_rate(),
                cost_before=self.costs[-1],
                scale=self.scale,
                jump=jump_of(self.values[self.plain :][-JUMP_TICKS:]),
            )
        )

    @property
    def scale(self) -> float:
        """The scale of the losses: |f|, or the decrease so far where f may be negative."""
        now = self.values[-1]
        return max(now if now > 0.0 else self.values[0] - now, 1e-300)

    @property
    def plain(self) -> int:
        """The place of the first tick since the last teleport: from there on there were plain steps only."""
        return bisect_right(self.steps, self.trials[-1].index) if self.trials else 0

    def plain_rate(self, window: int = 10) -> float:
        """Decrease of f per gradient equivalent over the last ``window`` plain ticks; NaN before two of them.

        Where the last teleport left too few plain ticks, the rate known at that teleport is the best there is.
        """
        first = max(self.plain, len(self.steps) - window - 1)
        if len(self.steps) - first >= 2 and self.costs[-1] > self.costs[first]:
            return (self.values[first] - self.values[-1]) / (self.costs[-1] - self.costs[first])
        return self.trials[-1].plain_rate if self.trials else math.nan

    def fastest_rate(self, window: int, among: int) -> float:
        """The largest such rate over ``window`` ticks in a row among the last ``among`` plain ones.

        Progress comes in bursts. What a trial may cost is judged by this rate: just before a burst the mean is too low.
        """
        values, costs = self.values, self.costs
        rates = [
            (values[i] - values[i + window]) / (costs[i + window] - costs[i])
            for i in range(max(self.plain, len(values) - among - 1), len(values) - window)
            if costs[i + window] > costs[i]
        ]
        return max([*rates, self.plain_rate(window)])

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers in lists and dicts."""
        ticks = {"steps": list(self.steps), "values": list(self.values), "costs": list(self.costs)}
        return {**ticks, "trials": [asdict(trial) for trial in self.trials]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of :meth:`state_dict`."""
        self.steps, self.values, self.costs = (list(state[name]) for name in ("steps", "values", "costs"))
        self.trials = [Trial(**trial) for trial in state["trials"]]


def jump_of(values: list[float]) -> float:
    """The largest rise from one loss to the next: what batches, or the optimizer, do without a teleport."""
    return max([0.0, *map(sub, values[1:], values)])


@dataclass(frozen=True)
class Schedule:
    """Decides when to teleport. Those that are fixed in advance define :meth:`next`, adaptive ones :meth:`due`."""

    watches: ClassVar[bool] = False
    """True if the decision depends on losses."""

    def next(self, step: int) -> int | None:
        """The first step from this one on before which a teleport may take place; None where there is none left."""
        return step

    def due(self, step: int, history: History) -> bool:
        """Decide whether to teleport before this step. For adaptive schedules, ``history`` ends with it."""
        return self.next(step) == step

    def limit(self, solver: Solver, history: History) -> Solver:
        """``solver`` with what the teleport that is due may use."""
        return solver

    def declines_because(self, history: History) -> str:
        """The reason why no teleport was due for many steps; empty where that was decided in advance."""
        return ""


@dataclass(frozen=True)
class Never(Schedule):
    """Teleports only where your code calls for them."""

    def next(self, step: int) -> None:
        return None

    def __str__(self) -> str:
        return "never"


@dataclass(frozen=True)
class Every(Schedule):
    """Teleports before steps start, start + period, ... In epochs: ``Every(2 * len(loader))``.

    Example:
        >>> schedule = Every(50, start=5)
        >>> [step for step in range(120) if schedule.due(step, History())]
        [5, 55, 105]
        >>> print(schedule)
        every 50 steps from step 5
    """

    period: int
    start: int = 0

    def __post_init__(self) -> None:
        checks.whole("period", self.period, at_least=1, why="Never() switches teleports off")
        checks.whole("start", self.start, why="the first step is step 0")

    def next(self, step: int) -> int:
        return self.start if step <= self.start else step + (self.start - step) % self.period

    def __str__(self) -> str:
        rhythm = "every step" if self.period == 1 else f"every {self.period} steps"
        return f"{rhythm} from step {self.start}"


@dataclass(frozen=True)
class At(Schedule):
    """Teleports before the listed steps. ``At(0)`` teleports the initial point.

    Algorithm 1 of the paper has blocks of consecutive teleports: ``At([*range(5, 8), 40])``.
    """

    iterations: tuple[int, ...]

    def __init__(self, iterations: int | Iterable[int]) -> None:
        listed = tuple(iterations) if isinstance(iterations, Iterable) else (iterations,)
        for iteration in listed:
            checks.whole("iterations", iteration, why="the first step is step 0")
        if not listed:
            raise ValueError("iterations is empty; name at least one, or use Never().")
        for earlier, later in pairwise(sorted(listed)):
            if earlier == later:
                raise ValueError(f"iterations lists {later} twice; name each once.")
        object.__setattr__(self, "iterations", tuple(sorted(listed)))

    def next(self, step: int) -> int | None:
        position = bisect_left(self.iterations, step)
        return self.iterations[position] if position < len(self.iterations) else None

    def __str__(self) -> str:
        name = "steps" if len(self.iterations) > 1 else "step"
        return f"at {name} {', '.join(map(str, self.iterations))}"
