"""Races: a competitor on a problem until the finest accuracy or the budget."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from levelport_lab.bench.competitors import COMPETITORS
from levelport_lab.bench.instances import Instance, ProblemName
from levelport_lab.bench.metered import Metered
from levelport_lab.engine.spec import Run, RunSpec

ACCURACIES = (1e-2, 1e-4, 1e-6, 1e-10)
"""τ: a problem is solved when (f - f*)/(f0 - f*) ≤ τ."""


def accuracy(tau: float) -> str:
    """Return an accuracy as tables write it: 1e-2, not 0.01 and not 1e-02."""
    return f"{tau:.0e}".replace("e-0", "e-")


@dataclass(frozen=True)
class RaceSpec(RunSpec):
    """One competitor on one problem: its best value so far against evaluations and seconds."""

    kind: ClassVar[str] = "race"
    revision: ClassVar[int] = 2
    problem: ProblemName
    competitor: str
    max_cost: float

    @property
    def label(self) -> str:
        return f"{self.competitor} on {self.problem}"

    @property
    def rough_seconds(self) -> float:
        return self.max_cost * (4e-3 if self.problem.family == "network" else 2e-4)

    def run(self) -> list[Run]:
        return [race(self.problem, self.competitor, self.max_cost)]


def race(problem: ProblemName, competitor: str, max_cost: float) -> Run:
    """Run one competitor until the finest accuracy or the budget."""
    instance = problem.build()
    objective = Metered(instance.objective, target=finest_target(problem, instance), max_cost=max_cost)
    with objective.until_enough():
        COMPETITORS[competitor](objective, instance)
    cost = objective.cost
    curves = objective.best_so_far()
    seconds = objective.records[-1][2]
    facts = {
        "values": float(cost.values),
        "gradients": float(cost.gradients),
        "hvps": float(cost.hvps),
        "gradient_equivalents": cost.gradient_equivalents,
        "seconds": seconds,
        "f_start": objective.records[0][1],
        "f_star": instance.f_star,
        "ended_by_itself": float(not objective.done),
    }
    return Run(final_value=float(curves["value"][-1]), facts=facts, curves=curves)


def finest_target(problem: ProblemName, instance: Instance) -> float:
    """Return the value at the finest accuracy; -∞ for networks, whose optimum is not known."""
    if problem.family == "network":
        return -math.inf
    start = instance.objective.at(instance.x0).value
    return instance.f_star + ACCURACIES[-1] * (start - instance.f_star)
