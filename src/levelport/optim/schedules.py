"""When to teleport, decided in advance. The adaptive schedule is in :mod:`levelport.optim.affordable`.

A schedule is a frozen description. What it decides depends on the tick (the number of the step or epoch, from 0) and
the :class:`~levelport.optim.history.History` alone, so a run resumes from a checkpoint of those two.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from levelport import checks
from levelport.optim.history import History
from levelport.solvers import Solver

_NOTHING = History()  # what fixed schedules are shown

Unit = Literal["steps", "epochs"]


@dataclass(frozen=True)
class Limits:
    """What a schedule allows one teleport.

    Attributes:
        max_hvps: products for its model.
        least_decrease: where the model predicts less decrease of f, the move is not made.
    """

    max_hvps: int
    least_decrease: float

    def of(self, solver: Solver) -> Solver:
        """``solver`` with these limits. One product is added, which solvers keep in reserve for a certificate."""
        return solver.within(self.max_hvps + 1, self.least_decrease)


@dataclass(frozen=True)
class Schedule(ABC):
    """Decides when to teleport.

    Args:
        unit: what is counted. In epochs, a teleport takes place at the first step of an epoch.
    """

    unit: Unit = field(default="steps", kw_only=True)

    def __post_init__(self) -> None:
        checks.one_of("unit", self.unit, ("steps", "epochs"))

    @property
    def watches(self) -> bool:
        """Whether the decision depends on losses."""
        return False

    @abstractmethod
    def due(self, tick: int, history: History) -> bool:
        """Whether to teleport before the step of this tick. ``history`` ends with this tick."""

    def tick(self, step: int, steps_per_epoch: int | None) -> int | None:
        """Which tick begins with this step; None inside an epoch."""
        if self.unit == "steps":
            return step
        assert steps_per_epoch is not None
        epoch, inside = divmod(step, steps_per_epoch)
        return None if inside else epoch

    def planned(self, step: int, steps_per_epoch: int | None) -> bool:
        """Whether a teleport before this step is known in advance."""
        tick = self.tick(step, steps_per_epoch)
        return not self.watches and tick is not None and self.due(tick, _NOTHING)

    @property
    def last(self) -> int | None:
        """The last tick before which a teleport can take place; None where there is always another one."""
        return None

    def left(self, step: int, steps_per_epoch: int | None) -> bool:
        """Whether a teleport may still come, before this step or a later one."""
        if self.last is None or self.unit == "steps":
            return self.last is None or step <= self.last
        assert steps_per_epoch is not None
        return step <= self.last * steps_per_epoch

    def limits(self, history: History) -> Limits | None:
        """What the teleport that is due may use; None leaves it to the solver's own limits."""
        return None

    def declines_because(self, history: History) -> str:
        """Why no teleport was due for many steps, for people; empty where that was decided in advance."""
        return ""

    @property
    def _one(self) -> str:
        return self.unit.removesuffix("s")


@dataclass(frozen=True)
class Never(Schedule):
    """No teleports but those made by hand."""

    def due(self, tick: int, history: History) -> bool:
        return False

    @property
    def last(self) -> int:
        return -1

    def __str__(self) -> str:
        return "never"


@dataclass(frozen=True)
class Every(Schedule):
    """At start, start + period, start + 2 period, ..., before ``stop``.

    Example:
        >>> schedule = Every(50, start=5)
        >>> [tick for tick in range(120) if schedule.due(tick, History())]
        [5, 55, 105]
        >>> print(schedule)
        every 50 steps from step 5
    """

    period: int
    start: int = 0
    stop: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole("period", self.period, at_least=1, why="Never() switches teleports off")
        checks.whole("start", self.start, why="the first step is step 0")
        if self.stop is not None:
            checks.whole("stop", self.stop)
        if self.stop is not None and self.stop <= self.start:
            raise ValueError(f"stop must lie after start, but {self.stop} <= {self.start}: nothing would happen.")

    def due(self, tick: int, history: History) -> bool:
        past_end = self.stop is not None and tick >= self.stop
        return tick >= self.start and not past_end and (tick - self.start) % self.period == 0

    @property
    def last(self) -> int | None:
        return None if self.stop is None else self.stop - 1 - (self.stop - 1 - self.start) % self.period

    def __str__(self) -> str:
        rhythm = f"every {self._one}" if self.period == 1 else f"every {self.period} {self.unit}"
        end = "" if self.stop is None else f", before {self._one} {self.stop}"
        return f"{rhythm} from {self._one} {self.start}{end}"


@dataclass(frozen=True)
class At(Schedule):
    """At the listed steps or epochs. ``At(0)`` teleports once, before the first: teleportation as initialisation."""

    iterations: tuple[int, ...]

    def __init__(self, iterations: int | Iterable[int], *, unit: Unit = "steps") -> None:
        listed = tuple(iterations) if isinstance(iterations, Iterable) else (iterations,)
        for iteration in listed:
            checks.whole("iterations", iteration, why="the first step is step 0")
        object.__setattr__(self, "iterations", tuple(sorted(listed)))
        object.__setattr__(self, "unit", unit)
        self.__post_init__()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.iterations:
            raise ValueError("iterations is empty; name at least one, or use Never().")
        for earlier, later in pairwise(self.iterations):
            if earlier == later:
                raise ValueError(f"iterations lists {later} twice; name each once.")

    def due(self, tick: int, history: History) -> bool:
        return tick in self.iterations

    @property
    def last(self) -> int:
        return self.iterations[-1]

    def __str__(self) -> str:
        name = self.unit if len(self.iterations) > 1 else self._one
        return f"at {name} {', '.join(map(str, self.iterations))}"


@dataclass(frozen=True)
class Blocks(Schedule):
    """Consecutive teleports: Algorithm 1 of the paper with block indices and sizes {k: b_k}.

    𝒯 = ⋃ₖ {k, k + 1, ..., k + b_k - 1}.

    Example:
        >>> schedule = Blocks({5: 2, 40: 1})
        >>> [tick for tick in range(50) if schedule.due(tick, History())]
        [5, 6, 40]
    """

    blocks: tuple[tuple[int, int], ...]

    def __init__(self, blocks: Mapping[int, int] | Iterable[tuple[int, int]], *, unit: Unit = "steps") -> None:
        try:
            pairs = [(start, length) for start, length in (blocks.items() if isinstance(blocks, Mapping) else blocks)]
        except (TypeError, ValueError):
            raise ValueError(f"blocks must be {{start: length}} or pairs of both, not {blocks!r}.") from None
        for start, length in pairs:
            checks.whole("the start of a block", start)
            checks.whole("the length of a block", length, at_least=1)
        object.__setattr__(self, "blocks", tuple(sorted(pairs)))
        object.__setattr__(self, "unit", unit)
        self.__post_init__()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.blocks:
            raise ValueError("blocks is empty; name at least one {start: length}, or use Never().")
        end = 0
        for start, length in self.blocks:
            if start < end:
                raise ValueError(
                    f"the block that starts at {start} overlaps the one before it, which ends at {end - 1}. "
                    "Shorten the earlier block or merge the two."
                )
            end = start + length

    def due(self, tick: int, history: History) -> bool:
        return any(start <= tick < start + length for start, length in self.blocks)

    @property
    def last(self) -> int:
        start, length = self.blocks[-1]
        return start + length - 1

    def __str__(self) -> str:
        spans = (f"{start} to {start + length - 1}" if length > 1 else str(start) for start, length in self.blocks)
        return f"at {self.unit} {', '.join(spans)}"
