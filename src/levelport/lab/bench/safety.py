"""Does a teleport ever hurt a training run? Small networks, many seeds, with teleports and without, step by step.

Every run is compared with its twin: the same network, data, optimizer and number of steps, but no teleports. Two
figures per run: the largest loss relative to both its own best so far and the twin's loss at the same step (a *spike*
is above both), and the last loss relative to the twin's last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import pandas as pd
import torch
from torch import Tensor, nn

from levelport.optim import Every, Schedule, Teleported

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


if __name__ == "__main__":
    import sys

    seeds = range(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
    print(digest(list(run(seeds))).to_string(float_format=lambda value: f"{value:.3f}"))
