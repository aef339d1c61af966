"""Many runs on one data set, descending together: every method, setting, penalty and plan of teleports is a member.

At step k of a deterministic run a member teleports if k is in its plan, its value and gradient are recorded, and it
steps. A stochastic run does the same per epoch: teleports on the full batch, a record on the full batch (uncharged, for
the picture only), then one step per mini-batch. All members see the same mini-batches, so one matrix product serves
all.

A record holds f and, apart from it, the loss without its penalty, so that a run can be scored by either protocol
(:mod:`levelport_lab.paper.profile_grid`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby

import numpy as np
import torch
from torch import Tensor

from levelport.objective import Cost, Objective
from levelport_lab.engine.spec import Curve, Run, RunStatus
from levelport_lab.paper.batched import BatchedProblem
from levelport_lab.paper.batched_sqp import teleport_together
from levelport_lab.paper.member_points import Rows
from levelport_lab.paper.methods import BatchedRule, Method
from levelport_lab.paper.profiles import told_apart
from levelport_lab.paper.teleports import TeleportPlan

_clock = time.process_time  # of a task's one thread: what else the machine does is not the method's

CURVES = ("value", "loss", "gradient_norm", "test_accuracy", "gradient_equivalents", "seconds")


@dataclass(frozen=True)
class Arm:
    """A grid of settings of one method.

    Attributes:
        reg: the penalty.
        plan: teleports; None for none.
        admissible: members whose loss has grown to this multiple of its first are out.
    """

    method: Method
    settings: tuple[float, ...]
    reg: float
    plan: TeleportPlan | None = None
    admissible: float = math.inf


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


def best_so_far(run: Run) -> float:
    """The smallest recorded loss; infinite if there is none."""
    return float(run.curves["loss"].min(initial=math.inf))


def lowest(runs: list[Run]) -> set[int]:
    """The runs with the smallest final f, final loss and best loss so far."""
    return {
        int(np.argmin([run.final_value for run in runs])),
        int(np.argmin([run.facts["final_loss"] for run in runs])),
        int(np.argmin(list(map(best_so_far, runs)))),
    }


class Spending:
    """What the members have spent, in full-batch evaluations; a mini-batch counts by its share."""

    def __init__(self, members: int) -> None:
        self.values = np.zeros(members)
        self.gradients = np.zeros(members)
        self.hvps = np.zeros(members)
        self.seconds = np.zeros(members)

    def add(self, member: int, cost: Cost) -> None:
        """Add the cost of a teleport."""
        self.values[member] += cost.values
        self.gradients[member] += cost.gradients
        self.hvps[member] += cost.hvps
        self.seconds[member] += cost.seconds

    def charge_alike(self, members: Rows, models: Rows) -> None:
        """Each of ``members`` has spent what its model has."""
        for spent in (self.values, self.gradients, self.hvps, self.seconds):
            spent[members] = spent[models]

    @property
    def gradient_equivalents(self) -> Curve:
        """½ per value, 1 per gradient, 2 per Hessian-vector product."""
        return 0.5 * self.values + self.gradients + 2.0 * self.hvps


class Descent:
    """The members of some arms, from the same start."""

    def __init__(
        self,
        problem: BatchedProblem,
        arms: Sequence[Arm],
        batches: Batches | None = None,
        *,
        start: Tensor | None = None,
        capped: bool = False,
    ) -> None:
        self.problem = problem
        self.batches = batches
        # Arms of one method lie side by side, so that one step rule moves them all.
        self._order = sorted(range(len(arms)), key=lambda number: list(Method).index(arms[number].method))
        self.arms = [arms[number] for number in self._order]
        self._owner = np.repeat(np.arange(len(arms)), [len(arm.settings) for arm in self.arms])
        self.settings = [setting for arm in self.arms for setting in arm.settings]
        self.admissible = np.array([arm.admissible for arm in self.arms])[self._owner]
        start = problem.problem.initial_point() if start is None else start
        self.W = start.expand(len(self.settings), -1).clone()
        self.regs = start.new_tensor([arm.reg for arm in self.arms])[self._owner]
        self.rules = list(self._made_rules(capped))
        self.spent = Spending(len(self.settings))
        self.alive = np.ones(len(self.settings), dtype=bool)
        self.records: list[Curve] = []  # a row per member
        self.recorded = np.zeros(len(self.settings), dtype=int)
        self.teleports = np.zeros(len(self.settings))
        self._forward_paid = np.zeros(len(self.settings))
        self._visited: list[Tensor] = []  # W at every record, where accuracies are found at the end
        self._objectives: dict[float, Objective] = {}

    def _made_rules(self, capped: bool) -> Iterator[tuple[slice, BatchedRule]]:
        """A rule per method, with its members."""
        begin = 0
        for method, arms in groupby(self.arms, key=lambda arm: arm.method):
            settings = [setting for arm in arms for setting in arm.settings]
            yield slice(begin, begin + len(settings)), method.rule(self.W.new_tensor(settings), capped=capped)
            begin += len(settings)

    @property
    def defers_accuracies(self) -> bool:
        """True if accuracies are found at the end, for those runs only that keep them.

        Where the test set is larger than the training set they would take longer than the steps.
        """
        return len(self.problem.problem.test) > len(self.problem.problem.train)

    def run(self, ticks: int) -> list[list[Run]]:
        """``ticks`` iterations or epochs, and a last record; the runs of every arm."""
        for tick in range(ticks):
            if not self.alive.any():
                break
            self._teleport(tick)
            if self.batches is None:
                self._step(None, record=True)
            else:
                self._record(*self._at(None))
                for rows in self.batches.epoch(tick, self.problem.samples):
                    self._step(rows, record=False)
        self._teleport(ticks)  # after the last iteration or epoch, as the released scripts count
        self._record(*(self._evaluate(None) if self.batches is None else self._at(None)))
        return self._finished()

    def _at(self, rows: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.problem.values_and_gradients(self.W, self.regs, rows, torch.from_numpy(self.alive))

    def _step(self, rows: Tensor | None, *, record: bool) -> None:
        """Evaluate, record where asked to, and move."""
        f, g = self._evaluate(rows)
        if record:
            self._record(f, g)
        began = _clock()
        self._forward_paid[:] = 0.0
        for part, rule in self.rules:
            W, size = self.W[part], g[part]
            ray = self.problem.ray(W, self.regs[part], size, rows) if rule.searches else _no_ray
            step = rule.step(W, f[part], size, ray)
            self.W[part] = step.W
            if rule.searches:
                self.spent.values[part] += self._share(rows) * step.values.numpy()
                if rows is None:  # the next gradient at an accepted trial reuses its forward pass
                    self._forward_paid[part] = step.evaluated.numpy()
        self._bury()
        self._share_time(began)

    def _evaluate(self, rows: Tensor | None) -> tuple[Tensor, Tensor]:
        """f and ∇f of all members, charged to them."""
        began = _clock()
        f, g = self._at(rows)
        self.spent.gradients += self._share(rows)
        self.spent.values -= self._forward_paid
        self._share_time(began)
        return f, g

    def _share(self, rows: Tensor | None) -> float:
        return 1.0 if rows is None else len(rows) / self.problem.samples

    def _share_time(self, began: float) -> None:
        """Members that are evaluated together share the time evenly."""
        self.spent.seconds += (_clock() - began) / max(1, self.alive.sum())

    def _teleport(self, tick: int) -> None:
        """Teleport the living whose plan says so, those with the same plan together."""
        for plan in {arm.plan: None for arm in self.arms if arm.plan is not None and tick in arm.plan.at}:
            who = np.flatnonzero(self.alive & np.array([arm.plan == plan for arm in self.arms])[self._owner])
            self.teleports[who] += 1
            if tick > 0:
                self._teleport_members(plan, who)
                continue
            # Before the first step members with the same penalty are at the same point: one does it for all of them.
            _, first, of = np.unique(self.regs[who].numpy(), return_index=True, return_inverse=True)
            self._teleport_members(plan, who[first])
            self.W[who] = self.W[who[first[of]]]
            self.spent.charge_alike(who, who[first[of]])
        self._bury()

    def _teleport_members(self, plan: TeleportPlan, members: np.ndarray) -> None:
        if not len(members):
            return
        self.spent.values[members] -= self._forward_paid[members]  # a teleport evaluates the gradient where it starts
        self._forward_paid[members] = 0.0
        if plan.solver != "ours":
            began = _clock()
            together = teleport_together(self.problem, self.W[members], self.regs[members], plan.published())
            self.W[members] = together.W
            self.spent.gradients[members] += together.gradients
            self.spent.hvps[members] += together.hvps
            self.spent.seconds[members] += (_clock() - began) / len(members)
        else:
            for member in members:
                began = _clock()
                result = plan.apply(self._objective(int(member)), self.W[member])
                assert isinstance(result.x, Tensor)
                self.W[member] = result.x
                self.spent.add(int(member), replace(result.cost, seconds=_clock() - began))
        if self.batches is None:  # the gradient where it ended is known: the step need not pay for it again
            self.spent.gradients[members] -= 1.0

    def _objective(self, member: int) -> Objective:
        reg = self.arms[self._owner[member]].reg
        if reg not in self._objectives:
            self._objectives[reg] = replace(self.problem.problem, reg=reg).objective()
        return self._objectives[reg]

    def _record(self, f: Tensor, g: Tensor) -> None:
        """A row for every living member; those whose loss or gradient is no number any more, or too large, are out."""
        penalty = self.regs.double() * self.W.double().square().sum(dim=1)
        losses = told_apart(f.numpy(), (f - penalty).numpy())
        if self.defers_accuracies:
            accuracies = np.full(len(self.settings), math.nan)
            self._visited.append(self.W.clone())
        else:
            accuracies = self.problem.accuracies(self.W, torch.from_numpy(self.alive)).numpy()
        norms = torch.linalg.vector_norm(g, dim=1).numpy()
        costs = self.spent.gradient_equivalents
        rows = np.stack([f.numpy(), losses, norms, accuracies, costs, self.spent.seconds], axis=1)
        self.alive &= np.isfinite(rows[:, :3]).all(axis=1)
        self.records.append(rows)
        self.recorded += self.alive
        self.alive &= np.isinf(self.admissible) | (losses < self.admissible * self.records[0][:, 1])

    def _bury(self) -> None:
        """Members with a weight that is no number are out, and rest at 0, where they cost the others nothing."""
        sound = torch.isfinite(torch.linalg.vector_norm(self.W, dim=1))  # at once; but squares may leave the range
        if not bool(sound.all()):
            sound[~sound] = torch.isfinite(self.W[~sound]).all(dim=1)
            self.alive &= sound.numpy()
        if not self.alive.all():
            self.W.masked_fill_(torch.from_numpy(~self.alive)[:, None], 0.0)

    def _finished(self) -> list[list[Run]]:
        """The runs, arm by arm as they were given."""
        records = np.stack(self.records)
        ends = list(accumulate(len(arm.settings) for arm in self.arms))
        found: list[list[Run]] = [[] for _ in self.arms]
        for number, arm, end in zip(self._order, self.arms, ends, strict=True):
            begin = end - len(arm.settings)
            runs = [self._run_of(member, records[: self.recorded[member], member]) for member in range(begin, end)]
            for which in lowest(runs) if self.defers_accuracies else ():
                path = [W[begin + which] for W in self._visited[: self.recorded[begin + which]]]
                if path:
                    runs[which].curves["test_accuracy"][:] = self.problem.accuracies(torch.stack(path)).numpy()
            found[number] = runs
        return found

    def _run_of(self, member: int, rows: Curve) -> Run:
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
            final_value=float(rows[-1, 0]) if alive else math.inf,
            facts={name: float(fact) for name, fact in facts.items()},
            curves={name: rows[:, column].copy() for column, name in enumerate(CURVES)},
        )


def _no_ray(steps: Tensor, wanted: Tensor) -> Tensor:
    raise AssertionError("this step rule does not search")
