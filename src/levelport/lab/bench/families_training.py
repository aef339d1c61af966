"""Training with each family at equal cost: tuned step sizes, fresh seeds, a random control, losses shown.

One task is one place × optimizer × family × batch size. It tunes the step size on seeds of its own (a grid of factors
of √10, by the mean final loss), and runs the chosen one on fresh seeds. Whether the best step size lay in the interior
of the grid is a fact of the result: a comparison with an arm at the edge is no comparison. Cost and processor time
include the moves; the loss on all training samples that curves show is not charged: it is measuring, not training.

Schedules: "start" moves once, before the first step, as random bases and balance were proposed; "every" moves at steps
0, 20, 40, 60 and 80 of full batches, and before each of the first five epochs with mini-batches, where a move sees all
samples. The state of the optimizer is kept at a move.
"""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from levelport.lab.bench.families import FAMILIES, Family, Place, part_of
from levelport.lab.engine.spec import Run, RunSpec
from levelport.objective import Objective, Point
from levelport.objectives.module import ModuleObjective
from levelport.optim import Armijo

Optimizer = Literal["SGD", "momentum", "Adam", "GD-Armijo"]

GRIDS: dict[str, tuple[float, ...]] = {
    "SGD": (0.0316, 0.1, 0.316, 1.0, 3.16, 10.0),
    "momentum": (0.00316, 0.01, 0.0316, 0.1, 0.316, 1.0, 3.16),
    "Adam": (3.16e-4, 1e-3, 3.16e-3, 1e-2, 3.16e-2, 0.1),
    "GD-Armijo": (1.0,),
}
"""Step sizes; GD-Armijo has none to tune."""

PERIOD, MOVES = 20, 5
NONE = "none"
DIVERGED = 1e300


@dataclass(frozen=True)
class FamilyTrainingSpec(RunSpec):
    """One arm of the study. The setting of a run is its step size; facts say which seed, and whether a fresh one."""

    kind: ClassVar[str] = "family-training"
    place: Place
    optimizer: Optimizer
    family: str
    schedule: Literal["start", "every"]
    batch: int | None
    max_cost: float
    tuning: tuple[int, ...]
    fresh: tuple[int, ...]
    grid: tuple[float, ...]

    @property
    def label(self) -> str:
        size = "full batch" if self.batch is None else f"batches of {self.batch}"
        return f"{self.optimizer} + {self.family} ({self.schedule}) on {self.place}, {size}"

    @property
    def rough_seconds(self) -> float:
        each = 1.5e-3 if self.place.samples is None else 3e-2
        return each * self.max_cost * (len(self.grid) * len(self.tuning) + len(self.fresh))

    def run(self) -> list[Run]:
        grid = self.grid
        tuned = [self._train(lr, seed, fresh=False) for lr in grid for seed in self.tuning]
        score = {lr: statistics.fmean(run.final_value for run in tuned if run.setting == lr) for lr in grid}
        best = min(grid, key=lambda lr: score[lr])
        interior = float(len(grid) == 1 or best not in (grid[0], grid[-1]))
        runs = [self._train(best, seed, fresh=True, interior=interior) for seed in self.fresh]
        return [*runs, *tuned]

    def _train(self, lr: float, seed: int, *, fresh: bool, interior: float = math.nan) -> Run:
        objective, x, accuracy = self.place.build(seed)
        family = None if self.family == NONE else FAMILIES[self.family]
        training = Training(objective, x, self.optimizer, lr, self.max_cost)
        rows: list[Tensor] = []
        epoch = 0
        while training.goes_on:
            tick, period = (training.steps, PERIOD) if self.batch is None else (epoch, 1)
            due = not rows and tick % period == 0 and training.moves < (MOVES if self.schedule == "every" else 1)
            if family is not None and due:
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
            "test_accuracy": accuracy(training.kept),
        }
        curves = {name: np.array(values) for name, values in training.curves.items()} if fresh else {}
        sound = math.isfinite(final) and bool(torch.isfinite(training.x).all())
        return Run(setting=lr, final_value=final if sound else DIVERGED, facts=facts, curves=curves, chosen=fresh)


