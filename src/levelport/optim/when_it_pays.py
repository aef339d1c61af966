"""When to teleport, decided on the way: when progress stalls, or when a teleport is worth its cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from levelport import checks
from levelport.optim.history import History, Trial
from levelport.optim.schedules import Schedule


@dataclass(frozen=True)
class WhenStalled(Schedule):
    """When the run has slowed down.

    Args:
        threshold: for "progress", the decrease of f over ``window`` ticks relative to its decrease since the first
            tick known; for "gradient_norm", ‖∇f‖ relative to the largest seen. At or below it the run has stalled.
        measure: what is watched; "gradient_norm" only where the steps are taken, by :class:`~levelport.Teleported` and
            ``minimize``: a :class:`~levelport.Teleporter` would need a gradient of its own for every step.
        window: over how many plain ticks progress is measured.
        wait: ticks to wait after a teleport, and at the start, before looking again.

    Example:
        >>> print(WhenStalled(0.01, wait=20))
        when progress over 10 steps falls to 0.01 of the total, at most every 20 steps
    """

    threshold: float = 1e-2
    measure: Literal["progress", "gradient_norm"] = "progress"
    window: int = 10
    wait: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.number("threshold", self.threshold, above=0.0, below=1.0, why="it is relative")
        checks.one_of("measure", self.measure, ("progress", "gradient_norm"))
        checks.whole("window", self.window, at_least=1)
        checks.whole("wait", self.wait, at_least=1)

    @property
    def watches(self) -> bool:
        return True

    @property
    def watches_gradient(self) -> bool:
        return self.measure == "gradient_norm"

    def due(self, tick: int, history: History) -> bool:
        last = history.last_teleport
        if tick < self.wait or (last is not None and tick - last < self.wait):
            return False
        now = history.ticks[-1]
        if self.measure == "gradient_norm":
            return now.gradient_norm <= self.threshold * max(seen.gradient_norm for seen in history.ticks)
        plain = history.plain_ticks()
        if len(plain) <= self.window:
            return False
        total = history.ticks[0].value - now.value
        return plain[-1 - self.window].value - now.value <= self.threshold * max(total, 0.0)

    def __str__(self) -> str:
        pause = f"at most every {self.wait} {self.unit}"
        if self.measure == "gradient_norm":
            return f"when the gradient norm falls to {self.threshold:g} of its largest, {pause}"
        return f"when progress over {self.window} {self.unit} falls to {self.threshold:g} of the total, {pause}"


@dataclass(frozen=True)
class WhenItPays(Schedule):
    """When the predicted gain of a teleport exceeds its measured cost.

    Both are measured in this very run. Let r be the decrease of f per gradient equivalent of recent plain steps, and
    let the last teleport, with the step after it, have cost C and decreased f by D when the plain rate was r₀. Its
    worth y = D/(C r₀) says how many times more it bought than plain steps. Both D and r₀ shrink with f - f*, so y
    is the forecast for the next one.

    * First trial: when r has fallen to ``slowdown`` times the best rate so far (the theory of the paper has late
      teleports pay, and measurements agree), and not before ``start``.
    * Paid (y > ``margin``): the next one follows after ``pause`` ticks.
    * Did not pay, compared with plain steps just before it: the next trial waits ``patience`` ticks, and twice as
      long after every further failure.

    Example:
        >>> print(WhenItPays())
        when it pays: first trial when progress per cost has fallen to 0.1 of its best
    """

    slowdown: float = 0.1
    margin: float = 1.0
    start: int = 5
    pause: int = 1
    patience: int = 20
    window: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.number("slowdown", self.slowdown, above=0.0, at_most=1.0)
        checks.number("margin", self.margin, above=0.0)
        for name in ("start", "pause", "patience", "window"):
            checks.whole(name, getattr(self, name), at_least=1)

    @property
    def watches(self) -> bool:
        return True

    def due(self, tick: int, history: History) -> bool:
        if tick < self.start:
            return False
        if not history.trials:
            return self._slowed_down(history)
        last = history.trials[-1]
        return tick - last.index >= self._wait_after(last, history)

    def _wait_after(self, last: Trial, history: History) -> int:
        if last.worth > self.margin:
            return self.pause
        if not last.fresh:  # compared with a rate of long ago: take plain steps to measure a new one
            return self.window
        failures = 0
        for trial in reversed(history.trials):
            if trial.worth > self.margin:
                break
            failures += trial.fresh
        return self.patience * 2 ** (failures - 1)

    def _slowed_down(self, history: History) -> bool:
        ticks = history.ticks
        best = max(
            (
                (earlier.value - later.value) / (later.cost - earlier.cost)
                for earlier, later in pairwise(ticks)
                if later.cost > earlier.cost
            ),
            default=math.nan,
        )
        return history.plain_rate(self.window) <= self.slowdown * best

    def __str__(self) -> str:
        return f"when it pays: first trial when progress per cost has fallen to {self.slowdown:g} of its best"
