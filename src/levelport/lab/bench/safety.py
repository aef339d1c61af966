"""Does a teleport ever hurt a training run? Small networks, many seeds, with teleports and without, step by step.

Every run is compared with its twin: the same network, data, optimizer and number of steps, but no teleports. Two
figures per run: the largest loss relative to both its own best so far and the twin's loss at the same step (a *spike*
is above both), and the last loss relative to the twin's last. :class:`EqualCostSpec` compares by evaluations instead of
steps, on larger networks. Both are the suite ``levelport bench safety``.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import pandas as pd
import torch
from torch import Tensor, nn

from levelport.lab.bench.competitors import TORCH, Competitor, wrapped
from levelport.lab.bench.instances import ProblemName, networks
from levelport.lab.bench.metered import Metered
from levelport.lab.engine.spec import Run, RunSpec
from levelport.lab.engine.store import TaskResult
from levelport.optim import Every, Never, Schedule, Teleported

ACTIVATIONS: dict[str, type[nn.Module]] = {"softplus": nn.Softplus, "relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU}
OPTIMIZERS: dict[str, Callable[[list[Tensor]], torch.optim.Optimizer]] = {
    "SGD 0.1": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum 0.02": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9),
    "Adam 3e-3": lambda p: torch.optim.Adam(p, lr=3e-3),
}
SCHEDULES: dict[str, Schedule | None] = {"every 20": Every(20, start=10), "default": None}
STEPS = 100
SPIKE, END = 1.25, 1.05
"""What must not be exceeded."""


@dataclass(frozen=True)
class Twins:
    """A run with teleports against its twin without."""

    activation: str
    optimizer: str
    schedule: str
    seed: int
    finite: bool
    spike: float
    end: float
    teleports: int
    undone: int

    @property
    def safe(self) -> bool:
        """Whether nothing happened that must not happen."""
        return self.finite and self.spike <= SPIKE and self.end <= END


def train(
    activation: str, optimizer: str, seed: int, wrap: Callable[[torch.optim.Optimizer], torch.optim.Optimizer]
) -> tuple[list[float], torch.optim.Optimizer]:
    """The losses before every step and after the last, of the network in the README."""
    torch.manual_seed(seed)
    x, y = torch.randn(64, 5), torch.randn(64, 1)
    model = nn.Sequential(nn.Linear(5, 16), ACTIVATIONS[activation](), nn.Linear(16, 1))

    def loss() -> Tensor:
        return nn.functional.mse_loss(model(x), y)

    stepper = wrap(OPTIMIZERS[optimizer](list(model.parameters())))
    losses = []
    for _ in range(STEPS):
        if isinstance(stepper, Teleported):
            losses.append(float(stepper.step(loss)))  # type: ignore[arg-type]
        else:
            stepper.zero_grad()
            value = loss()
            value.backward()
            stepper.step()
            losses.append(float(value.detach()))
    with torch.no_grad():
        losses.append(float(loss()))
    return losses, stepper


def wrapper(schedule: str) -> Callable[[torch.optim.Optimizer], torch.optim.Optimizer]:
    """Teleports by the schedule of that name; "default" leaves the choice to the library."""
    chosen = SCHEDULES[schedule]
    return lambda inner: Teleported(inner) if chosen is None else Teleported(inner, chosen)


def against_twin(activation: str, optimizer: str, schedule: str, seed: int, plain: list[float]) -> Twins:
    """One run against its twin's losses."""
    losses, stepper = train(activation, optimizer, seed, wrapper(schedule))
    assert isinstance(stepper, Teleported)
    finite = all(math.isfinite(loss) for loss in losses)
    best, spike = math.inf, 0.0
    for mine, theirs in zip(losses, plain, strict=True):
        best = min(best, mine)
        spike = max(spike, min(mine / best, mine / theirs) if finite else math.inf)
    teleporter = stepper.teleporter
    return Twins(
        activation,
        optimizer,
        schedule,
        seed,
        finite,
        spike,
        losses[-1] / plain[-1] if finite else math.inf,
        teleporter.teleports,
        teleporter.undone,
    )


