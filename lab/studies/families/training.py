"""Training with each family at equal cost: tuned step sizes, fresh seeds, a random control, losses shown.

One task is one place × optimizer × family × schedule × batch size. It tunes the step size on seeds of its own, by the
mean final loss, on a grid of factors of √10 that is lengthened at the end where the best lies until the best lies
inside, and runs the chosen one on fresh seeds. Whether it came to lie inside is a fact of the result: a comparison with
an arm at the edge is no comparison. Cost and processor time include the moves; the loss on all training samples that
curves show is not charged: it is measuring, not training.

Schedules are of two kinds.

* "ours": before steps 0, 20, 40, 60 and 80 of full batches, and before each of the first five epochs with mini-batches,
  where a move sees all samples. The level set has a second one, what ``Teleported`` does by default on the loss of the
  step; around Adam that is no teleport at all, so that arm is not run.
* "authors": as those who proposed the family move. A random basis once, before the first step; balance, one sweep,
  before every step; the group around an activation before each of the first eight steps, on 200 samples (their code
  waits for the third epoch with plain SGD, and makes the optimizer anew at each move; neither is done here); the level
  set before step 5 and every 50 steps from there (with 10 products; their 50 would take the whole budget at once).
  We know of no published schedule for the other moves.

Otherwise the state of the optimizer is kept at a move.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from loop import DefaultTraining, Optimizer, Training
from moves import FAMILIES, Place, part_of
from torch import Tensor

from levelport.vectors import all_finite
from levelport_lab.engine.spec import Run, RunSpec

Schedule = Literal["ours", "authors"]

GRIDS: dict[str, tuple[int, ...]] = {
    "SGD": (-2, -1, 0, 1),
    "momentum": (-3, -2, -1, 0),
    "Adam": (-5, -4, -3, -2),
    "GD-Armijo": (0,),
}
"""Step sizes to begin with, 10^(k/2); GD-Armijo has none to tune."""

LONGEST_GRID = 10
PERIOD, MOVES = 20, 5
NONE, DEFAULT = "none", "level set, default"
DIVERGED = 1e300


@dataclass(frozen=True)
class FamilyTrainingSpec(RunSpec):
    """One arm of the study. The setting of a run is its step size; facts say which seed, and whether a fresh one."""

    kind: ClassVar[str] = "family-training"
    revision: ClassVar[int] = 2
    place: Place
    optimizer: Optimizer
    family: str
    schedule: Schedule
    batch: int | None
    max_cost: float
    tuning: tuple[int, ...]
    fresh: tuple[int, ...]
    grid: tuple[int, ...]

    @property
    def label(self) -> str:
        size = "full batch" if self.batch is None else f"batches of {self.batch}"
        return f"{self.optimizer} + {self.family} ({self.schedule}) on {self.place}, {size}"

    @property
    def rough_seconds(self) -> float:
        each = 1e-2 if "mnist" in self.place.network else 1.5e-3
        return each * self.max_cost * (len(self.grid) * len(self.tuning) + len(self.fresh))

    def run(self) -> list[Run]:
        tuned: dict[int, list[Run]] = {}
        exponents, best = list(self.grid), self.grid[0]
        while missing := [k for k in exponents if k not in tuned]:
            tuned |= {k: [self._train(self.size(k), seed, fresh=False) for seed in self.tuning] for k in missing}
            best = min(exponents, key=lambda k: statistics.fmean(run.final_value for run in tuned[k]))
            if 1 < len(exponents) < LONGEST_GRID and best in (exponents[0], exponents[-1]):
                exponents = [best - 1, *exponents] if best == exponents[0] else [*exponents, best + 1]
        interior = float(len(exponents) == 1 or best not in (exponents[0], exponents[-1]))
        fresh = [self._train(self.size(best), seed, fresh=True, interior=interior) for seed in self.fresh]
        return [*fresh, *(run for k in exponents for run in tuned[k])]

    def size(self, exponent: int) -> float:
        """The step size of an entry of the grid."""
        return float(10.0 ** (exponent / 2))

    def due(self, step: int, epoch_begins: bool, moves: int) -> bool:
        """Whether to move before this step."""
        if self.schedule == "ours":
            often = step % PERIOD == 0 if self.batch is None else epoch_begins
            return often and moves < MOVES
        if self.family == "activation group":
            return step < 8
        if self.family == "level set, published":
            return step % 50 == 5
        return step == 0 or self.family == "balance, one sweep"

    def _train(self, lr: float, seed: int, *, fresh: bool, interior: float = math.nan) -> Run:
        objective, x, accuracy = self.place.build(seed)
        family = None if self.family in (NONE, DEFAULT) else FAMILIES[self.family]
        make = DefaultTraining if self.family == DEFAULT else Training
        training = make(objective, x, self.optimizer, lr, self.max_cost)
        rows: list[Tensor] = []
        epoch = 0
        while training.goes_on:
            if family is not None and self.due(training.steps, not rows, training.moves):
                training.move(family, seed)
            if self.batch is None:
                training.step(objective, 1.0)
                continue
            if not rows:
                generator = torch.Generator().manual_seed(7919 * seed + epoch)
                rows = list(torch.randperm(len(objective.inputs), generator=generator).split(self.batch))
                epoch += 1
                training.record(training.full_loss())
            chosen = rows.pop()
            training.step(part_of(objective, chosen), len(chosen) / len(objective.inputs))
        training.record(training.full_loss())
        final = training.curves["value"][-1] if training.curves["value"] else math.inf
        facts = {
            "seed": float(seed),
            "fresh": float(fresh),
            "interior": interior,
            "gradient_equivalents": training.cost,
            "seconds": training.seconds,
            "moves": float(training.moves),
            "test_accuracy": accuracy(training.kept) if fresh else math.nan,
        }
        curves = {name: np.array(values) for name, values in training.curves.items()} if fresh else {}
        sound = math.isfinite(final) and all_finite(training.x)
        return Run(setting=lr, final_value=final if sound else DIVERGED, facts=facts, curves=curves, chosen=fresh)


@dataclass(frozen=True)
class FamilyConfirmationSpec(FamilyTrainingSpec):
    """An arm that has paid, once more: step sizes four to a decade, tuned on three seeds, and ten other fresh seeds."""

    kind: ClassVar[str] = "family-confirmation"

    def size(self, exponent: int) -> float:
        return float(10.0 ** (exponent / 4))


ARMS: tuple[tuple[str, Schedule], ...] = (
    ("rescaling 2", "ours"),
    ("rescaling 2, decrease", "ours"),
    ("balance", "ours"),
    ("balance, one sweep", "authors"),
    ("random basis 0.9", "ours"),
    ("random basis 0.9", "authors"),
    ("null space 1e-3", "ours"),
    ("linear group 2", "ours"),
    ("linear group 2, decrease", "ours"),
    ("activation group", "authors"),
    ("level set, published", "authors"),
    ("level set, auto", "ours"),
    (DEFAULT, "ours"),
    ("random direction", "ours"),
)
"""Families of the training part with their schedules."""


def specs(
    places: tuple[Place, ...],
    *,
    batches: tuple[int | None, ...] = (None,),
    max_cost: float,
    tuning: int,
    fresh: range,
) -> list[RunSpec]:
    """Every arm; the seeds of tuning, from 0 on, and of confirmation have nothing in common."""
    optimizers: tuple[Optimizer, ...] = ("SGD", "momentum", "Adam", "GD-Armijo")
    seeds = tuple(range(tuning)), tuple(fresh)
    alone: tuple[tuple[str, Schedule], ...] = ((NONE, "ours"),)
    return [
        FamilyTrainingSpec(place, optimizer, family, schedule, batch, max_cost, *seeds, GRIDS[optimizer])
        for place in places
        for optimizer in optimizers
        for batch in batches
        if batch is None or optimizer != "GD-Armijo"
        for family, schedule in alone + ARMS
        if place.welcomes(family) and (family, optimizer) != (DEFAULT, "Adam")
    ]


def confirmations(
    place: Place, optimizer: Optimizer, batch: int | None, arms: tuple[tuple[str, Schedule], ...], *, max_cost: float
) -> list[RunSpec]:
    """The optimizer alone and arms that were ahead of it, with twice the step sizes around those that were best."""
    alone: tuple[tuple[str, Schedule], ...] = ((NONE, "ours"),)
    middle = GRIDS[optimizer][1:-1]
    grid, fresh = tuple(range(2 * middle[0] - 1, 2 * middle[-1] + 1)), tuple(range(300, 310))
    return [
        FamilyConfirmationSpec(place, optimizer, family, schedule, batch, max_cost, (0, 1, 2), fresh, grid)
        for family, schedule in alone + arms
    ]
