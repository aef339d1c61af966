"""What ``interval``, ``profile``, ``contour`` and ``improve`` return: values, statuses, certificates and costs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import Any, ClassVar, Generic

from levelport.goals.plots import plot_contour, plot_interval, plot_profile
from levelport.objective import Cost
from levelport.objectives.structure import X
from levelport.solvers.result import Judged

_STATUSES = "lower_status", "upper_status", "status"  # in rows


class EndStatus(Enum):
    """The status of one end of an interval. The value is a sentence."""

    CERTIFIED = "the KKT conditions hold to the tolerance asked for"
    CURVED = "the region is strongly curved here: an inner bound, the true end may lie further out"
    UNBOUNDED = "no end was found: f stays below the level far beyond the Wald interval"
    AT_BOUND = "the end is at a bound of the parameters"
    NEW_MINIMUM = "f is lower elsewhere than at x, so x is not the minimizer this interval assumes"
    BUDGET = "the search was stopped, by max_cost or the callback, before the end was reached: an inner bound"
    FAILED = "no end was found for numerical reasons"

    @property
    def bounded(self) -> bool:
        """True if an end was reached, known or not to be the last."""
        return self in (EndStatus.CERTIFIED, EndStatus.CURVED)

    @property
    def success(self) -> bool:
        """True if the end is known: certified, or at a bound."""
        return self in (EndStatus.CERTIFIED, EndStatus.AT_BOUND)


class ImproveStatus(Enum):
    """The reason why :func:`levelport.improve` ended. The value is a sentence."""

    CERTIFIED = "the KKT conditions hold to the tolerance asked for"
    INTERIOR = "the goal has a stationary point below the level, and it was reached"
    BUDGET = "max_cost, max_iterations or the callback ended the search; the goal may be improved further"
    STALLED = "no step improves the goal by more than its rounding error"
    NO_GAIN = "no feasible point with a better goal was found; this is the start itself"
    UNUSED_ROSE = "the loss rises above the level on the unused batches, so the move was shortened"
    NON_FINITE_START = "the loss, the goal or a gradient at the start is not finite; start where both are defined"

    @property
    def success(self) -> bool:
        """True if the KKT conditions hold at the point returned."""
        return self in (ImproveStatus.CERTIFIED, ImproveStatus.INTERIOR)


@dataclass(frozen=True)
class End(Judged, Generic[X]):
    """One end of an interval; f and the quantity were evaluated at the very ``x`` returned, which is feasible.

    Attributes:
        name: the quantity's.
        side: "lower" or "upper".
        bound: the end: the quantity at ``x``, or ±∞ where no end was found.
        x: the point, in the structure of the input.
        quantity: its value at ``x``.
        value: f there, at most the level.
        status: what is known of the end; ``message`` says it with details.
        angle: sin of the angle between ∇h and -∇f at ``x`` in the metric of the model's inverse Hessian, free of
            units; 0 at an exact end on the level, NaN where it means nothing.
        price: |dh/dlevel|, how fast the end moves with the level.
        wald: the end of the Wald interval.
        cost: evaluations of f and of the quantity for this end, without the common set-up.
        iterations: steps taken.
        direction: for an unbounded end, the direction from the minimizer to ``x``, of length 1; None otherwise.
        minimum, minimum_value: a point met on the way where f is lower than at the minimizer given; None otherwise.
    """

    name: str
    side: str
    bound: float
    x: X
    quantity: float
    value: float
    status: EndStatus
    angle: float
    price: float
    wald: float
    cost: Cost
    iterations: int
    detail: str = ""
    direction: X | None = field(default=None, repr=False)
    minimum: X | None = field(default=None, repr=False)
    minimum_value: float = math.nan


@dataclass(frozen=True, kw_only=True)
class Ends(ABC, Generic[X]):
    """What the results of :func:`levelport.interval`, ``profile`` and ``contour`` share.

    Attributes:
        names: of the quantities.
        value: f at the minimizer.
        setup: evaluations shared by all ends.
        cost: all evaluations, and the seconds.
    """

    names: tuple[str, ...]
    value: float
    setup: Cost
    cost: Cost
    _index: ClassVar[tuple[str, ...]] = ("name",)

    @abstractmethod
    def every_end(self) -> Iterator[End[X]]:
        """All ends, one after the other."""

    @property
    def success(self) -> bool:
        """True if every end is certified, or at a bound."""
        return all(end.success for end in self.every_end())

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per row of the table."""

    def to_frame(self) -> Any:
        """The table as a pandas DataFrame, indexed by name, by name and rise, or by the number of the point."""
        import pandas

        return pandas.DataFrame(self.rows()).set_index(list(self._index))

    def _text(self, first: str, columns: dict[str, str]) -> str:
        """A sentence, the table of the entries of rows with headings, the statuses last, and the cost."""
        table = [[*columns, "status"]]
        for row in self.rows():
            entries = (row[key] for key in columns.values())
            table.append([f"{entry:.6g}" if isinstance(entry, float) else str(entry) for entry in entries])
            table[-1].append(" / ".join(dict.fromkeys(row[key] for key in _STATUSES if key in row)))
        cost = f"cost   {self.cost}; set-up {self.setup.gradient_equivalents:g}"
        return "\n".join([*filter(None, [first]), *_aligned(table), cost])


