"""Training experiments: one method with its grid of settings on one problem.

Tasks of one data set that differ in penalty, method, grid and teleports make up a :class:`Cohort`: all their members
descend together (:mod:`levelport_lab.paper.descent`), which takes a small part of the time.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from levelport_lab.choices import Protocol
from levelport_lab.engine.spec import Run, RunSpec
from levelport_lab.paper.batched import BatchedProblem, batched
from levelport_lab.paper.descent import Arm, Batches, Descent, lowest
from levelport_lab.paper.methods import Method
from levelport_lab.paper.teleports import TeleportPlan
from levelport_lab.problems import Problem, problem
from levelport_lab.problems.datasets import SPLIT_SEED

Precision = Literal["float64", "float32"]

SCORED = ("value", "loss", "gradient_equivalents", "seconds")
"""What settings that are not chosen keep: enough to score them by either protocol."""

_LARGEST_OF_A_COHORT = 100_000_000
"""Samples times parameters: larger problems gain nothing from company, and a cut would lose more of them."""


@dataclass(frozen=True)
class Training(RunSpec):
    """Train one problem by one method with every setting of a grid, and keep the best.

    Attributes:
        problem, reg, seed: the problem by name, its penalty and its repeat.
        method, settings: the method and the grid.
        ticks: iterations, or epochs where there are mini-batches.
        batch: samples per mini-batch; None takes all.
        plan: teleports; None for none.
        timed: run the chosen setting, or every setting, once more, alone, for times that mean something.
        precision: of the arithmetic.
        protocol: "released" starts where the authors' models start, caps the line search as theirs does, and leaves out
            the last mini-batch of an epoch where it is smaller than the others.
        admissible: stop members whose loss has grown to this multiple of its first: no scoring that asks for less can
            count them as solved.
    """

    kind: ClassVar[str] = "training"
    revision: ClassVar[int] = 4
    problem: str
    reg: float
    method: Method
    settings: tuple[float, ...]
    ticks: int
    batch: int | None = None
    plan: TeleportPlan | None = None
    seed: int = 0
    timed: Literal["no", "chosen", "every"] = "no"
    precision: Precision = "float64"
    protocol: Protocol = "text"
    admissible: float | None = None

    @property
    def label(self) -> str:
        teleports = f" + {self.plan.solver} teleports" if self.plan is not None else ""
        return f"{self.problem} reg {self.reg:g} {self.method.label}{teleports}"

    def named_problem(self) -> Problem:
        """The problem itself."""
        return problem(self.problem, reg=self.reg, seed=self.seed, dtype=getattr(torch, self.precision))

    def run(self) -> list[Run]:
        return Cohort((self,)).run()

    @property
    def arm(self) -> Arm:
        """What distinguishes the task from others of its cohort."""
        return Arm(
            self.method, self.settings, self.reg, self.plan, math.inf if self.admissible is None else self.admissible
        )

    @property
    def family(self) -> str | None:
        """Untimed tasks of a small problem, without teleports or with the published solver's, form a cohort."""
        named = self.named_problem()
        apart = self.plan is not None and self.plan.solver == "ours"  # its teleports are made one after the other
        if apart or self.timed != "no" or named.info.training_samples * named.dimension > _LARGEST_OF_A_COHORT:
            return None
        return f"{self.problem} {self.seed} {self.ticks} {self.batch} {self.precision} {self.protocol}"

    @classmethod
    def bundle(cls, specs: Sequence[RunSpec]) -> RunSpec:
        return Cohort(tuple(spec for spec in specs if isinstance(spec, Training)))

    @property
    def data_sets(self) -> tuple[str, ...]:
        return (self.problem.partition("/")[2],)

    @property
    def rough_seconds(self) -> float:
        """A fixed time per evaluation, which members that descend together share, and one per entry of the data.

        Both were measured on one core of a small machine.
        """
        named = self.named_problem()
        samples, grid = named.info.training_samples, len(self.settings)
        share = 1.0 if self.batch is None else self.batch / samples
        steps = self.ticks / share * (4 if self.method is Method.ARMIJO else 1)
        teleports = 0.0
        if self.plan is not None:
            # Of the published solver most members stop long before its limit.
            evaluations = (3.0 if self.plan.solver == "ours" else 0.7) * self.plan.limit
            teleports = evaluations * sum(tick <= self.ticks for tick in self.plan.at)
        evaluation = 1e-10 * samples * named.dimension + 1e-8 * samples
        descents, members = {"no": (1, grid), "chosen": (2, grid + 1), "every": (grid, grid)}[self.timed]
        return 3e-4 * (steps + teleports) * descents + members * (share * steps + teleports) * evaluation


