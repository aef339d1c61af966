"""The race that ``levelport demo`` shows: four solvers on one logistic problem, stopped at several budgets.

Every result passes through :func:`levelport.teleport`: the point returned is feasible, and the gradients spent on
making it so are counted. What is claimed about solvers is measured on the zoo (:mod:`levelport_lab.bench.zoo`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter
from torch import Tensor

from levelport.objective import Objective
from levelport.optim import Armijo, Never, minimize
from levelport.solvers import SQP, Auto, Solver, TeleportResult, teleport
from levelport_lab.bench.instances import logistic_objective
from levelport_lab.bench.scipy_solvers import ScipySolver
from levelport_lab.pictures import BLUE, GREEN, ORANGE, PURPLE

DEMO_BUDGETS = (6, 10, 25, 50, 100, 200)
"""Hessian-vector products of the picture that the demonstration draws."""

UNLIMITED = 10**9
"""Iterations of the published solver when only HVPs are to limit it."""


@dataclass(frozen=True)
class Contestant:
    """A solver with the name, colour and marker that tables and pictures give it."""

    name: str
    make: Callable[[], Solver]
    color: str
    marker: str


CONTESTANTS = (
    Contestant("auto", Auto, ORANGE, "o"),
    Contestant("published SQP", lambda: SQP(max_iterations=UNLIMITED), BLUE, "s"),
    Contestant("SciPy SLSQP", lambda: ScipySolver("SLSQP"), GREEN, "^"),
    Contestant("SciPy trust-constr", lambda: ScipySolver("trust-constr"), PURPLE, "D"),
)


@dataclass(frozen=True)
class Case:
    """A teleportation problem: f and the point to teleport from."""

    name: str
    objective: Objective
    x: Tensor

    def solve(self, contestant: Contestant, max_hvps: int) -> TeleportResult:
        """Teleport with a budget of Hessian-vector products."""
        return teleport(self.objective, self.x, replace(contestant.make(), max_hvps=max_hvps))


def logistic_case(data: str, reg: float, *, steps: int = 5) -> Case:
    """Logistic regression on all of ``data`` with an intercept, after a few steps of gradient descent from 0.

    Each step tries the last step size, 1 at first, and backtracks until f decreases by Armijo's rule.
    """
    objective = logistic_objective(data, reg)
    origin = torch.zeros(objective.dimension, dtype=torch.float64)
    rule = Armijo(c=1e-4, grow=1.0)
    descended = minimize(objective, origin, rule, schedule=Never(), gtol=0.0, max_iterations=steps).x
    return Case(f"logistic {data}, reg {reg:g}", objective, descended)


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
