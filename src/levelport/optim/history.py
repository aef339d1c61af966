"""What an optimizer has seen so far, for schedules that look before they leap.

A *tick* is the unit of the schedule: a step, or an epoch of steps whose losses are averaged. Everything here is
plain numbers, so that a checkpoint can hold it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

KEPT_TICKS = 512
"""Older ticks are forgotten; no schedule looks further back."""

JUMP_TICKS = 20
"""Plain ticks by which the noise of the losses is judged."""


@dataclass(frozen=True)
class Tick:
    """One look at the run, before any teleport of that tick.

    Attributes:
        index: which step or epoch.
        value, gradient_norm: f and ‖∇f‖ there (NaN if nobody asked for the norm).
        cost: gradient equivalents spent up to here.
    """

    index: int
    value: float
    gradient_norm: float
    cost: float


@dataclass(frozen=True)
class Trial:
    """One teleport and the step that followed it.

    Attributes:
        index: the tick at which it happened.
        cost: gradient equivalents of the teleport; of the whole tick once that is known.
        decrease: of f from before the teleport to the next tick; NaN until that is known.
        plain_rate: decrease of f per gradient equivalent of the plain steps before it; NaN if there were none.
        fresh: whether that rate was measured since the teleport before this one.
        value, cost_before: f and the cost of the run when it began.
        scale: what losses are measured against there.
        jump: the largest rise between plain losses before it.
        value_later, cost_later: f and the cost of the run at the first tick from :attr:`horizon` on; NaN until then,
            and also where another teleport came first.
    """

    index: int
    cost: float
    decrease: float = math.nan
    plain_rate: float = math.nan
    fresh: bool = True
    value: float = math.nan
    cost_before: float = 0.0
    scale: float = 1.0
    jump: float = 0.0
    value_later: float = math.nan
    cost_later: float = math.nan

    @property
    def horizon(self) -> float:
        """The cost of the run when plain steps have cost twice what the trial cost."""
        return self.cost_before + 3.0 * self.cost

    @property
    def worth(self) -> float:
        """How many times more it decreased f than plain steps would have for the same cost; 0 while unknown.

        Where plain steps make no progress, any decrease is worth its cost.
        """
        if not self.decrease > 0.0:
            return 0.0
        forgone = self.cost * self.plain_rate
        return self.decrease / forgone if forgone > 0.0 else math.inf


class History:
    """Ticks and teleports of a run.

    Attributes:
        product_cost: gradient equivalents of a Hessian-vector product, as the solver makes them.
    """

    def __init__(self) -> None:
        self.ticks: list[Tick] = []
        self.trials: list[Trial] = []
        self.product_cost = 1.0

    def observe(self, index: int, value: float, gradient_norm: float, cost: float) -> None:
        """Record a tick; completes the record of a teleport at the previous one."""
        if self.trials and self.ticks and self.trials[-1].index == self.ticks[-1].index:
            before, trial = self.ticks[-1], self.trials[-1]
            # The bill of the tick, teleport and ordinary step together.
            self.trials[-1] = replace(trial, cost=cost - before.cost, decrease=before.value - value)
        # Noted when it happens: the tick itself will be forgotten.
        if self.trials and math.isnan(self.trials[-1].cost_later) and cost >= self.trials[-1].horizon:
            self.trials[-1] = replace(self.trials[-1], value_later=value, cost_later=cost)
        self.ticks.append(Tick(index, value, gradient_norm, cost))
        del self.ticks[:-KEPT_TICKS]

    def teleported(self, cost: float) -> None:
        """Record a teleport at the last tick, with its cost."""
        plain = self.plain_ticks()
        now = self.ticks[-1]
        self.trials.append(
            Trial(
                now.index,
                cost,
                plain_rate=self.plain_rate(),
                fresh=len(plain) >= 2,
                value=now.value,
                cost_before=now.cost,
                scale=scale_of([tick.value for tick in self.ticks]),
                jump=jump_of([tick.value for tick in plain[-JUMP_TICKS:]]),
            )
        )

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

        Progress comes in bursts. What a trial may cost is judged by this rate: the mean is too hopeful just before one.
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
        return {"ticks": [asdict(tick) for tick in self.ticks], "trials": [asdict(trial) for trial in self.trials]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of :meth:`state_dict`."""
        self.ticks = [Tick(**tick) for tick in state["ticks"]]
        self.trials = [Trial(**trial) for trial in state["trials"]]


def scale_of(values: list[float]) -> float:
    """What losses are measured against: |f|, or the decrease so far where f may be negative."""
    now = values[-1]
    return max(abs(now) if now > 0.0 else values[0] - now, 1e-300)


def jump_of(values: list[float]) -> float:
    """The largest rise from one loss to the next: what batches, or the optimizer, do without a teleport."""
    return max((later - earlier for earlier, later in pairwise(values)), default=0.0)
