"""Optimal values of the problems, from long runs of SciPy's methods only: ``python -m … .optima`` writes them again.

L-BFGS-B with 200 pairs goes first, trust-ncg and Newton-CG with exact products go on from its end. The lowest value
that any of them saw is f*. Networks have none.
"""

from __future__ import annotations

import contextlib
import csv
import math
from functools import cache
from pathlib import Path

import torch

from levelport.objectives import FunctionObjective
from levelport_lab.bench.competitors import LBFGSB, scipy_run
from levelport_lab.bench.metered import Enough, Metered
from levelport_lab.bench.minimizers.problems import PROBLEMS, Problem

FILE = Path(__file__).with_name("optima.csv")
BUDGET = 20_000.0


@cache
def optima() -> dict[str, float]:
    """f* by the name of the problem."""
    with FILE.open() as lines:
        return {row["problem"]: float(row["f_star"]) for row in csv.DictReader(lines)}


def lowest(problem: Problem) -> float:
    """The lowest value that the reference runs see."""
    loss, x0 = problem.make()
    inner, best = FunctionObjective(loss, like=x0), math.inf
    stages = (("L-BFGS-B", LBFGSB | {"maxcor": 200}), ("trust-ncg", {"gtol": 1e-14}), ("Newton-CG", {"xtol": 1e-15}))
    for method, options in stages:
        metered = Metered(inner, max_cost=BUDGET)
        with contextlib.suppress(Enough):
            x0 = torch.tensor(scipy_run(metered, x0, method, options).x)
        best = min([best, *(value for _, value, _ in metered.records if math.isfinite(value))])
    return best


def main() -> None:
    """Write the file."""
    with FILE.open("w", newline="") as lines:
        writer = csv.writer(lines)
        writer.writerow(("problem", "f_star"))
        for problem in PROBLEMS.values():
            if problem.group != "network":
                writer.writerow((problem.name, repr(lowest(problem))))
                lines.flush()


if __name__ == "__main__":
    main()