@dataclass(frozen=True)
class Cohort(RunSpec):
    """Tasks of one family: the same data, start, length and mini-batches."""

    kind: ClassVar[str] = "cohort"
    tasks: tuple[Training, ...]

    @property
    def label(self) -> str:
        return f"{self.tasks[0].label} and {len(self.tasks) - 1} more"

    def run(self) -> list[Run]:
        with _no_subnormals():
            return [run for task, runs in zip(self.tasks, self._run(), strict=True) for run in keep_best(runs)]

    def parts(self, runs: list[Run]) -> Iterator[tuple[RunSpec, list[Run]]]:
        """The runs of each task; a failure is everybody's."""
        ends = list(accumulate((len(task.settings) for task in self.tasks), initial=0))
        for task, (begin, end) in zip(self.tasks, pairwise(ends), strict=True):
            yield task, runs[begin:end] if len(runs) == ends[-1] else runs

    def _run(self) -> list[list[Run]]:
        first = self.tasks[0]
        members = batched(first.named_problem())
        if first.timed == "no":
            return self._descend(members, [task.arm for task in self.tasks])
        assert len(self.tasks) == 1, "runs whose time is measured are made alone"
        if first.timed == "every":
            return [[self._alone(members, setting) for setting in first.settings]]
        (runs,) = self._descend(members, [first.arm])
        best = int(np.argmin([run.final_value for run in runs]))
        runs[best] = self._alone(members, first.settings[best])
        return [runs]

    def _alone(self, members: BatchedProblem, setting: float) -> Run:
        """One setting, for times that mean something."""
        ((run,),) = self._descend(members, [replace(self.tasks[0].arm, settings=(setting,))])
        return run

    def _descend(self, members: BatchedProblem, arms: list[Arm]) -> list[list[Run]]:
        task = self.tasks[0]
        released = task.protocol == "released"
        batches = None if task.batch is None else Batches(task.batch, task.seed, released)
        start = authors_start(members.problem) if released else None
        return Descent(members, arms, batches, start=start, capped=released).run(task.ticks)


@contextlib.contextmanager
def _no_subnormals() -> Iterator[None]:
    """Numbers below the normal range count as 0, where the processor can do that: with them it is many times slower.

    A network whose units are all dead feels the penalty alone, which shrinks its weights down to such numbers; a
    member that has long lost would take a good part of its grid's time.
    """
    kept = bool(torch.tensor(torch.finfo(torch.float32).tiny) / 2.0 > 0.0)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(not kept)


def authors_start(named: Problem) -> Tensor:
    """The start of the released runs, bit for bit in float32: models are built under the seed 1234567 + repeat."""
    seeded = replace(named, seed=SPLIT_SEED + named.seed, dtype=torch.float32)
    return seeded.initial_point().to(named.dtype)


def keep_best(runs: list[Run]) -> list[Run]:
    """Mark the run with the smallest final f as chosen, the first one if there is none.

    That is the text's rule; the released scripts choose later. So all runs keep what a profile needs, and those with
    the smallest final f, final loss and best loss so far keep everything.
    """
    best, kept = int(np.argmin([run.final_value for run in runs])), lowest(runs)
    return [
        replace(run, chosen=index == best)
        if index in kept
        else replace(run, chosen=False, curves={name: run.curves[name] for name in SCORED})
        for index, run in enumerate(runs)
    ]
