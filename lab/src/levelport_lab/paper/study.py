"""A study: the runs behind a figure, the pictures and the table drawn from them, and what they say."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pandas as pd
from matplotlib.figure import Figure

from levelport_lab.choices import HalfName, Protocol, Reference, SolverName, Tier
from levelport_lab.claims import Claim, NotRunError
from levelport_lab.engine.spec import Run, RunSpec
from levelport_lab.engine.store import TaskResult
from levelport_lab.paper.methods import Method
from levelport_lab.paper.teleports import SOLVER_NAMES
from levelport_lab.pictures import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    RED,
    WITH_TELEPORTS,
    WITHOUT_TELEPORTS,
    LegendEntry,
)

METHOD_COLOURS = {
    Method.SGD: BLUE,
    Method.MOMENTUM: RED,
    Method.POLYAK: GREEN,
    Method.ARMIJO: ORANGE,
    Method.NORMALIZED: PURPLE,
}


def method_legend() -> list[LegendEntry]:
    """Colours for methods, line styles for teleports."""
    colours: list[LegendEntry] = [(method.label, {"color": METHOD_COLOURS[method]}) for method in Method]
    styles: list[LegendEntry] = [
        ("teleports", {"color": BLACK, "linestyle": WITH_TELEPORTS}),
        ("none", {"color": BLACK, "linestyle": WITHOUT_TELEPORTS}),
    ]
    return [*colours, *styles]


@dataclass(frozen=True)
class Setup:
    """The options of a reproduction.

    Attributes:
        tier: seconds, minutes, or the paper.
        solvers: whose teleports.
        sets, regs: restrict the problems to these data sets and (profiles) penalties; empty means the tier's own.
        images: restrict MNIST to its first training images; 0 means all.
        restarts: restrict MNIST to so many initial points; 0 means the tier's own number.
        halves: restrict the profiles to one half; empty means both.
        reference: f* is exact (for networks: the best value seen), or the authors' own number.
        protocol: run and score as the paper's text says, or as the released scripts do.
    """

    tier: Tier = "quick"
    solvers: tuple[SolverName, ...] = SOLVER_NAMES
    sets: tuple[str, ...] = ()
    regs: tuple[float, ...] = ()
    halves: tuple[HalfName, ...] = ()
    reference: Reference = "exact"
    protocol: Protocol = "text"
    images: int = 0
    restarts: int = 0

    @property
    def mnist(self) -> str:
        """MNIST, or the part of it that is asked for, by name."""
        return f"mnist-first-{self.images}" if self.images else "mnist"

    def restricted(self, sets: tuple[str, ...]) -> tuple[str, ...]:
        """Those of a figure's data sets that are asked for."""
        return tuple(name for name in sets if name in self.sets) if self.sets else sets

    def __post_init__(self) -> None:
        if self.reference == "released" and self.protocol != "released":
            raise ValueError(
                "the reference 'released' holds values of the loss without its penalty, which the protocol 'text' does "
                "not score; use the protocol 'released' with it."
            )


RESTRICTIONS = {
    "sets": "--set",
    "regs": "--reg",
    "halves": "--half",
    "images": "--images",
    "restarts": "--restarts",
    "reference": "--reference",
}
"""Fields of a setup that not every figure takes, and their options."""


def heeded(study: Study, setup: Setup) -> tuple[Setup, tuple[str, ...]]:
    """The setup without the options that this figure does not take at this tier, and their names."""
    plain, takes = Setup(), study.takes(setup.tier)
    ignored = [name for name in RESTRICTIONS if getattr(setup, name) != getattr(plain, name) and name not in takes]
    neutral: dict[str, Any] = {name: getattr(plain, name) for name in ignored}
    return replace(setup, **neutral), tuple(RESTRICTIONS[name] for name in ignored)


class Results:
    """Results by specification; a task that is missing or failed has none."""

    def __init__(self, by_key: Mapping[str, TaskResult]) -> None:
        self._by_key = by_key

    def task(self, spec: RunSpec) -> TaskResult | None:
        """All runs of a task, or None."""
        result = self._by_key.get(spec.key)
        return None if result is None or result.failed else result

    def found(self, spec: RunSpec) -> tuple[Run, ...]:
        """All runs of a task that are there."""
        result = self.task(spec)
        return () if result is None else result.runs

    def require(self, specs: Sequence[RunSpec]) -> None:
        """Leave a claim open that cannot do without these tasks if any of them is missing or failed."""
        keys = {spec.key for spec in specs}
        found = [self._by_key[key] for key in keys if key in self._by_key]
        failed = sum(result.failed for result in found)
        if failed:
            tasks = f"{failed} of the {len(keys)} tasks" if len(keys) > 1 else "the task"
            raise NotRunError(f"{tasks} that it needs failed")
        if len(found) < len(keys):
            raise NotRunError

    def runs(self, spec: RunSpec) -> tuple[Run, ...]:
        """All runs of a task that a claim cannot do without."""
        self.require([spec])
        return self._by_key[spec.key].runs


class Study(ABC):
    """One figure of the paper.

    ``name`` is what the user types; ``timed`` studies run one task at a time, so that seconds mean something;
    ``options`` are those of :data:`RESTRICTIONS` that decide which runs it has, or how they are scored.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    timed: ClassVar[bool] = False
    options: ClassVar[frozenset[str]] = frozenset()

    def takes(self, tier: Tier) -> frozenset[str]:
        """Its options at this tier: the smaller ones do without MNIST."""
        return self.options if tier == "full" else self.options - {"images"}

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
        """A few rows that say what the table says, for the report; the table itself where it is short."""
        return table

    def claims(self, setup: Setup, results: Results) -> list[Claim]:
        """Return the paper's claims about the figure, judged by the results."""
        return []
