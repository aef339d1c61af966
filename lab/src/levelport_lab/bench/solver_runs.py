"""Solvers of the teleportation problem compared: contestants, budgets, and the referee that evaluates their results.

A contestant gets a fresh objective for every budget and is stopped there; what it returns is evaluated afresh by the
referee, and counts as the start itself if it lies above the slack that the solver declares.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch

import levelport_lab.problems.network_models
import levelport_lab.problems.statistical_models  # noqa: F401  (both register their models)
from levelport.objective import Cost
from levelport.objectives import GradientDifferences
from levelport.solvers import SQP, Auto, Monitor, Solver, TeleportProblem
from levelport.solvers.result import TeleportStatus
from levelport_lab.bench.logistic_cases import LOGISTIC_CASES, LogisticCase, ManyStartsSpec
from levelport_lab.bench.plain_ascent import PlainAscent
from levelport_lab.bench.scipy_solvers import ScipySolver
from levelport_lab.engine.spec import Run, RunSpec
from levelport_lab.problems.teleport_cases import Case, all_cases

UNLIMITED = 10**9
DENSE = 200
"""Variables up to which solvers with dense matrices take part."""

OURS, PUBLISHED, LBFGS = "auto", "SQP, text", "L-BFGS"


@dataclass(frozen=True)
class Contestant:
    """A solver by name, left out above ``max_dimension`` variables; optionally with differences for products."""

    name: str
    make: Callable[[], Solver]
    max_dimension: int = UNLIMITED
    differences: bool = False

    @property
    def keeps_level(self) -> bool:
        """True if its points are never above the level; a slack may itself be worth a larger gradient."""
        return self.make().slack(1.0, torch.float64) == 0.0


CONTESTANTS: dict[str, Contestant] = {
    one.name: one
    for one in (
        Contestant(OURS, Auto),
        Contestant("auto, differences", Auto, differences=True),
        Contestant("nonlinear CG", lambda: PlainAscent("cg")),
        Contestant(LBFGS, lambda: PlainAscent("lbfgs")),
        Contestant(PUBLISHED, lambda: SQP(max_iterations=UNLIMITED)),
        Contestant("SQP, released", lambda: SQP(mode="released", max_iterations=UNLIMITED)),
        Contestant("SLSQP", lambda: ScipySolver("SLSQP"), DENSE),
        Contestant("trust-constr", lambda: ScipySolver("trust-constr"), DENSE),
    )
}


@dataclass(frozen=True)
class Budget:
    """A number of Hessian-vector products ("hvps") or of gradient equivalents ("ge")."""

    amount: int
    unit: str = "hvps"

    @property
    def name(self) -> str:
        return f"{self.amount} {self.unit}"


BUDGETS = (*(Budget(n) for n in (10, 25, 50, 100)), *(Budget(n, "ge") for n in (50, 150, 300)))
REFERENCE = Budget(200)
"""More than any other budget: only for the best known values."""

_TO_FINISH = 7.0  # gradient equivalents that a solver may still need once it is told to stop


class _CostMonitor(Monitor):
    """Stops the solver when a budget of gradient equivalents is all but spent."""

    def __init__(self, problem: TeleportProblem, limit: float) -> None:
        super().__init__(problem)
        self._limit = limit

    def should_stop(self, *, hvps_needed: int = 1) -> TeleportStatus | None:
        if self.cost.gradient_equivalents + 2.0 * hvps_needed + _TO_FINISH > self._limit:
            return TeleportStatus.BUDGET_SPENT
        return super().should_stop(hvps_needed=hvps_needed)


@dataclass(frozen=True)
class Score:
    """What a contestant reached within a budget, as the referee evaluates it."""

    gradient_norm: float
    start_norm: float
    excess: float
    cost: Cost
    status: TeleportStatus


def score(contestant: Contestant, case: Case | LogisticCase, budget: Budget, draw: int = 0) -> Score:
    """Run ``contestant`` from the case's start, or another ``draw`` of it, and evaluate what it returns afresh."""
    solver = contestant.make()
    objective = case.objective()
    if contestant.differences:
        objective = GradientDifferences(objective)
    start = objective.at(case.start(draw), curvature=True)
    slack = solver.slack(start.value, objective.dtype)
    in_products = budget.unit == "hvps"
    problem = TeleportProblem(objective, start, slack=slack, max_hvps=budget.amount if in_products else UNLIMITED)
    monitor = Monitor(problem) if in_products else _CostMonitor(problem, budget.amount)
    outcome = solver.solve(problem, monitor)
    cost = monitor.cost
    judged = case.objective().at(outcome.point.x)
    excess = judged.value - start.value
    norm = judged.gradient_norm if excess <= slack and math.isfinite(judged.gradient_norm) else 0.0
    return Score(max(norm, start.gradient_norm), start.gradient_norm, excess - slack, cost, outcome.status)


@dataclass(frozen=True)
class SolverSpec(RunSpec):
    """One contestant on one case: a run per budget, in the order of ``budgets``."""

    kind: ClassVar[str] = "solver"
    contestant: str
    case: str
    budgets: tuple[Budget, ...] = BUDGETS

    @property
    def label(self) -> str:
        return f"{self.contestant} on {self.case}"

    @property
    def rough_seconds(self) -> float:
        return 0.2 if self.case in LOGISTIC_CASES else 3.0

    def run(self) -> list[Run]:
        contestant = CONTESTANTS[self.contestant]
        case = LOGISTIC_CASES[self.case] if self.case in LOGISTIC_CASES else all_cases()[self.case]
        runs: list[Run] = []
        ended: Score | None = None
        for number, budget in enumerate(self.budgets):
            # A run that ended by itself ends in the same way with more to spend.
            enough = ended is not None and (
                budget.unit == "hvps" or ended.cost.gradient_equivalents + 2.0 * _TO_FINISH <= budget.amount
            )
            result = ended if ended is not None and enough else score(contestant, case, budget)
            if budget.unit == "hvps" and result.status is not TeleportStatus.BUDGET_SPENT:
                ended = result
            facts = {
                "norm": result.gradient_norm,
                "start": result.start_norm,
                "cost": result.cost.gradient_equivalents,
                "excess": result.excess,
            }
            status = result.status.name.lower()
            runs.append(Run(setting=float(number), facts=facts, message=status, chosen=number == 0))
        return runs


def specs(logistic_regs: tuple[float, ...]) -> list[RunSpec]:
    """Every contestant on every reported case, as far as dimensions allow; ours and the published one on logistic ones.

    Long runs and runs from many starts, for the best known values, come last.
    """
    cases = list(all_cases().values())
    sizes = {case.name: sum(value.numel() for value in case.model.make()[1].values()) for case in cases}
    known = [case for case in LOGISTIC_CASES.values() if case.problem.reg in logistic_regs]
    return [
        *(
            SolverSpec(one.name, case.name)
            for one in CONTESTANTS.values()
            for case in cases
            if sizes[case.name] <= one.max_dimension and not (one.differences and case.group == "float32")
        ),
        *(SolverSpec(name, case.name) for case in known for name in (OURS, PUBLISHED)),
        *(SolverSpec(name, case.name, (REFERENCE,)) for case in cases for name in (OURS, LBFGS)),
        *(ManyStartsSpec(case.name) for case in known),
    ]
