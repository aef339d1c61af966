"""What makes ``minimize`` fast: the teleport, or the descent inside it? One small table of costs.

Logistic regression on all of scikit-learn's breast-cancer data, f(w) = mean log(1 + exp(-y x·w)) + reg ‖w‖² from w = 0,
features standardized, a bias column. The cost of a method is the number of gradient equivalents (value ½, gradient 1,
HVP 2) it has spent when (f - f*)/(f(0) - f*) first falls to each accuracy.

The control takes the descent of the default teleport and leaves out its climb: it is no teleport, because the gradient
may shrink, and everything else is the same. If the control is as fast, the climb, which is what makes it a teleport, is
not what pays. Certified teleports, which really maximize the gradient norm, are run next to both.
"""

from __future__ import annotations

from collections.abc import Sequence

from levelport_lab.bench.competitors import LBFGS, LBFGS_60, NEWTON_CG, NEWTON_CG_DIFFERENCES, NO_CLIMB, OURS
from levelport_lab.bench.instances import ProblemName
from levelport_lab.bench.races import RaceSpec, race
from levelport_lab.engine.spec import Run
from levelport_lab.paper.profiles import Axis, spent_until_solved

DATA = "logreg/breast-cancer-wisconsin"
STRENGTHS = (1e-6, 1e-3)
ACCURACIES = (1e-4, 1e-6, 1e-10)
MAX_COST = 20_000.0

MAIN = (
    "GD-Armijo, c = ½",
    "GD-Armijo, c = ½, published teleports",
    OURS,
    LBFGS,
    LBFGS_60,
    NEWTON_CG,
    NEWTON_CG_DIFFERENCES,
)
"""GD has the paper's Armijo constant here; elsewhere in the benchmark it has that of ``minimize``."""

CERTIFIED = (
    "GD-Armijo, c = ½, certified teleport every 50 steps",
    "GD-Armijo, c = ½, certified teleport every step",
    NO_CLIMB,
)

Costs = tuple[float, ...]
"""Gradient equivalents for each of the accuracies; infinite where it was not reached."""


def specs() -> list[RaceSpec]:
    """Return the races of the table for both penalties, with certified teleports and the control without the climb."""
    return [RaceSpec(_problem(reg), name, MAX_COST) for reg in STRENGTHS for name in (*MAIN, *CERTIFIED)]


def cost_table(
    reg: float = STRENGTHS[0], competitors: Sequence[str] = MAIN, max_cost: float = MAX_COST
) -> dict[str, Costs]:
    """The costs of each competitor, measured now."""
    return {name: _costs(race(_problem(reg), name, max_cost)) for name in competitors}


def _problem(reg: float) -> ProblemName:
    return ProblemName("all samples", DATA, reg)


def _costs(run: Run) -> Costs:
    start, optimum = run.facts["f_start"], run.facts["f_star"]
    return tuple(spent_until_solved(run, start, optimum, tau, Axis.COST) for tau in ACCURACIES)


def cell(cost: float) -> str:
    """A cost for people."""
    return f"{cost:.0f}" if cost < float("inf") else "not reached"
