"""The comparison itself, as a suite of the benchmark: ``levelport bench minimizers --tier full``.

A row is one run: gradient equivalents and processor seconds until (f - f*)/(f0 - f*) is at most 1e-3, 1e-6 and 1e-10,
infinite if never; for networks the loss after 300 and 1000 gradient equivalents.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import ClassVar

import numpy as np
import pandas as pd

from levelport.objectives import FunctionObjective
from levelport_lab.bench import instances
from levelport_lab.bench.instances import Instance, ProblemName
from levelport_lab.bench.metered import Metered
from levelport_lab.bench.minimizers.arms import ARMS, MAIN, NETWORK_ARMS
from levelport_lab.bench.minimizers.optima import optima
from levelport_lab.bench.minimizers.problems import PROBLEMS
from levelport_lab.bench.tables import Results, of_kind
from levelport_lab.choices import Tier
from levelport_lab.engine.spec import Run, RunSpec

ACCURACIES = (1e-3, 1e-6, 1e-10)
LOSSES = (300, 1000)
BUDGET, NETWORK_BUDGET = 5000.0, 1000.0
KEY = ["half", "problem", "arm"]
COLUMNS = (
    "group",
    "half",
    "problem",
    "dimension",
    "arm",
    *(f"cost_{tau:g}" for tau in ACCURACIES),
    *(f"seconds_{tau:g}" for tau in ACCURACIES),
    *(f"loss_{cost}" for cost in LOSSES),
    "ended_by_itself",
)


@dataclass(frozen=True)
class MinimizerSpec(RunSpec):
    """One arm on one problem: a name in the catalogue, or a logistic problem with its penalty and split."""

    kind: ClassVar[str] = "minimizer"
    problem: str
    arm: str
    reg: float = 0.0
    seed: int = 0

    @property
    def label(self) -> str:
        return f"{self.arm} on {self.name}"

    @property
    def rough_seconds(self) -> float:
        return 10.0 if self.group == "network" else 1.0

    @property
    def name(self) -> str:
        """The problem as tables call it."""
        return self.problem if self.problem in PROBLEMS else str(ProblemName("logistic", self.problem, self.reg))

    @property
    def group(self) -> str:
        """The kind of problem."""
        return PROBLEMS[self.problem].group if self.problem in PROBLEMS else "logistic"

    @property
    def half(self) -> str:
        """Reported, or the split of a logistic problem."""
        return "reported" if self.problem in PROBLEMS else f"split {self.seed}"

    def run(self) -> list[Run]:
        return [Run(facts=measured(_made(self.problem, self.reg, self.seed), self.arm))]


def specs() -> list[MinimizerSpec]:
    """Every run: all arms on functions, models and the first logistic split, the main ones on two more splits."""
    found = [
        MinimizerSpec(problem.name, arm)
        for problem in PROBLEMS.values()
        for arm in (NETWORK_ARMS if problem.group == "network" else ARMS)
    ]
    for seed in range(3):
        arms = MAIN if seed else tuple(ARMS)
        found += [MinimizerSpec(each.name, arm, each.reg, seed) for each in instances.logistic() for arm in arms]
    return found


def minimizer_specs(tier: Tier, seed: int) -> list[RunSpec]:
    """Quick: the main arms on the functions and models. Full: everything."""
    every = specs()
    if tier == "full":
        return [*every]
    return [spec for spec in every if spec.half == "reported" and spec.group != "network" and spec.arm in MAIN]


def minimizer_rows(results: Results) -> pd.DataFrame:
    """Return a row per problem and arm; a store may hold problems of the other half as well."""
    rows = []
    for result in of_kind(results, MinimizerSpec):
        if result.spec["problem"] not in PROBLEMS and not result.spec["problem"].startswith("logreg/"):
            continue
        spec = MinimizerSpec(**{each.name: result.spec[each.name] for each in fields(MinimizerSpec)})
        names = {"group": spec.group, "half": spec.half, "problem": spec.name, "arm": spec.arm}
        rows.append(names | dict(result.best.facts))
    return pd.DataFrame(rows, columns=COLUMNS)


@lru_cache(maxsize=1)
def _made(name: str, reg: float, seed: int) -> Instance:
    """The problem itself, kept for the next arm."""
    if name not in PROBLEMS:
        return ProblemName("logistic", name, reg, seed).build()
    loss, x0 = PROBLEMS[name].make()
    f_star = math.nan if PROBLEMS[name].group == "network" else optima()[name]
    return Instance(FunctionObjective(loss, like=x0), x0, f_star)


def measured(instance: Instance, arm: str) -> dict[str, float]:
    """Run one arm and read off what it cost to reach each accuracy, or how far a network came."""
    objective, x0, f_star = instance.objective, instance.x0, instance.f_star
    f0 = objective.at(x0).value
    known = math.isfinite(f_star)
    target = f_star + ACCURACIES[-1] * (f0 - f_star) if known else -math.inf
    metered = Metered(objective, target=target, max_cost=BUDGET if known else NETWORK_BUDGET, clock=time.process_time)
    with metered.until_enough():
        ARMS[arm](metered, instance)
    best = metered.best_so_far()
    facts: dict[str, float] = {"dimension": len(x0), "ended_by_itself": int(not metered.done)}
    for tau in ACCURACIES if known else ():
        reached = np.flatnonzero(best["value"] <= f_star + tau * (f0 - f_star))
        for name in ("cost", "seconds"):
            curve = best["gradient_equivalents" if name == "cost" else name]
            facts[f"{name}_{tau:g}"] = float(curve[reached[0]]) if len(reached) else math.inf
    for cost in () if known else LOSSES:
        facts[f"loss_{cost}"] = float(best["value"][best["gradient_equivalents"] <= cost][-1])
    return facts
