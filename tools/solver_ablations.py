"""What each mechanism of the default solver is worth: the table "ablations" of docs/results/development.md.

    python tools/solver_ablations.py                  # everything, about 40 minutes of one core
    python tools/solver_ablations.py "pairs of log"   # these rows again, the others stay

The development set, each problem from its start and from one that is 5 % away, with each budget: what is returned
counts, as the referee of the benchmark evaluates it. A row is the solver with one thing changed; the last ones are
other solvers. Numbers, as logarithms of the growth, are kept in docs/results/ablations.csv.gz.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
import torch
from torch import Tensor

import development_networks  # noqa: F401  (registers the second part of the development set)
from development_models import DEVELOPMENT
from levelport.numerics.lbfgs import QuasiNewton
from levelport.objective import Point
from levelport.solvers import Auto, Solver, TeleportProblem
from levelport.solvers.problem import Frame
from levelport_lab.bench.plain_ascent import PlainAscent
from levelport_lab.bench.report import Table, write_page
from levelport_lab.bench.solver_runs import Budget, Contestant, score
from levelport_lab.problems.teleport_cases import GROUPS, Case, all_cases

ASCENT, BASINS = "levelport.solvers.ascent.", "levelport.solvers.basins."
LBFGS = "levelport.numerics.lbfgs.QuasiNewton."
DRAWS = 2
BUDGETS = (Budget(25), Budget(50), Budget(150, "ge"))
AS_IT_IS = "as it is"
RESULTS = Path(__file__).parents[1] / "docs" / "results"


def _gain(frame: Frame, point: Point, problem: TeleportProblem) -> float:
    size = point.gradient_norm
    return math.log(size / problem.start.gradient_norm) if size > 0.0 else -math.inf


def _identity(model: QuasiNewton) -> Tensor:
    return torch.ones_like(model._S[0])


def _with_the_shorter_scale(model: QuasiNewton, q: Tensor) -> Tensor:
    """γ = ⟨s, y⟩/⟨y, W y⟩ instead of ⟨s, W⁻¹ s⟩/⟨s, y⟩."""
    W, s, y = model._weights(), model._S[model._newest], model._Y[model._newest]
    return q.mul_(W).mul_(torch.dot(s, y) / torch.dot(y, W * y))


@dataclass(frozen=True)
class Variant:
    """A solver, with names of the default's modules bound to something else while it runs."""

    means: str
    changes: dict[str, Any] = field(default_factory=dict)
    make: Callable[[], Solver] = Auto


VARIANTS: dict[str, Variant] = {
    AS_IT_IS: Variant("the default"),
    "no other side": Variant("no second ascent across the valley", {BASINS + "far_side": lambda problem, frame: None}),
    "no steepest side": Variant(
        "no search in the steepest directions at the end",
        {BASINS + "steepest_side": lambda problem, frame, above: None},
    ),
    "any height": Variant(
        "no bound on the excess over the level",
        {ASCENT + "_LEFT_OF_DEPTH": math.inf},
    ),
    "no second length": Variant("no trial of twice the length", {ASCENT + "_AS_PREDICTED": math.inf}),
    "no better length": Variant(
        "no trial at the parabola's top",
        {ASCENT + "_BEYOND": -math.inf},
    ),
    "kinks crept along": Variant("trials shortened without limit", {ASCENT + "_LOSERS": math.inf}),
    "no diagonal": Variant("L-BFGS starts from a multiple of the identity", {LBFGS + "_weights": _identity}),
    "shorter scale": Variant("the shorter initial scale", {LBFGS + "_initial": _with_the_shorter_scale}),
    "pairs of log": Variant("pairs from log ‖∇f‖, not -‖∇f‖^(-½)", {ASCENT + "_POWER": 0.0}),
    "no account of the excess": Variant("merit ‖∇f‖, without the excess", {ASCENT + "merit": _gain}),
    "tangent back": Variant(
        "return by the slope alone, without λ",
        {ASCENT + "parabola_root": lambda excess, slope, curvature: excess / slope},
    ),
    "not sticky": Variant(
        "the sign of λ alone decides when an ascent is inside",
        {ASCENT + "LevelSetAscent._inside": lambda self, point: False},
    ),
    "any growth": Variant("predicted growth beyond e² allowed", {ASCENT + "_LONGEST": math.inf}),
    "memory 10": Variant("ten pairs", make=lambda: Auto(memory=10)),
    "plain L-BFGS": Variant("textbook L-BFGS", make=lambda: PlainAscent("lbfgs")),
}


def run(name: str, case: Case, draw: int, budgets: tuple[Budget, ...] = BUDGETS) -> dict[str, Any]:
    """One variant on one problem: the logarithm of the growth for each budget."""
    variant = VARIANTS[name]
    with ExitStack() as changed:
        for place, value in variant.changes.items():
            changed.enter_context(patch(place, value))
        seen = [score(Contestant(name, variant.make), case, budget, draw) for budget in budgets]
    heights = [math.log(one.gradient_norm / one.start_norm) for one in seen]
    facts = {budget.name: height for budget, height in zip(budgets, heights, strict=True)}
    return {"variant": name, "problem": case.name, "draw": draw, "group": case.group, **facts}


def summary(table: pd.DataFrame) -> Table:
    """Return geometric means of returned/best per group, and how certain the differences from the default are.

    Best is the most that any row found. The last column has the mean of log(row/default) over all networks, with its
    standard error: a row within two of them cannot be told from the default.
    """
    columns = [budget.name for budget in BUDGETS]
    best = table.groupby(["problem", "draw"])[columns].max().max(axis=1).rename("best").reset_index()
    table = table.merge(best, on=["problem", "draw"])
    default = table[table["variant"] == AS_IT_IS].set_index(["problem", "draw"])
    lines = []
    for name in [name for name in VARIANTS if name in set(table["variant"])]:
        rows, cells = table[table["variant"] == name], []
        for group in GROUPS[:3]:
            mine = rows[rows["group"] == group]
            cells.append(f"{math.exp((mine['50 hvps'] - mine['best']).mean()):.2f}")
        networks = rows[rows["group"] != "statistical"].set_index(["problem", "draw"])
        difference = (networks["50 hvps"] - default.loc[networks.index, "50 hvps"]).groupby("problem").mean()
        cells.append("-" if name == AS_IT_IS else f"{difference.mean():+.3f} ± {difference.sem():.3f}")
        lines.append([VARIANTS[name].means, *cells])
    return Table("ablations", ["row", *GROUPS[:3], "log ratio"], lines)


def main() -> None:
    """Run what was asked for, keep the rest, write the numbers and the table."""
    torch.set_num_threads(1)
    names = sys.argv[1:] or list(VARIANTS)
    if unknown := [name for name in names if name not in VARIANTS]:
        sys.exit(f"No such row: {', '.join(unknown)}. There are: {', '.join(VARIANTS)}.")
    numbers = RESULTS / "ablations.csv.gz"
    table = pd.read_csv(numbers) if numbers.exists() else pd.DataFrame(columns=["variant"])
    cases = list(all_cases(DEVELOPMENT).values())
    for name in names:
        found = [run(name, case, draw) for case in cases for draw in range(DRAWS)]
        table = pd.concat([table[table["variant"] != name], pd.DataFrame(found)], ignore_index=True)
        table.to_csv(numbers, index=False, float_format="%.6g", compression={"method": "gzip", "mtime": 0})
        print(name, flush=True)
    write_page(RESULTS / "development.md", [summary(table)])


if __name__ == "__main__":
    main()
