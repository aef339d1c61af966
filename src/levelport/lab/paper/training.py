"""The specification behind most figures: one method with its grid of settings on one problem."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from levelport.lab.engine.spec import Run, RunSpec, choose
from levelport.lab.paper.descent import Batches, Descent
from levelport.lab.paper.ensemble import Ensemble, ensemble_of
from levelport.lab.paper.methods import Method
from levelport.lab.paper.teleports import TeleportPlan
from levelport.problems import Problem, problem

Precision = Literal["float64", "float32"]


@dataclass(frozen=True)
class Training(RunSpec):
    """Train one problem by one method with every setting of a grid, and keep the best.

    Attributes:
        problem, reg, seed: the problem by name, its penalty and its repeat.
        method, settings: the method and the grid.
        ticks: iterations, or epochs where there are mini-batches.
        batch: samples per mini-batch; None takes all.
        plan: teleports; None for none.
        timed: run the chosen setting once more, alone, for times that mean something.
        precision: of the arithmetic.
    """

    kind: ClassVar[str] = "training"
    problem: str
    reg: float
    method: Method
    settings: tuple[float, ...]
    ticks: int
    batch: int | None = None
    plan: TeleportPlan | None = None
    seed: int = 0
    timed: bool = False
    precision: Precision = "float64"

    @property
    def label(self) -> str:
        teleports = f" + {self.plan.solver} teleports" if self.plan is not None else ""
        return f"{self.problem} reg {self.reg:g} {self.method.label}{teleports}"

    def named_problem(self) -> Problem:
        """The problem itself."""
        return problem(self.problem, reg=self.reg, seed=self.seed, dtype=getattr(torch, self.precision))

    def run(self) -> list[Run]:
        ensemble = ensemble_of(self.named_problem())
        runs = choose(self._descend(ensemble, self.settings))
        if not self.timed:
            return runs
        best = next(run for run in runs if run.chosen)
        (alone,) = self._descend(ensemble, (best.setting,))
        return [alone if run.chosen else run for run in runs]

    def _descend(self, ensemble: Ensemble, settings: tuple[float, ...]) -> list[Run]:
        batches = None if self.batch is None else Batches(self.batch, self.seed)
        return Descent(ensemble, self.method, settings, self.plan, batches).run(self.ticks)

    @property
    def rough_seconds(self) -> float:
        """Operations over a speed of one core, plus a fixed time per call; from runs on a small machine."""
        named = self.named_problem()
        samples = 0.8 * named.info.samples
        entries = samples * named.dimension
        per_gradient = 2e-10 * entries + (3e-8 * samples if named.convex else 2e-8 * samples)
        members = len(self.settings)
        steps = self.ticks * (1 if self.batch is None else -(-samples // self.batch))
        share = 1.0 if self.batch is None else self.batch / samples
        trials = 4.0 if self.method is Method.ARMIJO else 1.0
        descending = steps * (2e-4 + trials * members * share * per_gradient)
        if self.plan is None:
            return descending
        teleports = len([tick for tick in self.plan.at if tick < self.ticks])
        per_iteration = (3e-4 if named.convex else 3e-3) + (4 if named.convex else 6) * per_gradient
        return descending + members * teleports * self.plan.limit * per_iteration

    def without_teleports(self) -> Training:
        """The same run without teleports."""
        return dataclasses.replace(self, plan=None)
