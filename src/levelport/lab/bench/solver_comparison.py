"""Solvers of the teleportation problem side by side: same function, same start, same budget, same ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter
from torch import Tensor

from levelport.lab.bench.scipy_solvers import ScipySolver
from levelport.lab.pictures import BLUE, GREEN, ORANGE, PURPLE, RED
from levelport.objective import Objective
from levelport.objectives.linear import LinearObjective
from levelport.optim import Armijo, minimize
from levelport.problems.benchmark_problem import with_ones
from levelport.problems.datasets import load_data
from levelport.solvers import SQP, Auto, Teleporter, TeleportResult, teleport

BUDGETS = (6, 10, 25, 50, 100, 200)
"""Hessian-vector products."""

UNLIMITED = 10**9
"""Iterations of the published solver when only HVPs are to limit it."""


@dataclass(frozen=True)
class Contestant:
    """A solver with the name, colour and marker that tables and pictures give it."""

    name: str
    make: Callable[[], Teleporter]
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
class Instance:
    """A teleportation problem: f and the point to teleport from."""

    name: str
    objective: Objective
    x: Tensor

    def solve(self, contestant: Contestant, max_hvps: int) -> TeleportResult:
        """Teleport with a budget of Hessian-vector products."""
        return teleport(self.objective, self.x, contestant.make(), max_hvps=max_hvps)


def logistic_instance(data: str, reg: float, *, steps: int = 5) -> Instance:
    """Logistic regression on all of ``data`` with an intercept, after a few steps of gradient descent from 0.

    Each step tries the last step size, 1 at first, and backtracks until f decreases by Armijo's rule.
    """
    loaded = load_data(data)
    X = with_ones(torch.from_numpy(np.array(loaded.X, dtype=np.float64)))
    y = torch.from_numpy(np.array(loaded.y, dtype=np.float64))
    objective = LinearObjective.logistic(X, y, penalty=reg)
    origin = torch.zeros(objective.dimension, dtype=torch.float64)
    descended = minimize(objective, origin, Armijo(c=1e-4, grow=1.0), False, gtol=0.0, max_iterations=steps).x
    assert isinstance(descended, Tensor)
    return Instance(f"logistic {data}, reg {reg:g}", objective, descended)


@dataclass(frozen=True)
class Curve:
    """What a contestant returns when it is stopped at each of the budgets."""

    contestant: Contestant
    results: tuple[TeleportResult, ...]

    @property
    def last(self) -> TeleportResult:
        """With the largest budget."""
        return self.results[-1]


def race(instance: Instance, contestants: Sequence[Contestant], budgets: Sequence[int] = BUDGETS) -> list[Curve]:
    """Every contestant at every budget."""
    return [Curve(one, tuple(instance.solve(one, budget) for budget in budgets)) for one in contestants]


def figure(instance: Instance, curves: Sequence[Curve]) -> Figure:
    """Feasible gradient norm against gradient equivalents; a dot for each budget of HVPs."""
    picture = Figure(figsize=(7.0, 4.4), layout="constrained")
    axes = picture.add_subplot()
    for curve in curves:
        axes.plot(
            [result.cost.gradient_equivalents for result in curve.results],
            [result.gradient_norm for result in curve.results],
            color=curve.contestant.color,
            marker=curve.contestant.marker,
            markersize=6,
            linewidth=1.6,
            label=curve.contestant.name,
        )
    axes.axhline(curves[0].last.gradient_norm_start, color="0.4", linestyle="dotted", linewidth=1.2, label="start")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(base=10.0, subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("cost in gradient equivalents (value ½, gradient 1, HVP 2)")
    axes.set_ylabel(r"$\|\nabla f\|$ of the point returned")
    axes.set_title(f"{instance.name}: stopped after {', '.join(map(str, BUDGETS))} HVPs", fontsize=10)
    axes.grid(alpha=0.25)
    picture.legend(loc="outside lower center", ncols=3, frameon=False)
    return picture
