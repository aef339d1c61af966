"""What is drawn: performance profiles over problems, and medians with quartiles over restarts.

A problem with optimal value f* is *solved* at the first record where (Dolan and Moré, 2002; Mishkin et al., Figure 4)

    (f(w_k) - f*) / (f(w_0) - f*) ≤ τ.

What f is here, and which setting of a method represents it, differs between the paper's text and its released scripts:
see :class:`Scoring`.

The profile of a method is the share of problems that it has solved, as a function of what it has spent: iterations,
seconds, or gradient equivalents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

import numpy as np

from levelport_lab.engine.spec import Curve, Run


class Axis(str, Enum):
    """The axis of a profile."""

    ITERATIONS = "iterations"
    SECONDS = "seconds"
    COST = "gradient_equivalents"

    @property
    def label(self) -> str:
        """For the axis of a picture."""
        return self.value.replace("_", " ")

    def of(self, run: Run) -> Curve:
        """Return what the run had spent at each of its records."""
        if self is Axis.ITERATIONS:
            return np.arange(len(run.curves["value"]), dtype=np.float64)
        return run.curves[self.value]


_ROUNDING = 4.0 * float(np.finfo(np.float32).eps)
_SMALL = 1e-3  # beside log 2, where losses of classifiers begin


def told_apart(values: Curve, losses: Curve) -> Curve:
    """The losses without their penalty, that is f minus the penalty, where rounding errors of f leave something of it.

    The weights of a run that diverges may be 1e13, and f and its penalty 1e26: what is left of their difference has any
    sign. There f itself stands for the loss, which is a bound from above because neither of the two is negative.
    """
    return np.where(_ROUNDING * values <= _SMALL, np.maximum(losses, 0.0), values)


@dataclass(frozen=True)
class Scoring:
    """When a run has solved a problem, and which setting of a method counts.

    Attributes:
        quantity: the curve that is compared with f*: "value", the regularized f, or "loss", without its penalty.
        by_final_value: the setting with the smallest final f represents the method; otherwise the one that solved the
            problem first.
        ceiling: a run whose largest recorded loss reaches this multiple of its first has not solved anything.
        own_start: f(w_0) is the first record of the run itself, which for a run that begins with a teleport is taken
            after it; otherwise that of the plain runs.
    """

    quantity: Literal["value", "loss"] = "value"
    by_final_value: bool = True
    ceiling: float = np.inf
    own_start: bool = False

    def curve(self, run: Run) -> Curve:
        """Return the curve compared with f*; empty if the run has not kept it."""
        return run.curves.get(self.quantity, np.empty(0))

    def spent(self, run: Run, start: float, optimum: float, tau: float, axis: Axis) -> float:
        """Return what the run had spent when the problem was solved; infinite if it never was."""
        if start <= optimum:
            raise ValueError(f"the start has the value {start}, which is not above the optimal value {optimum}.")
        curve = self.curve(run)
        if not len(curve) or curve.max() >= self.ceiling * curve[0]:
            return np.inf
        if self.own_start:
            start = float(curve[0])
            if start <= optimum:
                return float(axis.of(run)[0])
        reached = (curve - optimum) / (start - optimum) <= tau
        return float(axis.of(run)[np.argmax(reached)]) if reached.any() else np.inf

    def representative(self, runs: Sequence[Run], start: float, optimum: float, tau: float, axis: Axis) -> Run:
        """The run that stands for a method with all its settings."""
        chosen = next((run for run in runs if run.chosen), runs[0])
        if self.by_final_value:
            return chosen
        spent = [self.spent(run, start, optimum, tau, axis) for run in runs]
        return runs[int(np.argmin(spent))] if np.isfinite(min(spent)) else chosen


TEXT = Scoring()
RELEASED = Scoring("loss", by_final_value=False, ceiling=10.0)


def spent_until_solved(run: Run, start: float, optimum: float, tau: float, axis: Axis) -> float:
    """Return what the run had spent when f had come near enough to f*; infinite if it never did."""
    return TEXT.spent(run, start, optimum, tau, axis)


@dataclass(frozen=True)
class Profile:
    """The share of problems solved as a step function: ``shares[i]`` from ``spent[i]`` on."""

    spent: Curve
    shares: Curve

    @classmethod
    def of(cls, costs: Sequence[float]) -> Profile:
        """From what each problem took; infinite where it was not solved."""
        if len(costs) == 0:
            raise ValueError("a profile needs at least one problem.")
        finite = np.sort([cost for cost in costs if np.isfinite(cost)])
        spent = np.unique(finite)
        shares = np.searchsorted(finite, spent, side="right") / len(costs)
        return cls(spent, shares)

    def at(self, spent: float) -> float:
        """The share solved at that cost."""
        index = int(np.searchsorted(self.spent, spent, side="right"))
        return float(self.shares[index - 1]) if index else 0.0

    @property
    def half(self) -> float:
        """The cost of solving half of the problems, by which the paper judges its profiles; infinite if never."""
        reached = np.flatnonzero(self.shares >= 0.5)
        return float(self.spent[reached[0]]) if len(reached) else np.inf

    @property
    def solved(self) -> float:
        """The share solved in the end."""
        return float(self.shares[-1]) if len(self.shares) else 0.0


@dataclass(frozen=True)
class Band:
    """Median and quartiles over restarts, record by record."""

    lower: Curve
    median: Curve
    upper: Curve

    @classmethod
    def of(cls, curves: Sequence[Curve]) -> Band:
        """From curves that may have ended early (they diverged): those count as infinite from there on."""
        length = max(len(curve) for curve in curves)
        rows = np.full((len(curves), length), np.inf)
        for row, curve in zip(rows, curves, strict=True):
            row[: len(curve)] = curve
        # Observed values, so that infinity stays infinity and never turns into nan: the smallest that a quarter,
        # half, three quarters of the restarts do not exceed. (NumPy's "closest_observation" is the second of five.)
        lower, median, upper = np.quantile(rows, [0.25, 0.5, 0.75], axis=0, method="inverted_cdf")
        return cls(lower, median, upper)
