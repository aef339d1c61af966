"""The outer loop of all training experiments: a grid of settings of one method on one problem, descending together.

At step k of a deterministic run every member teleports if k is in the plan, its value and gradient are recorded, and
it steps. A stochastic run does the same per epoch: teleports on the full batch, a record on the full batch (uncharged,
for the picture only), then one step per mini-batch. All members see the same mini-batches, so one matrix product
serves all.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from levelport.lab.engine.spec import Curve, Run, RunStatus
from levelport.lab.paper.ensemble import Ensemble
from levelport.lab.paper.methods import Method
from levelport.lab.paper.teleports import Bills, TeleportPlan

CURVES = ("value", "gradient_norm", "test_accuracy", "gradient_equivalents", "seconds")


@dataclass(frozen=True)
class Batches:
    """Mini-batches of ``size`` samples in a new order every epoch; the last one may be smaller."""

    size: int
    seed: int

    def epoch(self, number: int, samples: int) -> Iterator[Tensor]:
        """Row numbers, batch by batch."""
        generator = torch.Generator().manual_seed(1_000_003 * (self.seed + 1) + number)
        yield from torch.randperm(samples, generator=generator).split(self.size)


class Descent:
    """A grid of settings of one method, from the same start."""

    def __init__(
        self,
        ensemble: Ensemble,
        method: Method,
        settings: tuple[float, ...],
        plan: TeleportPlan | None,
        batches: Batches | None,
    ) -> None:
        self.ensemble = ensemble
        self.settings = settings
        self.plan = plan
        self.batches = batches
        start = ensemble.problem.initial_point()
        self.W = start.expand(len(settings), -1).clone()
        self.rule = method.rule(torch.tensor(settings, dtype=start.dtype))
        self.bills = Bills(len(settings))
        self.alive = np.ones(len(settings), dtype=bool)
        self.records: list[list[Curve]] = [[] for _ in settings]
        self.teleports = np.zeros(len(settings))
        self._forward_paid = np.zeros(len(settings))

    def run(self, ticks: int) -> list[Run]:
        """``ticks`` iterations or epochs, and a last record."""
        for tick in range(ticks):
            if not self.alive.any():
                break
            if self.plan is not None and tick in self.plan.at:
                self._teleport()
            if self.batches is None:
                self._step(None, record=True)
            else:
                self._record(*self.ensemble.values_and_gradients(self.W))
                for rows in self.batches.epoch(tick, self.ensemble.samples):
                    self._step(rows, record=False)
        if self.batches is None:
            self._record(*self._evaluate(None))
        else:
            self._record(*self.ensemble.values_and_gradients(self.W))
        return [self._finished(member) for member in range(len(self.settings))]

    def _step(self, rows: Tensor | None, *, record: bool) -> None:
        """Evaluate, record where asked to, and move."""
        f, g = self._evaluate(rows)
        if record:
            self._record(f, g)
        began = time.perf_counter()
        ray = self.ensemble.ray(self.W, g, rows) if self.rule.searches else _no_ray
        step = self.rule.step(self.W, f, g, ray)
        self.W = step.W
        self._bury()
        self.bills.values += self._share(rows) * step.values.numpy()
        # The next gradient at an accepted trial reuses its forward pass, if it is one of the same function.
        self._forward_paid = step.evaluated.numpy().astype(float) if rows is None else np.zeros(len(self.settings))
        self._share_time(began)

    def _evaluate(self, rows: Tensor | None) -> tuple[Tensor, Tensor]:
        """f and ∇f of all members, charged to them."""
        began = time.perf_counter()
        f, g = self.ensemble.values_and_gradients(self.W, rows)
        self.bills.gradients += self._share(rows)
        self.bills.values -= self._forward_paid
        self._share_time(began)
        return f, g

    def _share(self, rows: Tensor | None) -> float:
        return 1.0 if rows is None else len(rows) / self.ensemble.samples

    def _share_time(self, began: float) -> None:
        """Members that are evaluated together share the time evenly."""
        self.bills.seconds += (time.perf_counter() - began) / max(1, self.alive.sum())

    def _teleport(self) -> None:
        assert self.plan is not None
        self.bills.values -= self._forward_paid  # a teleport evaluates the gradient where it starts
        self._forward_paid[:] = 0.0
        for member in self._living():
            result = self.plan.apply(self.ensemble.objective, self.W[member])
            assert isinstance(result.x, Tensor)
            self.W[member] = result.x
            self.bills.add(member, result.cost)
            if self.batches is None:  # the gradient where it ended is known: the step need not pay for it again
                self.bills.gradients[member] -= 1.0
            self.teleports[member] += 1
        self._bury()

    def _record(self, f: Tensor, g: Tensor) -> None:
        """A row for every living member; those whose loss or gradient is no number any more are out."""
        rows = np.stack(
            [
                f.numpy(),
                torch.linalg.vector_norm(g, dim=1).numpy(),
                self.ensemble.accuracies(self.W).numpy(),
                self.bills.gradient_equivalents,
                self.bills.seconds,
            ],
            axis=1,
        )
        self.alive &= np.isfinite(rows[:, :2]).all(axis=1)
        for member in self._living():
            self.records[member].append(rows[member])

    def _living(self) -> list[int]:
        return [int(member) for member in np.flatnonzero(self.alive)]

    def _bury(self) -> None:
        """Members with a weight that is no number are out, and rest at 0, where they cost the others nothing."""
        self.alive &= torch.isfinite(self.W).all(dim=1).numpy()
        if not self.alive.all():
            self.W[torch.from_numpy(~self.alive)] = 0.0

    def _finished(self, member: int) -> Run:
        rows = np.array(self.records[member], dtype=np.float64).reshape(-1, len(CURVES))
        alive, bills = bool(self.alive[member]), self.bills
        facts = {
            "hvps": bills.hvps[member],
            "gradients": bills.gradients[member],
            "values": bills.values[member],
            "seconds": bills.seconds[member],
            "teleports": self.teleports[member],
        }
        return Run(
            setting=self.settings[member],
            status=RunStatus.OK if alive else RunStatus.DIVERGED,
            message="" if alive else f"the loss is no finite number any more after record {len(rows)}",
            final_value=float(rows[-1, 0]) if alive else math.inf,
            facts={name: float(fact) for name, fact in facts.items()},
            curves={name: rows[:, column] for column, name in enumerate(CURVES)},
        )


def _no_ray(steps: Tensor) -> Tensor:
    raise AssertionError("this step rule does not search")