@dataclass(frozen=True, kw_only=True)
class IntervalResult(Ends[X]):
    """The outcome of :func:`levelport.interval`.

    Attributes:
        estimate, lower, upper: the quantity at the minimizer and its ends: floats for a scalar quantity, tensors for a
            vector, the structure of x where every entry of x was asked for.
        wald_lower, wald_upper: the Wald interval, in the same form; NaN where it is not known, as beside a bound.
        ends: (lower end, upper end) per quantity.
        x: the minimizer used, which differs from the input where ``refine=True`` moved it.
        rise, confidence: what was asked for; ``confidence`` is None where ``rise`` was given.
        decrement: ½ gᵀH⁻¹g/rise at ``x``: how far f is from its minimum, as a share of the rise, by a quadratic model.
        minimum: a point with a lower f that a search came across, or None.
        notes: sentences about what to keep in mind.
    """

    estimate: Any
    lower: Any
    upper: Any
    wald_lower: Any
    wald_upper: Any
    ends: tuple[tuple[End[X], End[X]], ...]
    estimates: tuple[float, ...]
    x: X
    rise: float
    confidence: float | None
    decrement: float
    minimum: X | None
    notes: tuple[str, ...] = ()

    def every_end(self) -> Iterator[End[X]]:
        return chain.from_iterable(self.ends)

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per quantity, for tables."""
        return [
            {"name": name, "estimate": estimate, "wald_lower": both[0].wald, "wald_upper": both[1].wald, **_row(both)}
            for name, estimate, both in zip(self.names, self.estimates, self.ends, strict=True)
        ]

    def plot(self, ax: Any = None) -> Any:
        """A forest plot with the Wald interval beside; returns matplotlib's axes."""
        return plot_interval(self, ax)

    def __str__(self) -> str:
        level = f"rise {self.rise:.6g}"
        if self.confidence is not None:
            level = f"{100.0 * self.confidence:g} % confidence ({level})"
        columns = {"": "name", "estimate": "estimate", "lower": "lower", "upper": "upper"}
        text = self._text(
            f"{level} above f = {self.value:.8g}", columns | {"Wald lower": "wald_lower", "Wald upper": "wald_upper"}
        )
        return "\n".join([text, *(f"note   {note}" for note in self.notes)])


@dataclass(frozen=True, kw_only=True)
class ProfileResult(Ends[X]):
    """The outcome of :func:`levelport.profile`: ends for every rise.

    Attributes:
        estimates: of the quantities.
        rises: in ascending order.
        lower, upper: one list per quantity with an end per rise.
        ends: the same as :class:`End`, (lower, upper) per quantity and rise.
    """

    estimates: tuple[float, ...]
    rises: tuple[float, ...]
    ends: tuple[tuple[tuple[End[X], End[X]], ...], ...]
    _index = ("name", "rise")

    @property
    def lower(self) -> list[list[float]]:
        """Lower ends, one list per quantity with an entry per rise."""
        return [[lower.bound for lower, _ in by_rise] for by_rise in self.ends]

    @property
    def upper(self) -> list[list[float]]:
        """Upper ends, one list per quantity with an entry per rise."""
        return [[upper.bound for _, upper in by_rise] for by_rise in self.ends]

    def every_end(self) -> Iterator[End[X]]:
        return (end for by_rise in self.ends for both in by_rise for end in both)

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per quantity and rise."""
        return [
            {"name": name, "rise": rise, **_row(both)}
            for name, by_rise in zip(self.names, self.ends, strict=True)
            for rise, both in zip(self.rises, by_rise, strict=True)
        ]

    def plot(self, name: str | None = None, ax: Any = None) -> Any:
        """The profile of one quantity, the first by default, with the Wald parabola beside; matplotlib's axes."""
        return plot_profile(self, name, ax)

    def __str__(self) -> str:
        return self._text("", {"": "name", "rise": "rise", "lower": "lower", "upper": "upper"})


