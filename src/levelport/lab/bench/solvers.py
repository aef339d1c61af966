"""Solvers of the teleportation problem side by side: same functions, same starts, same budgets, same ledger.

Every result passes through :func:`levelport.teleport`: the point returned is feasible, and the gradients spent on
making it so are counted. Timed runs are interleaved, so that a machine that slows down slows down everyone.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter
from torch import Tensor

from levelport.lab.bench.instances import logistic_objective
from levelport.lab.bench.scipy_solvers import ScipySolver
from levelport.lab.engine.spec import Run, RunSpec
from levelport.lab.engine.store import TaskResult
from levelport.lab.pictures import BLUE, GREEN, ORANGE, PURPLE, RED
from levelport.objective import Objective
from levelport.optim import Armijo, Never, minimize
from levelport.problems.quadratics import Quadratic
from levelport.problems.registry import problem
from levelport.solvers import SQP, Auto, Solver, TeleportResult, teleport

HVP_BUDGETS = (10, 25, 50, 200)
"""Hessian-vector products; the last one decides who reaches most."""

HVP_LADDER = (6, 8, 12, 15, 20, 30, 35, 40, 60, 75, 100, 150)
"""More budgets, for solvers that take seconds or less, to find out when each of them gets near the best."""

DEMO_BUDGETS = (6, 10, 25, 50, 100, 200)
"""Hessian-vector products of the picture that the demonstration draws."""

SLOW = 4.0
"""Seconds; such a run is timed once and climbs no ladder."""

UNLIMITED = 10**9
"""Iterations of the published solver when only HVPs are to limit it."""


@dataclass(frozen=True)
class Contestant:
    """A solver with the name, colour and marker that tables and pictures give it."""

    name: str
    make: Callable[[], Solver]
    color: str
    marker: str
    max_dimension: int = UNLIMITED


CONTESTANTS = (
    Contestant("auto", Auto, ORANGE, "o"),
    Contestant("auto, explore=1", lambda: Auto(explore=1), RED, "v"),
    Contestant("published SQP", lambda: SQP(max_iterations=UNLIMITED), BLUE, "s"),
    Contestant("SciPy SLSQP", lambda: ScipySolver("SLSQP"), GREEN, "^", max_dimension=500),
    Contestant("SciPy trust-constr", lambda: ScipySolver("trust-constr"), PURPLE, "D", max_dimension=4000),
)
"""SciPy's two keep dense d×d matrices, so they are left out above ``max_dimension``."""


@dataclass(frozen=True)
class Case:
    """A teleportation problem: f, the point to teleport from, and the largest norm if there is a closed form."""

    name: str
    objective: Objective
    x: Tensor
    known_maximum: float = math.nan

    def solve(self, contestant: Contestant, max_hvps: int) -> TeleportResult:
        """Teleport with a budget of Hessian-vector products."""
        return teleport(self.objective, self.x, contestant.make(), max_hvps=max_hvps)


def quadratic_case(condition: float) -> Case:
    """200 variables, eigenvalues evenly spaced in the logarithm, from a random point."""
    spectrum = torch.logspace(0.0, -math.log10(condition), 200, dtype=torch.float64)
    quadratic = Quadratic.random(spectrum, seed=0)
    generator = torch.Generator().manual_seed(1)
    x = quadratic.minimiser + torch.randn(200, generator=generator, dtype=torch.float64)
    return Case(f"quadratic, condition {condition:g}", quadratic, x, quadratic.largest_gradient_norm(x))


def logistic_case(data: str, reg: float, *, steps: int = 5) -> Case:
    """Logistic regression on all of ``data`` with an intercept, after a few steps of gradient descent from 0.

    Each step tries the last step size, 1 at first, and backtracks until f decreases by Armijo's rule.
    """
    objective = logistic_objective(data, reg)
    origin = torch.zeros(objective.dimension, dtype=torch.float64)
    rule = Armijo(c=1e-4, grow=1.0)
    descended = minimize(objective, origin, rule, schedule=Never(), gtol=0.0, max_iterations=steps).x
    return Case(f"logistic {data}, reg {reg:g}", objective, descended)


def network_case(name: str, reg: float) -> Case:
    """A network at its start."""
    named = problem(name, reg=reg)
    return Case(f"{name}, reg {reg:g}", named.objective(), named.initial_point())


CASES: tuple[Callable[[], Case], ...] = (
    lambda: quadratic_case(1e2),
    lambda: quadratic_case(1e6),
    lambda: logistic_case("breast-cancer-wisconsin", 1e-6),
    lambda: logistic_case("breast-cancer-wisconsin", 1e-3),
    lambda: logistic_case("synthetic-logistic-20000x50-1e4", 1e-6),
    lambda: network_case("mlp-relu-100-100/digits", 1e-2),
    lambda: network_case("mlp-softplus-50/digits", 1.8),
)
"""The problems of the suite, by number."""


