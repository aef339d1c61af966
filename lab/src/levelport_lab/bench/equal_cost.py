"""Does an optimizer with its default teleports ever fall behind itself without them, at equal cost?

For every network the optimizer runs twice through the same meter, with teleports and without. At every cost from 100 on
the best losses so far are compared; the largest ratio and the last are kept. Step sizes of SGD are tuned beforehand,
without teleports: short runs over a grid, judged by their last loss, until the best step size has a worse neighbor on
both sides.
``minimize`` is compared with gradient descent by the same line search. Adam's default is ``Never``, so that with and
without are the same run: nothing to measure.

Three groups of networks, fixed in this order. *Development*: rules of the schedules were chosen here. *Confirmation*:
nothing was chosen by them after their first run. *Fresh*: never run before the rules stood.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

from levelport.optim import Never
from levelport_lab.bench.competitors import ALONE, OURS, TORCH, Competitor, competitor_named, wrapped
from levelport_lab.bench.instances import ProblemName, networks
from levelport_lab.bench.metered import Metered
from levelport_lab.engine.spec import Run, RunSpec

GROUPS: dict[str, list[ProblemName]] = {
    "development": networks(
        ["pima", "ionosphere", "breast-cancer", "blood", "conn-bench-sonar-mines-rocks"], regs=(1e-2, 1e-4)
    ),
    "confirmation": [
        ProblemName("network", f"mlp-{activation}-20/{data}", reg, seed=1)
        for data in ("horse-colic", "credit-approval", "mammographic", "tic-tac-toe", "titanic")
        for activation in ("relu", "softplus")
        for reg in (1e-3, 1e-5)
    ],
    "fresh": [
        ProblemName("network", f"mlp-{activation}-40-20/{data}", reg, seed=2)
        for data in ("congressional-voting", "ilpd-indian-liver", "musk-1", "hill-valley", "cylinder-bands")
        for activation in ("relu", "softplus")
        for reg in (1e-3, 1e-5)
    ],
}
OPTIMIZERS = ("ArmijoSGD", "SGD", OURS)
SINCE = 100.0
"""Gradient equivalents from which losses are compared."""
TUNING = 100.0
"""Gradient equivalents of a run that tunes a step size."""
FACTOR = math.sqrt(10.0)
"""Between neighboring step sizes."""
TUNED = ("SGD",)


@dataclass(frozen=True)
class EqualCostSpec(RunSpec):
    """Losses of an optimizer with its default teleports over those without, at equal cost, through the same meter."""

    kind: ClassVar[str] = "safety-equal-cost"
    revision: ClassVar[int] = 2
    problem: ProblemName
    optimizer: str
    budget: float = 300.0

    @property
    def label(self) -> str:
        return f"{self.optimizer} on {self.problem} at equal cost"

    @property
    def rough_seconds(self) -> float:
        return 8e-3 * self.budget

    def run(self) -> list[Run]:
        """The largest ratio of best losses so far at any cost from 100 on, where it is, and the ratio at the end."""
        lr, lower, upper = self._tuned() if self.optimizer in TUNED else (math.nan, math.nan, math.nan)
        mine, theirs = (_best_so_far(self.problem, method, self.budget) for method in self._both(lr))
        costs = [cost for cost in sorted({SINCE, *mine[0], *theirs[0]}) if SINCE <= cost <= self.budget]
        ratios = [_value_at(mine, cost) / _value_at(theirs, cost) for cost in costs]
        worst = max(ratios)
        facts = {"worst": worst, "at": costs[ratios.index(worst)], "last": mine[1][-1] / theirs[1][-1]}
        tuning = {"lr": lr, "worse_below": lower, "worse_above": upper}
        return [Run(final_value=mine[1][-1], facts=facts | tuning)]

    def _both(self, lr: float) -> tuple[Competitor, Competitor]:
        """With teleports, and without."""
        if self.optimizer == OURS:
            return competitor_named(OURS), competitor_named(ALONE)
        make = TORCH[self.optimizer]
        return Competitor("with", wrapped(make, None, lr)), Competitor("without", wrapped(make, Never(), lr))

    def _tuned(self) -> tuple[float, float, float]:
        make = TORCH[self.optimizer]

        def loss(lr: float) -> float:
            method = Competitor("tuning", wrapped(make, Never(), lr))
            return _run(self.problem, method, TUNING).records[-1][1]

        return tuned_inside(loss, 0.1 if self.optimizer == "SGD" else 0.1 / FACTOR)


def tuned_inside(loss: Callable[[float], float], guess: float) -> tuple[float, float, float]:
    """A step size that is better than both its neighbors on the grid, and how much higher the losses there are."""
    known: dict[int, float] = {}

    def at(index: int) -> float:
        if index not in known:
            value = loss(guess * FACTOR**index)
            known[index] = value if math.isfinite(value) else math.inf
        return known[index]

    best = 0
    while math.isinf(at(best)):
        best -= 1
    while at(better := min((best - 1, best + 1), key=at)) < at(best):
        best = better
    return guess * FACTOR**best, at(best - 1) / at(best), at(best + 1) / at(best)


BestSoFar = tuple[list[float], list[float]]


def _run(problem: ProblemName, method: Competitor, budget: float) -> Metered:
    instance = problem.build()
    objective = Metered(instance.objective, max_cost=budget)
    method.run(objective, instance)
    return objective


def _best_so_far(problem: ProblemName, method: Competitor, budget: float) -> BestSoFar:
    curves = _run(problem, method, budget).best_so_far()
    return curves["gradient_equivalents"].tolist(), curves["value"].tolist()


def _value_at(curve: BestSoFar, cost: float) -> float:
    return curve[1][bisect_right(curve[0], cost) - 1]


def specs(groups: tuple[str, ...] = tuple(GROUPS)) -> list[RunSpec]:
    """Every optimizer on every network."""
    return [EqualCostSpec(*each) for name in groups for each in product(GROUPS[name], OPTIMIZERS)]