class Training:
    """One run: parameters, the state of an optimizer, the bill. What lies beyond the budget is not recorded."""

    def __init__(self, objective: ModuleObjective, x: Tensor, optimizer: Optimizer, lr: float, max_cost: float) -> None:
        self.objective, self.x, self.kept = objective, x, x
        self.optimizer, self.lr, self.max_cost = optimizer, lr, max_cost
        self.cost = self.seconds = 0.0
        self.steps = self.moves = 0
        self.curves: dict[str, list[float]] = {"gradient_equivalents": [], "seconds": [], "value": []}
        self._stuck = False
        self._first = self._second = torch.zeros_like(x)
        self._search: float | None = None
        self._next: Point | None = None

    @property
    def goes_on(self) -> bool:
        """Whether there is budget left, and a point to go on from."""
        return self.cost < self.max_cost and not self._stuck and bool(torch.isfinite(self.x).all())

    def move(self, family: Family, seed: int) -> None:
        """Move by a family, charged."""
        moved = family(self.objective, self.x, seed + 1000 * self.moves)
        self.x, self.moves = moved.x, self.moves + 1
        self.cost += moved.gradient_equivalents
        self.seconds += moved.seconds

    def step(self, objective: ModuleObjective, share: float) -> None:
        """One step on ``objective``, which holds a share of the data."""
        before, began = objective.cost, time.thread_time()
        # The accepted trial of a line search has paid for its forward pass already.
        known = self._next is not None and self._next.x is self.x
        point = self._next if known and self._next is not None else objective.at(self.x)
        _ = point.gradient
        if share == 1.0:
            self.record(point.value)
        self._advance(objective, point)
        self.steps += 1
        self.cost += share * (objective.cost - before).gradient_equivalents
        self.seconds += time.thread_time() - began

    def record(self, value: float) -> None:
        """Write down the loss on all samples at the present cost."""
        if self.cost <= self.max_cost:
            self.kept = self.x
            for name, entry in (("gradient_equivalents", self.cost), ("seconds", self.seconds), ("value", value)):
                self.curves[name].append(entry)

    def full_loss(self) -> float:
        """The loss on all samples, off the bill."""
        f = self.objective
        return float(f.loss(f.predict(self.x, f.inputs), f.targets))

    def _advance(self, objective: Objective, point: Point) -> None:
        gradient, t = point.gradient, self.steps + 1
        if self.optimizer == "SGD":
            self.x = self.x - self.lr * gradient
        elif self.optimizer == "momentum":
            self._first = 0.9 * self._first + gradient
            self.x = self.x - self.lr * self._first
        elif self.optimizer == "Adam":
            self._first = torch.lerp(self._first, gradient, 0.1)
            self._second = 0.999 * self._second + 0.001 * gradient.square()
            scale = (self._second / (1.0 - 0.999**t)).sqrt() + 1e-8
            self.x = self.x - self.lr * (self._first / (1.0 - 0.9**t)) / scale
        else:
            step = Armijo().advance(objective, point, self._search, None)
            self._stuck = step.point is None
            if step.point is not None:
                self.x, self._search, self._next = step.point.x, step.state, step.point


TRAINED = (
    "rescaling 2",
    "rescaling 2, decrease",
    "balance",
    "random basis 0.9",
    "null space 1e-3",
    "level set, auto",
    "random direction",
)
"""Families of the training part. GL between linear layers has no place in a ReLU network."""


def specs(
    places: tuple[Place, ...],
    *,
    batches: tuple[int | None, ...] = (None,),
    schedules: tuple[Literal["start", "every"], ...] = ("every",),
    max_cost: float,
    tuning: int,
    fresh: int,
) -> list[RunSpec]:
    """Every arm; the seeds of tuning and of confirmation have nothing in common."""
    seeds = tuple(range(tuning)), tuple(range(100, 100 + fresh))
    arms: list[tuple[str, Literal["start", "every"]]] = [(NONE, "start")]
    arms += [(family, schedule) for schedule in schedules for family in TRAINED]
    optimizers: tuple[Optimizer, ...] = ("SGD", "momentum", "Adam", "GD-Armijo")
    return [
        FamilyTrainingSpec(place, optimizer, family, schedule, batch, max_cost, *seeds, GRIDS[optimizer])
        for place in places
        for optimizer in optimizers
        for batch in batches
        if batch is None or optimizer != "GD-Armijo"
        for family, schedule in arms
    ]
