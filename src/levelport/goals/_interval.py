"""``levelport.interval``: smallest and largest value of a quantity over {f ≤ f(x) + rise}."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Generic, cast

import torch
from torch import Tensor

from levelport import checks
from levelport.goals.ends import STEPS
from levelport.goals.goal import LinearGoal
from levelport.goals.quantities import Quantities, Quantity
from levelport.goals.result import End, EndStatus, IntervalResult
from levelport.goals.setup import SIDES, Setup, prepare, rise_of
from levelport.objective import Cost, Objective, ObjectiveError
from levelport.objectives.isolation import full_precision
from levelport.objectives.structure import X

_RESTARTS = 3  # from lower minima
_PASSES = 3  # of comparing ends with each other
_FEW = 20  # quantities up to which functions are evaluated at each other's ends


def interval(
    fun: Callable[[Any], Tensor] | Objective,
    x: X,
    quantity: Quantity = None,
    *,
    rise: float | None = None,
    confidence: float | None = None,
    bounds: Any = None,
    refine: bool = False,
    names: Sequence[str] | None = None,
    tol: float = 1e-3,
    max_cost: float | None = None,
    callback: Callable[[End[X]], object] | None = None,
) -> IntervalResult[X]:
    """Find how small and how large a quantity can be while f stays within ``rise`` of its minimum.

    Args:
        fun: f, a differentiable function of ``x`` that returns a scalar tensor, or an :class:`Objective`. For
            confidence intervals a summed negative log-likelihood, without a penalty.
        x: the minimizer of f: a tensor, or a list or dict of tensors; for an Objective, a flat vector.
        quantity: a differentiable function of ``x`` that returns a scalar or a tensor, one interval per entry; or the
            positions of entries of ``x``, counted through all its tensors; None takes every entry.
        rise: the region is {f ≤ f(x) + rise}.
        confidence: takes the rise for a likelihood interval of this confidence: half the χ² quantile with one degree of
            freedom, 1.92 for 0.95. Exactly one of ``rise`` and ``confidence`` is required.
        bounds: of the parameters: a pair (lower, upper), each a number, None, or in the structure of ``x``; or a list
            with a pair for every entry. ``x`` is the minimizer within them.
        refine: minimize f from ``x`` first, and again from a lower point that a search comes across.
        names: of the quantities, for tables and plots.
        tol: allowed error of an end, relative to the half width.
        max_cost: gradient equivalents per end; None allows 2000.
        callback: called with every :class:`End` as it is found, and again if more becomes known of it; a true return
            value skips the remaining ones.

    Returns:
        Ends with the points that attain them, each with a status that says what is known of it, and the Wald interval
        beside it. Ends are local: other components of the region, and other local optima of the quantity, are not
        searched for, but the points found for one quantity are tried for all others.

    Raises:
        ObjectiveError: x is clearly not a minimizer, or a function is not a deterministic differentiable scalar.
        ValueError: an argument makes no sense.

    Example:
        >>> import torch
        >>> data = torch.tensor([1.2, 0.4, 2.1, 0.9], dtype=torch.float64)
        >>> nll = lambda rate: (rate * data - rate.log()).sum()
        >>> rate = 1.0 / data.mean().reshape(1)
        >>> result = interval(nll, rate, confidence=0.95)
        >>> round(float(result.lower), 3), round(float(result.upper), 3)
        (0.27, 2.02)
    """
    height = rise_of(rise, confidence)
    if callback is not None:
        checks.function("callback", callback, of="end")
    began = time.perf_counter()
    quantities, earlier = Quantities(x, quantity, names), Cost()

    def search(x: X) -> tuple[Setup[X], _Ends[X]]:
        count = 2 * len(quantities)
        setup = prepare(fun, x, rise=height, ends=count, refine=refine, bounds=bounds, tol=tol, max_cost=max_cost)
        with full_precision(setup.objective.device):
            return setup, _Ends(setup, quantities, height, callback)

    setup, found = search(x)
    for _ in range(_RESTARTS if refine else 0):
        lower = found.lower_minimum()
        if lower is None:
            break
        try:
            again = search(cast("X", lower.minimum))
        except ObjectiveError:  # f has no minimum there
            break
        earlier += setup.spent
        setup, found = again
    lower = found.lower_minimum()
    doubtful = [_doubted(end) for end in found.ends] if lower is not None else found.ends
    ends = tuple(zip(doubtful[0::2], doubtful[1::2], strict=True))
    spent = earlier + setup.spent + quantities.cost
    notes = []
    if any(end.status is EndStatus.UNBOUNDED and 0.0 <= end.value < 0.5 * setup.point.value for end in found.ends):
        notes.append(
            "f falls on and on where an end is unbounded: it has no finite minimizer, as for separable data, and x is "
            "where its minimization stopped"
        )
    elif confidence is not None and 0.0 <= setup.point.value < height:
        notes.append(
            f"f(x) = {setup.point.value:.4g} is below the rise {height:.4g}: is f a mean? A confidence needs the sum "
            "of the negative log-likelihood over all samples"
        )
    failed = (f"failed: {end.detail}" for end in found.ends if end.status is EndStatus.FAILED)
    notes += dict.fromkeys(failed)  # each once
    return IntervalResult(
        names=tuple(quantities.names),
        estimate=quantities.shaped(found.estimates),
        lower=quantities.shaped([lower.bound for lower, _ in ends]),
        upper=quantities.shaped([upper.bound for _, upper in ends]),
        wald_lower=quantities.shaped([lower.wald for lower, _ in ends]),
        wald_upper=quantities.shaped([upper.wald for _, upper in ends]),
        ends=ends,
        estimates=tuple(found.estimates),
        x=setup.structure.unflatten(setup.outer(setup.point)),
        value=setup.point.value,
        rise=height,
        confidence=confidence,
        decrement=setup.decrement / height,
        minimum=lower.minimum if lower is not None else None,
        setup=setup.cost,
        cost=replace(spent, seconds=time.perf_counter() - began),
        notes=tuple(notes),
    )


class _Ends(Generic[X]):
    """The ends of one quantity after the other, then those again that the points of others exceed."""

    def __init__(
        self, setup: Setup[X], quantities: Quantities[X], rise: float, callback: Callable[[End[X]], object] | None
    ) -> None:
        self._setup, self._goals = setup, quantities.goals
        self._callback, self._stopped = callback, False
        self._task = setup.task(rise)
        self.estimates = setup.estimates(quantities.goals)
        self._found = [
            self._search(number, name, side) for number, name in enumerate(quantities.names) for side in SIDES
        ]
        for _ in range(_PASSES if len(quantities) > 1 and not setup.trouble else 0):
            if self._stopped or not self._exchange():
                break

    @property
    def ends(self) -> list[End[X]]:
        """The lower and the upper end of each quantity, one after the other."""
        return [end for end, _ in self._found]

    def lower_minimum(self) -> End[X] | None:
        """The end on whose way f was lowest, if it was lower than at the minimizer."""
        below = [end for end in self.ends if end.minimum is not None]
        return min(below, key=lambda end: end.minimum_value, default=None)

    def _search(self, number: int, name: str, side: str) -> tuple[End[X], Tensor]:
        """Search from the minimizer, unless the callback has asked to stop."""
        setup, goal = self._setup, self._setup.goal(self._goals[number])
        if self._stopped:
            detail = "the callback asked to stop"
            return setup.unsearched(self._task, goal, name, side, EndStatus.BUDGET, detail)
        end, z = setup.end(self._task, goal, name, side)
        self._report(end)
        return end, z

    def _report(self, end: End[X]) -> None:
        self._stopped = self._stopped or bool(self._callback is not None and self._callback(end))

    def _exchange(self) -> bool:
        """Search again from points of other ends where a quantity is beyond its own end; whether any end moved.

        All ends are points of the region, so a quantity that is larger at one of them than at its own upper end has
        only reached a local one. Costs nothing for entries of x, and a value per quantity and point otherwise.
        """
        table = self._values_at_ends()
        if table is None:
            return False
        moved = False
        for place, found in enumerate(self._found):
            end = found[0]
            goal, estimate, sign = self._goals[place // 2], self.estimates[place // 2], SIDES[end.side]
            values = torch.nan_to_num(sign * table[:, place // 2], nan=math.inf, posinf=math.inf, neginf=math.inf)
            where = int(values.argmin())
            gain = sign * end.quantity - float(values[where])
            if not end.status.bounded or gain <= self._setup.tol * abs(end.quantity - estimate):
                continue
            farther = self._setup.farther(self._task, self._setup.goal(goal), found, self._found[where][1])
            if farther is not None:
                self._found[place] = farther
                moved = True
                self._report(farther[0])
                if self._stopped:
                    return False
        return moved

    def _values_at_ends(self) -> Tensor | None:
        """All quantities at all ends, a row per end; None where that would cost much."""
        goals = self._goals
        xs = torch.stack([self._setup.structure.flatten(end.x) for end in self.ends])
        directions = [goal.direction for goal in goals if isinstance(goal, LinearGoal)]
        if len(directions) == len(goals):
            return (xs @ torch.stack(directions).T).double()
        if len(goals) <= _FEW:
            return torch.tensor([[goal.at(x).value for goal in goals] for x in xs], dtype=torch.float64, device="cpu")
        return None


def _doubted(end: End[X]) -> End[X]:
    """An end beside a lower minimum: where the region is curved, too, it has several basins, and this may be one's."""
    if end.status is EndStatus.CERTIFIED and end.iterations > STEPS:
        return replace(end, status=EndStatus.CURVED, detail="f has a lower minimum, so the region has several basins")
    return end