@dataclass(frozen=True, kw_only=True)
class ContourResult(Ends[X]):
    """The outcome of :func:`levelport.contour`: points of the boundary of a two-dimensional region, in order.

    Attributes:
        estimate: the two quantities at the minimizer.
        points: pairs of values, around the estimate; (inf, inf) where no boundary was found.
        ends: the boundary points as :class:`End`, with x, status and price.
        rise, confidence: what was asked for.
    """

    estimate: tuple[float, float]
    points: tuple[tuple[float, float], ...]
    ends: tuple[End[X], ...]
    rise: float
    confidence: float | None
    _index = ("point",)

    def every_end(self) -> Iterator[End[X]]:
        return iter(self.ends)

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per point."""
        return [
            {"point": number, **dict(zip(self.names, point, strict=True)), "status": end.status.name.lower()}
            for number, (point, end) in enumerate(zip(self.points, self.ends, strict=True))
        ]

    def plot(self, ax: Any = None) -> Any:
        """The region with its estimate; returns matplotlib's axes."""
        return plot_contour(self, ax)

    def __str__(self) -> str:
        first = f"boundary of the region, rise {self.rise:.6g} above f = {self.value:.8g}"
        return self._text(first, {"": "point", **{name: name for name in self.names}})


@dataclass(frozen=True)
class ImproveRow:
    """One iterate of :func:`levelport.improve`: f, the goal and sin ∠(∇goal, -∇f)."""

    value: float
    goal: float
    angle: float


@dataclass(frozen=True)
class ImproveResult(Judged, Generic[X]):
    """The outcome of :func:`levelport.improve`. f and the goal were evaluated at the very ``x`` returned.

    Attributes:
        x: the point, in the structure of the input; f(x) ≤ level.
        goal, goal_start: the goal at ``x`` and at the start.
        value, value_start, level: f at both, and f(start) + rise.
        status: why it ended.
        angle: sin ∠(∇goal, -∇f); small at an end on the level.
        price: |dgoal/dlevel|; 0 where the level does not matter. Both are NaN after a move that was shortened.
        cost: all evaluations, of f and of the goal.
        cost_goal: those of the goal.
        unused_change: change of f on the unused batches from the start to ``x``; NaN where there are none.
        trace: a row per iterate.
    """

    x: X
    goal: float
    goal_start: float
    value: float
    value_start: float
    level: float
    status: ImproveStatus
    angle: float
    price: float
    cost: Cost
    cost_goal: Cost
    detail: str = ""
    unused_change: float = math.nan
    trace: tuple[ImproveRow, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.status.name}: {self.message}",
                f"goal   {self.goal_start:.8g} → {self.goal:.8g}",
                f"f      {self.value_start:.8g} → {self.value:.8g}, level {self.level:.8g}",
                f"there  sin angle {self.angle:.2g}, price {self.price:.4g} per unit of f",
                f"cost   {self.cost}",
            ]
        )


def _row(both: tuple[End[X], End[X]]) -> dict[str, Any]:
    lower, upper = both
    return {
        "lower": lower.bound,
        "upper": upper.bound,
        "lower_status": lower.status.name.lower(),
        "upper_status": upper.status.name.lower(),
        "cost": (lower.cost + upper.cost).gradient_equivalents,
    }


def _aligned(table: list[list[str]]) -> list[str]:
    """Lines of a table: the first and last column to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *map(str.rjust, row[1:-1], widths[1:-1]), row[-1].ljust(widths[-1])]
        ).rstrip()
        for row in table
    ]
