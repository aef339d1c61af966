"""Seconds: competitors in turn on the same problem, several rounds, so that a slow machine is slow for everyone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from levelport.lab.bench.instances import ProblemName
from levelport.lab.bench.specs import ACCURACIES, race
from levelport.lab.engine.spec import Run, RunSpec
from levelport.lab.paper.profiles import Axis, spent_until_solved


@dataclass(frozen=True)
class TimingSpec(RunSpec):
    """All competitors on one problem, ``rounds`` times in turn. The setting of a run is its competitor's number."""

    kind: ClassVar[str] = "timing"
    problem: ProblemName
    competitors: tuple[str, ...]
    rounds: int
    max_cost: float

    @property
    def label(self) -> str:
        return f"timing on {self.problem}"

    @property
    def rough_seconds(self) -> float:
        return 2e-4 * self.max_cost * self.rounds * len(self.competitors)

    def run(self) -> list[Run]:
        runs = []
        for repeat in range(self.rounds):
            for number, name in enumerate(self.competitors):
                run = race(self.problem, name, self.max_cost)
                facts = {"round": float(repeat)}
                for tau in ACCURACIES:
                    for axis in (Axis.SECONDS, Axis.COST):
                        spent = spent_until_solved(run, run.facts["f_start"], run.facts["f_star"], tau, axis)
                        facts[f"{axis.value}_{tau:g}"] = spent
                runs.append(Run(setting=float(number), final_value=run.final_value, facts=facts, chosen=number == 0))
        return runs
