"""Contestants in the zoo, the referee, and the budgets.

A contestant gets a fresh objective for every budget and is stopped there; what it returns is evaluated afresh by the
referee, and counts as the start itself if it lies above the slack that the solver declares.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch

import levelport_lab.bench.zoo_networks
import levelport_lab.bench.zoo_statistical  # noqa: F401  (both enter their species)
from levelport.objective import Cost
from levelport.objectives import GradientDifferences
from levelport.solvers import SQP, Auto, Monitor, Solver, TeleportProblem
from levelport.solvers.result import TeleportStatus
from levelport_lab.bench.scipy_solvers import ScipySolver
from levelport_lab.bench.zoo import SPECIES, Animal, everyone
from levelport_lab.bench.zoo_baselines import PlainAscent
from levelport_lab.engine.spec import Run, RunSpec

UNLIMITED = 10**9
DENSE = 200
"""Variables up to which solvers with dense matrices take part."""

OURS = "auto"


@dataclass(frozen=True)
class Contestant:
    """A solver by name, left out above ``max_dimension`` variables; with or without differences for products."""

    name: str
    make: Callable[[], Solver]
    max_dimension: int = UNLIMITED
    differences: bool = False

    @property
    def keeps_level(self) -> bool:
        """Whether its points lie on the level or below, without a slack that may itself be worth a larger gradient."""
        return self.make().slack(1.0, torch.float64) == 0.0


CONTESTANTS: dict[str, Contestant] = {
    one.name: one
    for one in (
        Contestant(OURS, Auto),
        Contestant("auto, differences", Auto, differences=True),
        Contestant("nonlinear CG", lambda: PlainAscent("cg")),
        Contestant("L-BFGS", lambda: PlainAscent("lbfgs")),
        Contestant("SQP, text", lambda: SQP(max_iterations=UNLIMITED)),
        Contestant("SQP, released", lambda: SQP(mode="released", max_iterations=UNLIMITED)),
        Contestant("SLSQP", lambda: ScipySolver("SLSQP"), DENSE),
        Contestant("trust-constr", lambda: ScipySolver("trust-constr"), DENSE),
    )
}


@dataclass(frozen=True)
class Budget:
    """So many Hessian-vector products ("hvps"), or so many gradient equivalents ("ge")."""

    amount: int
    unit: str = "hvps"

    @property
    def name(self) -> str:
        return f"{self.amount} {self.unit}"


BUDGETS = (*(Budget(n) for n in (10, 25, 50, 100)), *(Budget(n, "ge") for n in (50, 150, 300)))

_LANDING = 7.0  # gradient equivalents that a solver may still need once it is told to stop


class _Metered(Monitor):
    """Tells the solver to stop when a budget of gradient equivalents is all but spent."""

    def __init__(self, problem: TeleportProblem, limit: float) -> None:
        super().__init__(problem)
        self._limit = limit

    def should_stop(self, *, hvps_needed: int = 1) -> TeleportStatus | None:
        if self.cost.gradient_equivalents + 2.0 * hvps_needed + _LANDING > self._limit:
            return TeleportStatus.BUDGET_SPENT
        return super().should_stop(hvps_needed=hvps_needed)


@dataclass(frozen=True)
class Score:
    """What a contestant reached within a budget, as the referee sees it."""

    gradient_norm: float
    start_norm: float
    excess: float
    cost: Cost
    status: TeleportStatus


def score(contestant: Contestant, animal: Animal, budget: Budget, draw: int = 0) -> Score:
    """Run ``contestant`` from the problem's start, or another ``draw`` of it, and evaluate what it returns afresh."""
    solver = contestant.make()
    objective = animal.objective()
    if contestant.differences:
        objective = GradientDifferences(objective)
    start = objective.at(animal.start(draw), curvature=True)
    slack = solver.slack(start.value, objective.dtype)
    in_products = budget.unit == "hvps"
    problem = TeleportProblem(objective, start, slack=slack, max_hvps=budget.amount if in_products else UNLIMITED)
    monitor = Monitor(problem) if in_products else _Metered(problem, budget.amount)
    outcome = solver.solve(problem, monitor)
    cost = monitor.cost
    judge = animal.objective().at(outcome.point.x)
    excess = judge.value - start.value
    norm = judge.gradient_norm if excess <= slack and math.isfinite(judge.gradient_norm) else 0.0
    return Score(max(norm, start.gradient_norm), start.gradient_norm, excess - slack, cost, outcome.status)


@dataclass(frozen=True)
class ZooSpec(RunSpec):
    """One contestant on one problem at every budget."""

    kind: ClassVar[str] = "zoo"
    contestant: str
    animal: str

    @property
    def label(self) -> str:
        return f"{self.contestant} on {self.animal}"

    @property
    def rough_seconds(self) -> float:
        return 3.0

    def run(self) -> list[Run]:
        contestant, animal = CONTESTANTS[self.contestant], everyone()[self.animal]
        facts: dict[str, float] = {}
        ended: Score | None = None
        for budget in BUDGETS:
            # A run that ended by itself ends in the same way with more to spend.
            enough = ended is not None and (
                budget.unit == "hvps" or ended.cost.gradient_equivalents + 2.0 * _LANDING <= budget.amount
            )
            result = ended if ended is not None and enough else score(contestant, animal, budget)
            if budget.unit == "hvps" and result.status is not TeleportStatus.BUDGET_SPENT:
                ended = result
            facts |= {
                f"{budget.name}: norm": result.gradient_norm,
                f"{budget.name}: cost": result.cost.gradient_equivalents,
                f"{budget.name}: excess": result.excess,
            }
        facts["start"] = result.start_norm
        return [Run(facts=facts, message=result.status.name.lower())]


@dataclass(frozen=True)
class ReferenceSpec(RunSpec):
    """What a contestant finds with more products than any budget allows: for the table of best known values alone."""

    kind: ClassVar[str] = "zoo-reference"
    contestant: str
    animal: str
    max_hvps: int = 200

    @property
    def label(self) -> str:
        return f"{self.contestant} on {self.animal}, {self.max_hvps} products"

    @property
    def rough_seconds(self) -> float:
        return 2.0

    def run(self) -> list[Run]:
        seen = score(CONTESTANTS[self.contestant], everyone()[self.animal], Budget(self.max_hvps))
        return [Run(facts={"norm": seen.gradient_norm}, message=seen.status.name.lower())]


def zoo_specs() -> list[RunSpec]:
    """Everybody everywhere, as far as dimensions allow; and references."""
    sizes = {name: sum(value.numel() for value in kind.make()[1].values()) for name, kind in SPECIES.items()}
    animals = [animal for animal in everyone().values() if not animal.species.practice]
    references = [ReferenceSpec(name, animal.name) for animal in animals for name in (OURS, "L-BFGS")]
    races = [
        ZooSpec(one.name, animal.name)
        for one in CONTESTANTS.values()
        for animal in animals
        if sizes[animal.species.name] <= one.max_dimension
        and not (one.differences and animal.species.group == "float32")
    ]
    return [*races, *references]
