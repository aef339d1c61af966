"""Logistic cases: teleportation problems whose best gradient norm is known, or nearly so.

A case is a logistic problem of the benchmark after 5 or 50 steps of gradient descent. The best known norm comes from
long runs of the default solver from many starts. On a convex f the sub-level set is star-shaped around the minimizer,
so that the ray from there in any direction meets the level exactly once: the starts are the point itself, both ends of
the steepest axis of ∇²f at the minimizer, and ends of random directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import torch
from torch import Tensor

from levelport.objective import Objective
from levelport.optim import Never, minimize
from levelport.solvers import Auto, teleport
from levelport_lab.bench.instances import ProblemName, logistic
from levelport_lab.engine.spec import Run, RunSpec
from levelport_lab.problems.registry import problem
from levelport_lab.theory.sublevel import boundary

GROUP = "logistic"
STEPS = (5, 50)
LONG = 400  # Hessian-vector products of a run that looks for the best norm
RANDOM_STARTS = 3


@dataclass(frozen=True)
class LogisticCase:
    """A logistic problem after ``steps`` steps of gradient descent from 0."""

    problem: ProblemName
    steps: int

    group: ClassVar[str] = GROUP

    @property
    def name(self) -> str:
        return f"{self.problem}@{self.steps}"

    def objective(self) -> Objective:
        """Return f, with an empty ledger."""
        return problem(self.problem.name, reg=self.problem.reg, seed=self.problem.seed).objective()

    def start(self, draw: int = 0) -> Tensor:
        """Return the point to teleport from; there is one draw only."""
        return _descended(self).clone()

    def starts_on_level(self) -> list[Tensor]:
        """Return the ends of rays from the minimizer."""
        named = problem(self.problem.name, reg=self.problem.reg, seed=self.problem.seed)
        objective, minimizer = named.objective(), named.optimum().point()
        level = objective.at(self.start()).value
        generator = torch.Generator().manual_seed(0)
        steep, *others = torch.randn(1 + RANDOM_STARTS, len(minimizer), generator=generator, dtype=minimizer.dtype)
        bottom = objective.at(minimizer)
        for _ in range(30):  # power iteration
            steep = bottom.hvp(steep / steep.norm())
        units = [d / d.norm() for d in (steep, -steep, *others)]
        return [minimizer + boundary(objective, minimizer, unit, level) * unit for unit in units]


@cache
def _descended(case: LogisticCase) -> Tensor:
    objective = case.objective()
    zero = torch.zeros(objective.dimension, dtype=objective.dtype)
    return minimize(objective, zero, "armijo", schedule=Never(), gtol=0.0, max_iterations=case.steps).x


LOGISTIC_CASES: dict[str, LogisticCase] = {
    case.name: case for case in (LogisticCase(name, steps) for name in logistic() for steps in STEPS)
}


@dataclass(frozen=True)
class ManyStartsSpec(RunSpec):
    """The largest norm that long runs from many starts find on the level: only for the best known values."""

    kind: ClassVar[str] = "solver-many-starts"
    case: str

    @property
    def label(self) -> str:
        return f"many starts on {self.case}"

    @property
    def rough_seconds(self) -> float:
        return 2.0

    def run(self) -> list[Run]:
        case = LOGISTIC_CASES[self.case]
        objective, x = case.objective(), case.start()
        level = objective.at(x).value
        ends = [teleport(objective, start, Auto(max_hvps=LONG)) for start in (x, *case.starts_on_level())]
        return [Run(facts={"norm": max(end.gradient_norm for end in ends if end.value <= level)})]
