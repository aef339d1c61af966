"""Does an optimizer with its default teleports ever fall behind itself without them, at equal cost?

For every network the optimizer runs through the same meter with teleports and without. At every cost the best losses so
far are compared; the largest ratio from 100 to 300 gradient equivalents, for physics-informed networks also the largest
from 300 to 500, and the last are kept. The arms without the undo and without the account say what these contribute.
One arm has no teleports at all, but starts from weights that differ by a millionth: how far do two runs of the same
optimizer part by themselves?
Step sizes of SGD are tuned beforehand, without teleports: short runs over a grid, judged by their last loss, until the
best step size has a worse neighbor on both sides.

Three groups: networks on the data sets on which the rules of the schedule were chosen, with new initial weights;
networks on other sets; and physics-informed networks. All were fixed before their first run.
"""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, product
from typing import ClassVar

import torch
from torch import Tensor, nn

from levelport.optim import ArmijoSGD, Never, PolyakSGD, Teleported
from levelport_lab.bench.instances import ProblemName, networks
from levelport_lab.bench.metered import Enough, Metered, TorchFunction
from levelport_lab.bench.pinns import EQUATIONS
from levelport_lab.bench.safety import DEFAULTS, Arm
from levelport_lab.engine.spec import Run, RunSpec

SEED = 8
"""Of initial weights, never used before."""
PINN_SEEDS = range(20, 30)
"""Likewise."""


def _other(layers: str, sets: tuple[str, ...]) -> list[ProblemName]:
    return [
        ProblemName("network", f"mlp-{activation}-{layers}/{data}", reg, SEED)
        for data, activation, reg in product(sets, ("relu", "softplus"), (1e-3, 1e-5))
    ]


GROUPS: dict[str, list[ProblemName]] = {
    "development sets": networks(
        ["pima", "ionosphere", "breast-cancer", "blood", "conn-bench-sonar-mines-rocks"],
        regs=(1e-2, 1e-4),
        seeds=(SEED,),
    ),
    "other sets": [
        *_other("20", ("horse-colic", "credit-approval", "mammographic", "tic-tac-toe", "titanic")),
        *_other("40-20", ("congressional-voting", "ilpd-indian-liver", "musk-1", "hill-valley", "cylinder-bands")),
    ],
    "PINNs": [ProblemName("pinn", equation, seed=seed) for equation in EQUATIONS for seed in PINN_SEEDS],
}
OPTIMIZERS: dict[str, Callable[[list[Tensor], float], torch.optim.Optimizer]] = {
    "ArmijoSGD": lambda parameters, lr: ArmijoSGD(parameters, c=0.1),
    "PolyakSGD": lambda parameters, lr: PolyakSGD(parameters),
    "SGD": lambda parameters, lr: torch.optim.SGD(parameters, lr=lr),
}
"""Those with a default schedule, given a step size."""
TUNED = ("SGD",)
SINCE, UNTIL, LATEST = 100.0, 300.0, 500.0
"""Gradient equivalents from which losses are compared, up to which, and up to which on physics-informed networks."""
TUNING = 100.0
"""Gradient equivalents of a run that tunes a step size."""
FACTOR = math.sqrt(10.0)
"""Between neighboring step sizes."""
SHIFT = 1e-6
"""Of the initial weights in the control without teleports, relative to their norm."""
ARMS = [*DEFAULTS, "no teleports, moved by 1e-6"]
"""By number, the last one the control."""


