"""Does a teleport ever hurt a training run? Small networks, many seeds, with teleports and without, step by step.

Every run is compared with its twin: the same network, data, optimizer and number of steps, but no teleports. Two
figures per run: the largest loss relative to both its own best so far and the twin's loss at the same step (a *spike*
is above both), and the last loss relative to the twin's last. :func:`at_equal_cost` compares by evaluations instead of
steps, on larger networks. ``python -m levelport.lab.bench.safety DIRECTORY`` runs both and writes tables.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor, nn

from levelport.lab.bench.competitors import TORCH, Competitor, wrapped
from levelport.lab.bench.instances import ProblemName, networks
from levelport.lab.bench.metered import Metered
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


def compare(activation: str, optimizer: str, schedule: str, seed: int, plain: list[float]) -> Twins:
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


def run(seeds: range, schedules: tuple[str, ...] = tuple(SCHEDULES)) -> Iterator[Twins]:
    """All combinations of the study."""
    for activation, optimizer, seed in product(ACTIVATIONS, OPTIMIZERS, seeds):
        plain, _ = train(activation, optimizer, seed, lambda inner: inner)
        for schedule in schedules:
            yield compare(activation, optimizer, schedule, seed, plain)


def digest(twins: list[Twins]) -> pd.DataFrame:
    """A row per optimizer, schedule and activation: what happened over the seeds."""
    frame = pd.DataFrame([vars(one) | {"safe": one.safe} for one in twins])
    groups = frame.groupby(["optimizer", "schedule", "activation"], sort=False)
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


@dataclass(frozen=True)
class AtEqualCost:
    """Losses of an optimizer with its default teleports over those without, at equal cost.

    Attributes:
        worst, at: the largest ratio of best losses so far at any cost from 100 on, and where.
        last: the ratio when the budget is spent.
    """

    problem: str
    reg: float
    optimizer: str
    lr: float
    worst: float
    at: float
    last: float


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


def at_equal_cost(problem: ProblemName, optimizer: str, budget: float = 400.0) -> AtEqualCost:
    """Both runs through the same meter."""
    lr = EQUAL_COST[optimizer]
    mine, theirs = (_best_so_far(problem, optimizer, lr, schedule, budget) for schedule in (None, Never()))
    costs = [cost for cost in sorted({100.0, *mine[0], *theirs[0]}) if 100.0 <= cost <= budget]
    ratios = [_value_at(mine, cost) / _value_at(theirs, cost) for cost in costs]
    worst = max(ratios)
    return AtEqualCost(
        problem.name, problem.reg, optimizer, lr, worst, costs[ratios.index(worst)], _last(mine) / _last(theirs)
    )


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


def _last(curve: BestSoFar) -> float:
    return curve[1][-1]


def write(directory: Path, seeds: range = range(30)) -> None:
    """Both studies, as tables; rows appear as they are measured."""
    directory.mkdir(parents=True, exist_ok=True)
    digest(list(run(seeds))).to_csv(directory / "twins.csv", index=False, float_format="%.4g")
    rows = []
    for problem, optimizer in product([*OTHER_NETWORKS, *BENCHMARK_NETWORKS], EQUAL_COST):
        rows.append(vars(at_equal_cost(problem, optimizer)))
        pd.DataFrame(rows).to_csv(directory / "equal-cost.csv", index=False, float_format="%.4g")


if __name__ == "__main__":
    write(Path(sys.argv[1]), range(int(sys.argv[2]) if len(sys.argv) > 2 else 30))