@dataclass(frozen=True)
class SolversSpec(RunSpec):
    """All contestants on one case. The setting of a run is its contestant's number; those left out have none."""

    kind: ClassVar[str] = "solvers"
    case: int
    rounds: int = 5

    @property
    def label(self) -> str:
        return f"solvers, case {self.case + 1} of {len(CASES)}"

    @property
    def rough_seconds(self) -> float:
        return 60.0

    def run(self) -> list[Run]:
        case = CASES[self.case]()
        entries = [_Entry(c, {}, []) for c in CONTESTANTS if case.objective.dimension <= c.max_dimension]
        for _ in range(self.rounds):
            for entry in entries:
                if not (entry.seconds and entry.seconds[0] > SLOW):
                    result = case.solve(entry.contestant, HVP_BUDGETS[-1])
                    entry.results[HVP_BUDGETS[-1]] = result
                    entry.seconds.append(result.cost.seconds)
        for entry in entries:
            for budget in (*HVP_BUDGETS[:-1], *(HVP_LADDER if entry.seconds[0] <= SLOW else ())):
                entry.results[budget] = case.solve(entry.contestant, budget)
        known = [case.known_maximum] if math.isfinite(case.known_maximum) else []
        best = max([entry.last.gradient_norm for entry in entries] + known)
        return [entry.as_run(case, best) for entry in entries]


@dataclass
class _Entry:
    """All runs of one contestant on one case."""

    contestant: Contestant
    results: dict[int, TeleportResult]
    seconds: list[float]

    @property
    def last(self) -> TeleportResult:
        """With the largest budget."""
        return self.results[HVP_BUDGETS[-1]]

    def cost_to(self, gradient_norm: float) -> float:
        """Least cost of a run that reached ``gradient_norm``; infinite if none did."""
        reached = [result for result in self.results.values() if result.gradient_norm >= gradient_norm]
        return min((result.cost.gradient_equivalents for result in reached), default=math.inf)

    def as_run(self, case: Case, best: float) -> Run:
        """For the store: the message is the status, followed by the name of the case."""
        result, cost = self.last, self.last.cost
        facts = {
            "dimension": float(case.objective.dimension),
            "known_maximum": case.known_maximum,
            "gradient_norm_start": result.gradient_norm_start,
            **{f"gradient_norm_{budget}_hvps": self.results[budget].gradient_norm for budget in HVP_BUDGETS},
            "share_of_best": result.gradient_norm / best,
            "violation": result.violation / abs(result.value_start),
            "violation_last_iterate": result.trace[-1].violation / abs(result.value_start),
            "values": float(cost.values),
            "gradients": float(cost.gradients),
            "hvps": float(cost.hvps),
            "gradient_equivalents": cost.gradient_equivalents,
            "cost_within_1_percent": self.cost_to(0.99 * best),
            "seconds": statistics.median(self.seconds),
            "seconds_min": min(self.seconds),
            "seconds_max": max(self.seconds),
            "timed_runs": float(len(self.seconds)),
        }
        message = f"{result.status.name.lower()}: {case.name}"
        return Run(setting=float(CONTESTANTS.index(self.contestant)), message=message, facts=facts)


def solvers_table(results: Iterable[TaskResult]) -> pd.DataFrame:
    """One row per case and contestant; those left out have no numbers."""
    rows = []
    for result in sorted(results, key=lambda result: result.spec["case"]):
        runs = {int(run.setting): run for run in result.runs}
        _, _, name = result.runs[0].message.partition(": ")
        shared = {key: result.runs[0].facts[key] for key in ("dimension", "known_maximum")}
        for number, contestant in enumerate(CONTESTANTS):
            row: dict[str, object] = {"problem": name, "solver": contestant.name, **shared}
            if number in runs:
                row |= runs[number].facts | {"status": runs[number].message.partition(":")[0]}
            rows.append(row)
    return pd.DataFrame(rows)


def demo_race(case: Case, contestant: Contestant) -> tuple[TeleportResult, ...]:
    """What the contestant returns when it is stopped at each of the demonstration's budgets."""
    return tuple(case.solve(contestant, budget) for budget in DEMO_BUDGETS)


def demo_figure(case: Case, races: Sequence[tuple[Contestant, tuple[TeleportResult, ...]]]) -> Figure:
    """Feasible gradient norm against gradient equivalents; a dot for each budget of HVPs."""
    picture = Figure(figsize=(7.0, 4.4), layout="constrained")
    axes = picture.add_subplot()
    for contestant, results in races:
        axes.plot(
            [result.cost.gradient_equivalents for result in results],
            [result.gradient_norm for result in results],
            color=contestant.color,
            marker=contestant.marker,
            markersize=6,
            linewidth=1.6,
            label=contestant.name,
        )
    start = races[0][1][0].gradient_norm_start
    axes.axhline(start, color="0.4", linestyle="dotted", linewidth=1.2, label="start")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(base=10.0, subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("cost in gradient equivalents (value ½, gradient 1, HVP 2)")
    axes.set_ylabel(r"$\|\nabla f\|$ of the point returned")
    axes.set_title(f"{case.name}: stopped after {', '.join(map(str, DEMO_BUDGETS))} HVPs", fontsize=10)
    axes.grid(alpha=0.25)
    picture.legend(loc="outside lower center", ncols=3, frameon=False)
    return picture
