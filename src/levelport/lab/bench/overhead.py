"""What a competitor's own code costs beyond the evaluations it asks for.

    overhead = (all processor time - processor time inside evaluations) / processor time inside evaluations.

Processor time of the thread, not the wall clock: on a shared machine the wall clock measures the others as well. On an
idle machine the two agree. The instrument's own few microseconds per evaluation count as overhead.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from levelport.lab.bench.competitors import competitor_named
from levelport.lab.bench.instances import Instance, ProblemName
from levelport.lab.bench.specs import finest_target
from levelport.lab.bench.watched import Watched
from levelport.lab.engine.spec import Run, RunSpec
from levelport.problems.registry import problem


def large_network(copies: int = 1) -> Instance:
    """A network with 974 910 parameters on the digits, in float32.

    With several copies of the data f stays the same and so does every run; only the evaluations become dearer.
    """
    named = problem("mlp-relu-1000-900/digits", reg=1e-4, dtype=torch.float32)
    rows = list(range(len(named.train))) * copies
    return Instance(named.objective(rows), named.initial_point(), math.nan, 0.1, 0.0)


@dataclass(frozen=True)
class OverheadSpec(RunSpec):
    """Competitors in turn on one problem; the setting of a run is the competitor's number.

    ``where`` is a logistic problem, run to the finest accuracy, or "large network", run until ``max_cost``.
    """

    kind: ClassVar[str] = "overhead"
    revision: ClassVar[int] = 2
    where: ProblemName | Literal["large network"]
    competitors: tuple[str, ...]
    rounds: int
    max_cost: float = 1000.0
    copies: int = 1

    @property
    def label(self) -> str:
        return f"overhead on {self.where}"

    @property
    def rough_seconds(self) -> float:
        large = 0.1 * self.copies * self.max_cost
        return self.rounds * len(self.competitors) * (large if self.where == "large network" else 0.1)

    def run(self) -> list[Run]:
        if isinstance(self.where, ProblemName):
            instance, target = self.where.build(), finest_target(self.where)
        else:
            instance, target = large_network(self.copies), -math.inf
        runs = []
        for _ in range(self.rounds):
            for number, name in enumerate(self.competitors):
                objective = Watched(instance.objective, target=target, max_cost=self.max_cost, clock=time.thread_time)
                began = time.thread_time()
                competitor_named(name).run(objective, instance)
                total, inside = time.thread_time() - began, objective.evaluation_seconds
                facts = {
                    "total_seconds": total,
                    "evaluation_seconds": inside,
                    "overhead": (total - inside) / inside,
                    "gradient_equivalents": objective.cost.gradient_equivalents,
                    "dimension": float(objective.dimension),
                }
                runs.append(Run(setting=float(number), facts=facts, chosen=number == 0))
        return runs
