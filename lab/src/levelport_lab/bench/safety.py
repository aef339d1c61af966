"""Does a teleport ever hurt a training run? Small networks, many seeds, with teleports and without, step by step.

Every run is compared with the reference run: the same network, data, optimizer and number of steps without teleports.
Two figures per run: the largest loss relative to both its own best so far and the reference loss at the same step (a
*spike* is above both), and the last loss relative to the last reference loss. :mod:`levelport_lab.bench.equal_cost`
compares by evaluations instead of steps, on larger networks. Both are the suite ``levelport bench safety``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import pandas as pd
import torch
from torch import Tensor, nn

from levelport.optim import Every, Schedule, Teleported, WhileAffordable
from levelport_lab.engine.spec import Run, RunSpec
from levelport_lab.engine.store import TaskResult

ACTIVATIONS: dict[str, type[nn.Module]] = {"softplus": nn.Softplus, "relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU}
OPTIMIZERS: dict[str, Callable[[list[Tensor]], torch.optim.Optimizer]] = {
    "SGD 0.1": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum 0.02": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9),
    "Adam 3e-3": lambda p: torch.optim.Adam(p, lr=3e-3),
}


@dataclass(frozen=True)
class Arm:
    """A way to teleport: a schedule, None for the default one, and whether moves may be undone."""

    schedule: Schedule | None
    undo: bool = True

    def wrap(self, optimizer: torch.optim.Optimizer) -> Teleported:
        """Give ``optimizer`` teleports, with everything else at its default."""
        teleported = Teleported(optimizer, self.schedule)
        teleported.teleporter.policy.undoes &= self.undo
        return teleported


DEFAULTS = {
    "default": Arm(None),
    "default, no undo": Arm(None, undo=False),
    "no account": Arm(WhileAffordable(rise=math.inf, share=math.inf)),
}
"""The default, and the same without its safeguards: the undo, and the limit to what trials may cost."""
ARMS = {
    "every 20": Arm(Every(20, start=10)),
    "every 20, no undo": Arm(Every(20, start=10), undo=False),
    **DEFAULTS,
}
WITH_DEFAULT = ("SGD 0.1",)
"""Optimizers with a default schedule."""
STEPS = 200
FRESH_SEEDS = range(400, 430)
"""Fixed before the first run with them."""
SPIKE, END = 1.25, 1.05
"""The limits of a safe run."""


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
            before = stepper.step(loss)
            assert before is not None  # a closure was given
            losses.append(float(before))
        else:
            stepper.zero_grad()
            value = loss()
            value.backward()
            stepper.step()
            losses.append(float(value.detach()))
    with torch.no_grad():
        losses.append(float(loss()))
    return losses, stepper


def compared(activation: str, optimizer: str, schedule: str, seed: int, plain: list[float]) -> dict[str, float]:
    """Run with teleports and compare with the losses ``plain`` of the run without: the facts of a row."""
    losses, stepper = train(activation, optimizer, seed, ARMS[schedule].wrap)
    assert isinstance(stepper, Teleported)
    finite = all(math.isfinite(loss) for loss in losses)
    best, spike = math.inf, 0.0
    for mine, theirs in zip(losses, plain, strict=True):
        best = min(best, mine)
        spike = max(spike, min(mine / best, mine / theirs) if finite else math.inf)
    end = losses[-1] / plain[-1] if finite else math.inf
    return {
        "finite": float(finite),
        "spike": spike,
        "end": end,
        "safe": float(finite and spike <= SPIKE and end <= END),
        "teleports": float(stepper.teleporter.moves),
        "undone": float(stepper.teleporter.undone),
    }


@dataclass(frozen=True)
class SafetySpec(RunSpec):
    """One network, optimizer and seed; a run per arm, whose number is the setting."""

    kind: ClassVar[str] = "safety"
    revision: ClassVar[int] = 3
    activation: str
    optimizer: str
    seed: int

    @property
    def label(self) -> str:
        return f"safety of {self.optimizer} on {self.activation}, seed {self.seed}"

    def run(self) -> list[Run]:
        plain, _ = train(self.activation, self.optimizer, self.seed, lambda inner: inner)
        runs = []
        for number, schedule in enumerate(ARMS):
            if schedule in DEFAULTS and self.optimizer not in WITH_DEFAULT:
                continue
            facts = compared(self.activation, self.optimizer, schedule, self.seed, plain)
            runs.append(Run(setting=float(number), facts=facts, chosen=number == 0))
        return runs


def rows(results: Iterable[TaskResult]) -> pd.DataFrame:
    """A row per run: what happened to it."""
    names = list(ARMS)
    return pd.DataFrame(
        {name: result.spec[name] for name in ("optimizer", "activation", "seed")}
        | {"schedule": names[int(run.setting)]}
        | run.facts
        for result in results
        for run in result.runs
    )


def specs(seeds: range = FRESH_SEEDS) -> list[RunSpec]:
    """All combinations."""
    return [SafetySpec(*each) for each in product(ACTIVATIONS, OPTIMIZERS, seeds)]
