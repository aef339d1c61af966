"""What a study is: the runs behind a figure, the pictures and the table drawn from them, and what they say."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Literal

import pandas as pd
from matplotlib.figure import Figure

from levelport.lab.engine.spec import Run, RunSpec
from levelport.lab.engine.store import TaskResult
from levelport.lab.paper.teleports import SOLVER_NAMES, SolverName


class Tier(str, Enum):
    """How much of the paper to run."""

    SMOKE = "smoke"
    QUICK = "quick"
    FULL = "full"


@dataclass(frozen=True)
class Setup:
    """What the user asked for.

    Attributes:
        tier: seconds, minutes, or the paper.
        solvers: whose teleports.
        sets, regs: restrict the problems of the profiles to these data sets and penalties; empty means the tier's own.
        halves: restrict the profiles to one half; empty means both.
        reference: f* is exact (for networks: the best value seen), or the paper's estimate.
    """

    tier: Tier = Tier.QUICK
    solvers: tuple[SolverName, ...] = SOLVER_NAMES
    sets: tuple[str, ...] = ()
    regs: tuple[float, ...] = ()
    halves: tuple[Literal["deterministic", "stochastic"], ...] = ()
    reference: Literal["exact", "paper"] = "exact"


class Results:
    """Results by specification; what is missing or failed is None."""

    def __init__(self, by_key: Mapping[str, TaskResult]) -> None:
        self._by_key = by_key

    def task(self, spec: RunSpec) -> TaskResult | None:
        """All runs of a task."""
        result = self._by_key.get(spec.key)
        return None if result is None or result.failed else result

    def best(self, spec: RunSpec) -> Run | None:
        """The chosen run of a task."""
        result = self.task(spec)
        return None if result is None else result.best


@dataclass(frozen=True)
class Verdict:
    """What the runs say about a claim: True, False, or None where they do not say anything."""

    holds: bool | None
    measured: str

    @property
    def words(self) -> str:
        """For people."""
        return {True: "holds", False: "does not hold", None: "not run"}[self.holds]


NOT_RUN = Verdict(None, "the runs that it needs are not there")


@dataclass(frozen=True)
class Claim:
    """A statement of the paper that a figure supports, and how to check it.

    Attributes:
        name: short, unique.
        statement: what the paper says, in our words.
        check: from the setup and the results to a verdict.
        solver: whose teleports it was checked with; empty where none are involved.
    """

    name: str
    statement: str
    check: Callable[[Setup, Results], Verdict] = field(repr=False)
    solver: str = ""


class Study(ABC):
    """One figure of the paper.

    ``name`` is what the user types; ``timed`` studies run one task at a time, so that seconds mean something.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    timed: ClassVar[bool] = False

    @abstractmethod
    def specs(self, setup: Setup) -> list[RunSpec]:
        """All runs that the figure needs."""

    @abstractmethod
    def pictures(self, setup: Setup, results: Results) -> dict[str, Figure]:
        """Pictures by file name, without suffix."""

    @abstractmethod
    def table(self, setup: Setup, results: Results) -> pd.DataFrame:
        """The numbers behind the pictures."""

    def digest(self, table: pd.DataFrame) -> pd.DataFrame:
        """A few rows that say what the table says, for the report."""
        return table.head(24)

    def claims(self, setup: Setup) -> list[Claim]:
        """What the paper concludes from the figure."""
        return []