@dataclass(frozen=True)
class TwinsSpec(RunSpec):
    """One network, optimizer and seed; a run per schedule, whose number is the setting."""

    kind: ClassVar[str] = "safety"
    activation: str
    optimizer: str
    seed: int

    @property
    def label(self) -> str:
        return f"safety of {self.optimizer} on {self.activation}, seed {self.seed}"

    def run(self) -> list[Run]:
        plain, _ = train(self.activation, self.optimizer, self.seed, lambda inner: inner)
        runs = []
        for number, schedule in enumerate(SCHEDULES):
            twins = against_twin(self.activation, self.optimizer, schedule, self.seed, plain)
            names = ("finite", "spike", "end", "safe", "teleports", "undone")
            facts = {name: float(getattr(twins, name)) for name in names}
            runs.append(Run(setting=float(number), facts=facts, chosen=number == 0))
        return runs


def digest(results: Iterable[TaskResult]) -> pd.DataFrame:
    """A row per optimizer, schedule and activation: what happened over the seeds."""
    names = list(SCHEDULES)
    rows = [
        {name: result.spec[name] for name in ("activation", "optimizer", "seed")}
        | {"schedule": names[int(run.setting)]}
        | run.facts
        for result in results
        for run in result.runs
    ]
    if not rows:
        return pd.DataFrame()
    groups = pd.DataFrame(rows).groupby(["optimizer", "schedule", "activation"])
    return groups.agg(
        runs=("seed", "size"),
        finite=("finite", "sum"),
        safe=("safe", "sum"),
        worst_spike=("spike", "max"),
        worst_end=("end", "max"),
        median_end=("end", "median"),
        teleports=("teleports", "sum"),
        undone=("undone", "sum"),
    ).reset_index()


EQUAL_COST = {"ArmijoSGD": 0.1, "SGD": 0.1, "SGD with momentum": 0.01}
"""Optimizers and their step sizes (ArmijoSGD finds its own). Adam's default is Never: there is nothing to run."""

BENCHMARK_NETWORKS = networks(
    ["pima", "ionosphere", "breast-cancer", "blood", "conn-bench-sonar-mines-rocks"], regs=(1e-2, 1e-4)
)
OTHER_NETWORKS = [
    ProblemName("network", f"mlp-{activation}-20/{data}", reg, seed=1)
    for data in ("horse-colic", "credit-approval", "mammographic", "tic-tac-toe", "titanic")
    for activation in ("relu", "softplus")
    for reg in (1e-3, 1e-5)
]


@dataclass(frozen=True)
class EqualCostSpec(RunSpec):
    """Losses of an optimizer with its default teleports over those without, at equal cost, through the same meter."""

    kind: ClassVar[str] = "safety-equal-cost"
    problem: ProblemName
    optimizer: str
    budget: float = 400.0

    @property
    def label(self) -> str:
        return f"safety of {self.optimizer} on {self.problem} at equal cost"

    @property
    def rough_seconds(self) -> float:
        return 8e-3 * self.budget

    def run(self) -> list[Run]:
        """The largest ratio of best losses so far at any cost from 100 on, where it is, and the ratio at the end."""
        lr = EQUAL_COST[self.optimizer]
        mine, theirs = (
            _best_so_far(self.problem, self.optimizer, lr, schedule, self.budget) for schedule in (None, Never())
        )
        costs = [cost for cost in sorted({100.0, *mine[0], *theirs[0]}) if 100.0 <= cost <= self.budget]
        ratios = [_value_at(mine, cost) / _value_at(theirs, cost) for cost in costs]
        worst = max(ratios)
        facts = {"lr": lr, "worst": worst, "at": costs[ratios.index(worst)], "last": mine[1][-1] / theirs[1][-1]}
        return [Run(final_value=mine[1][-1], facts=facts)]


BestSoFar = tuple[list[float], list[float]]


def _best_so_far(
    problem: ProblemName, optimizer: str, lr: float, schedule: Schedule | None, budget: float
) -> BestSoFar:
    instance = problem.build()
    objective = Metered(instance.objective, max_cost=budget)
    Competitor(optimizer, wrapped(TORCH[optimizer], schedule, lr)).run(objective, instance)
    curves = objective.best_so_far()
    return curves["gradient_equivalents"].tolist(), curves["value"].tolist()


def _value_at(curve: BestSoFar, cost: float) -> float:
    return curve[1][bisect_right(curve[0], cost) - 1]


def specs(seeds: range) -> list[RunSpec]:
    """All combinations of both studies."""
    twins: list[RunSpec] = [TwinsSpec(*each) for each in product(ACTIVATIONS, OPTIMIZERS, seeds)]
    return twins + [EqualCostSpec(*each) for each in product([*OTHER_NETWORKS, *BENCHMARK_NETWORKS], EQUAL_COST)]
