"""Training experiments: one method with its grid of settings on one problem, all settings descending together.

At step k of a deterministic run every member teleports if k is in the plan, its value and gradient are recorded, and
it steps. A stochastic run does the same per epoch: teleports on the full batch, a record on the full batch (uncharged,
for the picture only), then one step per mini-batch. All members see the same mini-batches, so one matrix product
serves all.

A record holds f and, apart from it, the loss without its penalty, and every setting keeps what a profile is drawn from:
so that a run can be scored by either protocol (:mod:`levelport_lab.paper.profile_grid`).
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from levelport_lab.choices import Protocol
from levelport_lab.engine.spec import Curve, Run, RunSpec, RunStatus
from levelport_lab.paper.batched import BatchedProblem, batched
from levelport_lab.paper.batched_sqp import teleport_together
from levelport_lab.paper.methods import Method
from levelport_lab.paper.profiles import told_apart
from levelport_lab.paper.spending import Spending
from levelport_lab.paper.teleports import TeleportPlan
from levelport_lab.problems import Problem, problem
from levelport_lab.problems.datasets import SPLIT_SEED

Precision = Literal["float64", "float32"]

_clock = time.process_time  # of a task's one thread: what else the machine does is not the method's

CURVES = ("value", "loss", "gradient_norm", "test_accuracy", "gradient_equivalents", "seconds")
SCORED = ("value", "loss", "gradient_equivalents", "seconds")
"""What settings that are not chosen keep: enough to score them."""


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
    revision: ClassVar[int] = 3
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
        with _no_subnormals():
            return self._run()

    def _run(self) -> list[Run]:
        members = batched(self.named_problem())
        if self.timed == "every":
            return keep_best([self._descend(members, (setting,), timed=True)[0] for setting in self.settings])
        runs = keep_best(self._descend(members, self.settings))
        if self.timed == "no":
            return runs
        best = next(run for run in runs if run.chosen)
        (alone,) = self._descend(members, (best.setting,), timed=True)
        return [alone if run.chosen else run for run in runs]

    def _descend(self, members: BatchedProblem, settings: tuple[float, ...], *, timed: bool = False) -> list[Run]:
        released = self.protocol == "released"
        batches = None if self.batch is None else Batches(self.batch, self.seed, released)
        descent = Descent(
            members,
            self.method,
            settings,
            self.plan,
            batches,
            start=authors_start(members.problem) if released else None,
            capped=released,
            admissible=self.admissible,
            timed=timed,
        )
        return descent.run(self.ticks)

    @property
    def data_sets(self) -> tuple[str, ...]:
        return (self.problem.partition("/")[2],)

    @property
    def rough_seconds(self) -> float:
        """A fixed time per step and a time per operation, fitted to runs on one core of a small machine.

        Members that descend together share the fixed time; those that are run alone for their time do not.
        """
        named = self.named_problem()
        samples, convex = named.info.training_samples, named.convex
        entries = samples * named.dimension
        per_gradient = 8e-10 * entries + 5e-8 * samples if convex else 2e-10 * entries
        per_iteration = 19e-10 * entries + 5e-8 * samples if convex else 7e-10 * entries  # of the published solver
        searches = self.method is Method.ARMIJO
        fixed = (2e-4 if convex else 8e-4) + ((4e-4 if convex else 1e-3) if searches else 0.0)
        steps = self.ticks * (1 if self.batch is None else -(-samples // self.batch))
        share = 1.0 if self.batch is None else self.batch / samples
        teleports = 0 if self.plan is None else self.plan.limit * sum(tick < self.ticks for tick in self.plan.at)
        ours = self.plan is not None and self.plan.solver == "ours"  # its teleports are made one after the other

        def descent(members: int) -> float:
            stepping = steps * (fixed + (4.0 if searches else 1.0) * members * share * per_gradient)
            movers = 1 if self.plan is not None and self.plan.at == (0,) else members
            if ours:
                return stepping + movers * teleports * ((3e-4 if convex else 3e-3) + 2.0 * per_iteration)
            return stepping + teleports * ((6e-4 if convex else 1.4e-3) + movers * per_iteration)

        grid = len(self.settings)
        if self.timed == "every":
            return grid * descent(1)
        return descent(grid) + (descent(1) if self.timed == "chosen" else 0.0)


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


def best_so_far(run: Run) -> float:
    """The smallest recorded loss; infinite if there is none."""
    return float(run.curves["loss"].min(initial=math.inf))


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


def lowest(runs: list[Run]) -> set[int]:
    """The runs with the smallest final f, final loss and best loss so far."""
    return {
        int(np.argmin([run.final_value for run in runs])),
        int(np.argmin([run.facts["final_loss"] for run in runs])),
        int(np.argmin(list(map(best_so_far, runs)))),
    }


@dataclass(frozen=True)
class Batches:
    """Mini-batches of ``size`` samples in a new order every epoch; the last one may be smaller, or left out."""

    size: int
    seed: int
    drop_last: bool = False

    def epoch(self, number: int, samples: int) -> Iterator[Tensor]:
        """Row numbers, batch by batch."""
        generator = torch.Generator().manual_seed(1_000_003 * (self.seed + 1) + number)
        order = torch.randperm(samples, generator=generator)
        if self.drop_last and samples >= self.size:
            order = order[: samples - samples % self.size]
        yield from order.split(self.size)


class Descent:
    """A grid of settings of one method, from the same start."""

    def __init__(
        self,
        problem: BatchedProblem,
        method: Method,
        settings: tuple[float, ...],
        plan: TeleportPlan | None,
        batches: Batches | None,
        *,
        start: Tensor | None = None,
        capped: bool = False,
        admissible: float | None = None,
        timed: bool = False,
    ) -> None:
        self.problem = problem
        self.timed = timed
        self.admissible = math.inf if admissible is None else admissible
        self.settings = settings
        self.plan = plan
        self.batches = batches
        start = problem.problem.initial_point() if start is None else start
        self.W = start.expand(len(settings), -1).clone()
        self.rule = method.rule(torch.tensor(settings, dtype=start.dtype), capped=capped)
        self.spent = Spending(len(settings))
        self.alive = np.ones(len(settings), dtype=bool)
        self.records: list[list[Curve]] = [[] for _ in settings]
        self.teleports = np.zeros(len(settings))
        self._forward_paid = np.zeros(len(settings))
        self._visited: list[Tensor] = []  # W at every record, where accuracies are found at the end

    @property
    def defers_accuracies(self) -> bool:
        """Whether accuracies are found at the end, for those runs only that keep them.

        Where the test set is larger than the training set they would take longer than the steps.
        """
        return len(self.problem.problem.test) > len(self.problem.problem.train)

    def run(self, ticks: int) -> list[Run]:
        """``ticks`` iterations or epochs, and a last record."""
        for tick in range(ticks):
            if not self.alive.any():
                break
            if self.plan is not None and tick in self.plan.at:
                self._teleport(initial=tick == 0)
            if self.batches is None:
                self._step(None, record=True)
            else:
                self._record(*self.problem.values_and_gradients(self.W, wanted=torch.from_numpy(self.alive)))
                for rows in self.batches.epoch(tick, self.problem.samples):
                    self._step(rows, record=False)
        if self.batches is None:
            self._record(*self._evaluate(None))
        else:
            self._record(*self.problem.values_and_gradients(self.W, wanted=torch.from_numpy(self.alive)))
        runs = [self._finished(member) for member in range(len(self.settings))]
        if self.defers_accuracies:
            for member in lowest(runs):
                path = [W[member] for W in self._visited[: len(self.records[member])]]
                if path:
                    runs[member].curves["test_accuracy"][:] = self.problem.accuracies(torch.stack(path)).numpy()
        return runs

    def _step(self, rows: Tensor | None, *, record: bool) -> None:
        """Evaluate, record where asked to, and move."""
        f, g = self._evaluate(rows)
        if record:
            self._record(f, g)
        began = _clock()
        ray = self.problem.ray(self.W, g, rows) if self.rule.searches else _no_ray
        step = self.rule.step(self.W, f, g, ray)
        self.W = step.W
        self._bury()
        self.spent.values += self._share(rows) * step.values.numpy()
        # The next gradient at an accepted trial reuses its forward pass, if it is one of the same function.
        self._forward_paid = step.evaluated.numpy().astype(float) if rows is None else np.zeros(len(self.settings))
        self._share_time(began)

    def _evaluate(self, rows: Tensor | None) -> tuple[Tensor, Tensor]:
        """f and ∇f of all members, charged to them."""
        began = _clock()
        f, g = self.problem.values_and_gradients(self.W, rows, torch.from_numpy(self.alive))
        self.spent.gradients += self._share(rows)
        self.spent.values -= self._forward_paid
        self._share_time(began)
        return f, g

    def _share(self, rows: Tensor | None) -> float:
        return 1.0 if rows is None else len(rows) / self.problem.samples

    def _share_time(self, began: float) -> None:
        """Members that are evaluated together share the time evenly."""
        self.spent.seconds += (_clock() - began) / max(1, self.alive.sum())

    def _teleport(self, *, initial: bool) -> None:
        """Teleport the living. Before the first step they are all at the same point: one does it for all of them."""
        living = self._living()
        self._teleport_members(living[:1] if initial else living)
        if initial:
            self.W[living[1:]] = self.W[living[0]].clone()
            self.spent.charge_alike(living)
        self.teleports[living] += 1
        self._bury()

    def _teleport_members(self, members: list[int]) -> None:
        assert self.plan is not None
        self.spent.values -= self._forward_paid  # a teleport evaluates the gradient where it starts
        self._forward_paid[:] = 0.0
        if self.plan.solver != "ours":
            began = _clock()
            together = teleport_together(self.problem, self.W[members], self.plan.published(), repeat=self.timed)
            self.W[members] = together.W
            self.spent.gradients[members] += together.gradients
            self.spent.hvps[members] += together.hvps
            self.spent.seconds[members] += (_clock() - began) / len(members)
        else:
            for member in members:
                began = _clock()
                result = self.plan.apply(self.problem.objective, self.W[member])
                assert isinstance(result.x, Tensor)
                self.W[member] = result.x
                self.spent.add(member, replace(result.cost, seconds=_clock() - began))
        if self.batches is None:  # the gradient where it ended is known: the step need not pay for it again
            self.spent.gradients[members] -= 1.0

    def _record(self, f: Tensor, g: Tensor) -> None:
        """A row for every living member; those whose loss or gradient is no number any more, or too large, are out."""
        penalty = self.problem.reg * self.W.double().square().sum(dim=1)
        losses = told_apart(f.numpy(), (f - penalty).numpy())
        if self.defers_accuracies:
            accuracies = np.full(len(self.settings), math.nan)
            self._visited.append(self.W.clone())
        else:
            accuracies = self.problem.accuracies(self.W, torch.from_numpy(self.alive)).numpy()
        rows = np.stack(
            [
                f.numpy(),
                losses,
                torch.linalg.vector_norm(g, dim=1).numpy(),
                accuracies,
                self.spent.gradient_equivalents,
                self.spent.seconds,
            ],
            axis=1,
        )
        self.alive &= np.isfinite(rows[:, :3]).all(axis=1)
        for member in self._living():
            self.records[member].append(rows[member])
            if self.admissible < math.inf:
                self.alive[member] = losses[member] < self.admissible * self.records[member][0][1]

    def _living(self) -> list[int]:
        return [int(member) for member in np.flatnonzero(self.alive)]

    def _bury(self) -> None:
        """Members with a weight that is no number are out, and rest at 0, where they cost the others nothing."""
        sound = torch.isfinite(torch.linalg.vector_norm(self.W, dim=1))  # at once; but squares may leave the range
        if not bool(sound.all()):
            sound[~sound] = torch.isfinite(self.W[~sound]).all(dim=1)
            self.alive &= sound.numpy()
        if not self.alive.all():
            self.W.masked_fill_(torch.from_numpy(~self.alive)[:, None], 0.0)

    def _finished(self, member: int) -> Run:
        rows = np.array(self.records[member], dtype=np.float64).reshape(-1, len(CURVES))
        alive, spent = bool(self.alive[member]), self.spent
        facts = {
            "hvps": spent.hvps[member],
            "gradients": spent.gradients[member],
            "values": spent.values[member],
            "seconds": spent.seconds[member],
            "teleports": self.teleports[member],
            "final_loss": rows[-1, 1] if alive else math.inf,
        }
        return Run(
            setting=self.settings[member],
            status=RunStatus.OK if alive else RunStatus.DIVERGED,
            message="" if alive else self._cause(rows),
            final_value=float(rows[-1, 0]) if alive else math.inf,
            facts={name: float(fact) for name, fact in facts.items()},
            curves={name: rows[:, column] for column, name in enumerate(CURVES)},
        )

    def _cause(self, rows: Curve) -> str:
        if len(rows) and rows[-1, 1] >= self.admissible * rows[0, 1]:
            return f"the loss had grown to {self.admissible:g} times its first at record {len(rows)}"
        return f"the loss is no finite number any more after record {len(rows)}"


def _no_ray(steps: Tensor, wanted: Tensor) -> Tensor:
    raise AssertionError("this step rule does not search")