@dataclass(frozen=True)
class EqualCostSpec(RunSpec):
    """Losses of an optimizer with teleports over those without, at equal cost; a run per arm, by number."""

    kind: ClassVar[str] = "safety-equal-cost"
    revision: ClassVar[int] = 4
    problem: ProblemName
    optimizer: str
    budget: float = UNTIL

    @property
    def label(self) -> str:
        return f"{self.optimizer} on {self.problem} at equal cost"

    @property
    def rough_seconds(self) -> float:
        return 1e-2 * self.budget

    def run(self) -> list[Run]:
        """For each arm the largest ratios of best losses so far, where they are, and the ratio at the end."""
        lr, lower, upper = self._tuned() if self.optimizer in TUNED else (math.nan, math.nan, math.nan)
        tuning = {"lr": lr, "worse_below": lower, "worse_above": upper}
        losses, alone = self._train(Arm(Never()), lr, self.budget)
        theirs = _best_so_far(losses)
        runs = []
        for number, arm in enumerate([*DEFAULTS.values(), Arm(Never())]):
            if not arm.undo and not alone.teleporter.policy.undoes:
                continue  # the line search takes the first step, and its moves are never undone
            shift = SHIFT if number == len(DEFAULTS) else 0.0
            losses, optimizer = self._train(arm, lr, self.budget, shift)
            mine, teleporter = _best_so_far(losses), optimizer.teleporter
            facts = {
                **_largest("worst", mine, theirs, SINCE, min(UNTIL, self.budget)),
                **_largest("late", mine, theirs, UNTIL, self.budget),
                "last": mine[1][-1] / theirs[1][-1],
                "teleports": float(teleporter.moves),
                "undone": float(teleporter.undone),
            }
            runs.append(Run(float(number), final_value=mine[1][-1], chosen=number == 0, facts=facts | tuning))
        return runs

    def _train(self, arm: Arm, lr: float, budget: float, shift: float = 0.0) -> tuple[Losses, Teleported]:
        """Step until the budget is spent. A loss counts from its gradient on; points merely tried do not count."""
        instance = self.problem.build()
        objective = Metered(instance.objective, max_cost=budget)
        x, function = nn.Parameter(_shifted(instance.x0, shift)), TorchFunction(objective)
        optimizer = arm.wrap(OPTIMIZERS[self.optimizer]([x], lr))
        losses: Losses = []
        with suppress(Enough), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # undone moves and silent schedules are counted instead
            while True:
                known = objective.spent + 1.0
                losses.append((known, float(optimizer.step(lambda: function(x)))))
        return losses, optimizer

    def _tuned(self) -> tuple[float, float, float]:
        return tuned_inside(lambda lr: self._train(Arm(Never()), lr, TUNING)[0][-1][1], 0.1)


def _shifted(x: Tensor, share: float) -> Tensor:
    """``x`` moved by that share of its norm in a random direction, always the same one."""
    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=x.dtype)
    return x + share * x.norm() / direction.norm() * direction


Losses = list[tuple[float, float]]
"""Of the steps, each with the gradient equivalents at which it was known."""
BestSoFar = tuple[list[float], list[float]]


def _best_so_far(losses: Losses) -> BestSoFar:
    finite = [(cost, value if math.isfinite(value) else math.inf) for cost, value in losses]
    return [cost for cost, _ in finite], list(accumulate((value for _, value in finite), min))


def _largest(name: str, mine: BestSoFar, theirs: BestSoFar, since: float, until: float) -> dict[str, float]:
    """The largest ratio of the best losses so far in a range of costs, and where it is; nothing for an empty range."""
    costs = [cost for cost in sorted({since, *mine[0], *theirs[0]}) if since <= cost <= until]
    ratios = [_value_at(mine, cost) / _value_at(theirs, cost) for cost in costs]
    worst = max(ratios, default=math.nan)
    return {name: worst, f"{name}_at": costs[ratios.index(worst)] if costs else math.nan}


def _value_at(curve: BestSoFar, cost: float) -> float:
    return curve[1][bisect_right(curve[0], cost) - 1]


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


def specs(groups: tuple[str, ...] = tuple(GROUPS)) -> list[RunSpec]:
    """Every optimizer on every network."""
    return [
        EqualCostSpec(problem, optimizer, LATEST if name == "PINNs" else UNTIL)
        for name in groups
        for problem, optimizer in product(GROUPS[name], OPTIMIZERS)
    ]
