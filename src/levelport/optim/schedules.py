"""When to teleport, and what a schedule can see of a run. The adaptive one is in :mod:`levelport.optim.affordable`.

A schedule is a frozen description. What it decides depends on the number of the step, from 0, and on the
:class:`History` alone, which is plain numbers: a run resumes from a checkpoint of those two.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

from levelport import checks
from levelport.solvers import Solver

KEPT_TICKS = 512
"""Older ticks are forgotten; no schedule looks further back."""

JUMP_TICKS = 20
"""Plain ticks by which the noise of the losses is judged."""


@dataclass(slots=True)  # one per step: frozen ones take longer to make
class Tick:
    """One look at the run, before the teleport of that step if there is one.

    Attributes:
        index: the number of the step.
        value: f there.
        cost: gradient equivalents spent up to here.
        rise: of f since the tick before.
    """

    index: int
    value: float
    cost: float
    rise: float


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
    """Ticks and teleports of a run.

    Attributes:
        product_cost: gradient equivalents of a Hessian-vector product, as the solver makes them.
        unit: of a gradient of the loss that is teleported on, in gradients of steps.
    """

    def __init__(self) -> None:
        self.ticks: list[Tick] = []
        self.trials: list[Trial] = []
        self.product_cost = 1.0
        self.unit = 1.0

    def observe(self, index: int, value: float, cost: float) -> None:
        """Record a tick; completes the record of a teleport at the previous one."""
        if self.trials and self.ticks and self.trials[-1].index == self.ticks[-1].index:
            before, trial = self.ticks[-1], self.trials[-1]
            # The cost of the tick, teleport and ordinary step together.
            self.trials[-1] = replace(trial, cost=cost - before.cost, decrease=before.value - value)
        self.ticks.append(Tick(index, value, cost, value - self.ticks[-1].value if self.ticks else 0.0))
        if len(self.ticks) > 2 * KEPT_TICKS:
            del self.ticks[:-KEPT_TICKS]

    def teleported(self, cost: float) -> None:
        """Record a teleport at the last tick, with its cost."""
        plain, now = self.plain_ticks(), self.ticks[-1]
        self.trials.append(
            Trial(
                now.index,
                cost,
                plain_rate=self.plain_rate(),
                cost_before=now.cost,
                scale=self.scale,
                jump=jump_of(plain[-JUMP_TICKS:]),
            )
        )

    @property
    def scale(self) -> float:
        """The scale of the losses: |f|, or the decrease so far where f may be negative."""
        now = self.ticks[-1].value
        return max(now if now > 0.0 else self.ticks[0].value - now, 1e-300)

    @property
    def last_teleport(self) -> int | None:
        """The tick of the last teleport."""
        return self.trials[-1].index if self.trials else None

    def plain_ticks(self) -> list[Tick]:
        """The ticks since the last teleport: between two of them there were plain steps only."""
        last = self.last_teleport
        if last is None:
            return self.ticks
        plain = len(self.ticks)
        while plain > 0 and self.ticks[plain - 1].index > last:  # there are few of them where teleports are frequent
            plain -= 1
        return self.ticks[plain:]

    def plain_rate(self, window: int = 10) -> float:
        """Decrease of f per gradient equivalent over the last ``window`` plain ticks; NaN before two of them.

        Where the last teleport left too few plain ticks, the rate known at that teleport is the best there is.
        """
        recent = self.plain_ticks()[-window - 1 :]
        if len(recent) >= 2 and recent[-1].cost > recent[0].cost:
            return (recent[0].value - recent[-1].value) / (recent[-1].cost - recent[0].cost)
        return self.trials[-1].plain_rate if self.trials else math.nan

    def fastest_rate(self, window: int, among: int) -> float:
        """The largest such rate over ``window`` ticks in a row among the last ``among`` plain ones.

        Progress comes in bursts. What a trial may cost is judged by this rate: just before a burst the mean is too low.
        """
        recent = self.plain_ticks()[-among - 1 :]
        rates = [
            (first.value - last.value) / (last.cost - first.cost)
            for first, last in zip(recent, recent[window:], strict=False)
            if last.cost > first.cost
        ]
        return max([*rates, self.plain_rate(window)])

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers in lists and dicts."""
        ticks = [[tick.index, tick.value, tick.cost, tick.rise] for tick in self.ticks]
        return {"ticks": ticks, "trials": [asdict(trial) for trial in self.trials]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of :meth:`state_dict`."""
        self.ticks = [Tick(*tick) for tick in state["ticks"]]
        self.trials = [Trial(**trial) for trial in state["trials"]]


def jump_of(ticks: list[Tick]) -> float:
    """The largest rise from one loss to the next: what batches, or the optimizer, do without a teleport."""
    return max([tick.rise for tick in ticks[1:]], default=0.0)


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
