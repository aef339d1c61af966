"""What the default solver's own work costs beyond the evaluations it asks for: docs/results/solvers-overhead.{csv,md}.

    python tools/solver_overhead.py

    overhead = (processor time of the teleport - processor time inside evaluations) / processor time inside evaluations.

Processor time of the thread, one thread, problems and solvers in turn, median of the rounds. Leave the machine alone
meanwhile: the processor's caches are shared. About two minutes.

Other solvers show what Python and torch take at these sizes whatever is done: nonlinear CG, which does next to nothing
between two evaluations; L-BFGS by the book; and SciPy's SLSQP, whose own work is compiled.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from levelport import Auto, Solver, teleport
from levelport.objective import Objective
from levelport.objectives import FunctionObjective, LinearObjective
from levelport.optim import Never, minimize
from levelport.solvers import solver_named
from levelport_lab.bench.metered import Metered
from levelport_lab.bench.own_cost import LARGE, large_network
from levelport_lab.bench.scipy_solvers import ScipySolver
from levelport_lab.bench.zoo_baselines import PlainAscent
from levelport_lab.problems.atomic import write_text
from levelport_lab.problems.registry import problem

ROUNDS = 15
GOAL, LARGE_GOAL = 0.15, 0.05
RESULTS = Path(__file__).parents[1] / "docs" / "results"


def closed_form(name: str, reg: float) -> tuple[LinearObjective, Tensor]:
    """Logistic regression after five steps of gradient descent: products with the data and nothing else."""
    objective = problem(name, reg=reg).objective()
    assert isinstance(objective, LinearObjective)
    zero = torch.zeros(objective.dimension, dtype=objective.dtype)
    return objective, minimize(objective, zero, "armijo", schedule=Never(), gtol=0.0, max_iterations=5).x


def by_autograd(name: str, reg: float) -> tuple[Objective, Tensor]:
    """The same function at the same point as a user would write it down, differentiated automatically."""
    known, x = closed_form(name, reg)
    X, penalty, loss = known.X, known.penalty, known.loss
    return FunctionObjective(lambda w: loss.mean(X @ w) + penalty * torch.dot(w, w), like=x), x


def million() -> tuple[Objective, Tensor]:
    """The network with a million parameters of the memory suite, in float32."""
    instance = large_network()
    return instance.objective, instance.x0


LOGISTIC = {"logreg/pima": 1e-3, "logreg/spambase": 1e-3, "logreg/magic": 1e-6}

CASES: dict[str, tuple[Callable[[], tuple[Objective, Tensor]], int, float]] = {
    **{f"{name}, {reg:g}, closed form": (partial(closed_form, name, reg), 50, GOAL) for name, reg in LOGISTIC.items()},
    **{f"{name}, {reg:g}, autograd": (partial(by_autograd, name, reg), 50, GOAL) for name, reg in LOGISTIC.items()},
    LARGE: (million, 10, LARGE_GOAL),
}
"""How to build a problem, the Hessian-vector products of a teleport on it, and the goal."""


DEFAULT = "auto"
SOLVERS: dict[str, Solver] = {
    DEFAULT: Auto(),
    "nonlinear CG": PlainAscent("cg"),
    "L-BFGS": PlainAscent("lbfgs"),
    "SLSQP": ScipySolver("SLSQP"),
}
"""The default and, on the small problems, others."""


def measured(objective: Objective, x: Tensor, solver: Solver, max_hvps: int) -> dict[str, float]:
    """One teleport: processor time inside evaluations and outside of them, in milliseconds."""
    metered = Metered(objective, clock=time.thread_time)
    began = time.thread_time()
    products = teleport(metered, x, replace(solver_named(solver), max_hvps=max_hvps)).cost.hvps
    total = time.thread_time() - began
    inside = metered.evaluation_seconds
    outside = total - inside
    return {"milliseconds": 1e3 * total, "overhead": outside / inside, "per_product": 1e6 * outside / products}


def main() -> None:
    """Measure in turn, write the table and the page."""
    torch.set_num_threads(1)
    built = {name: make() for name, (make, _, _) in CASES.items()}
    seen: dict[tuple[str, str], list[dict[str, float]]] = {}
    for _ in range(ROUNDS + 1):
        for name, (objective, x) in built.items():
            for called, solver in SOLVERS.items():
                if called == DEFAULT or name != LARGE:
                    found = measured(objective, x, solver, CASES[name][1])
                    seen.setdefault((name, called), []).append(found)
    rows = []
    for (name, called), rounds in seen.items():
        table = pd.DataFrame(rounds[1:])  # the first one warms up
        shares = table["overhead"]
        facts = {"problem": name, "solver": called, "variables": built[name][0].dimension, "hvps": CASES[name][1]}
        ends = {"lowest": shares.min(), "highest": shares.max(), "goal": CASES[name][2]}
        rows.append({**facts, **table.median(), **ends})
    write_text(RESULTS / "solvers-overhead.csv", pd.DataFrame(rows).to_csv(index=False, float_format="%.4g"))
    write_text(RESULTS / "solvers-overhead.md", page(pd.DataFrame(rows)))


def page(table: pd.DataFrame) -> str:
    """A row per problem, with the others beside the default."""
    others = [called for called in SOLVERS if called != DEFAULT]
    lines = [
        "# What the default solver costs beyond its evaluations",
        "",
        "Written by `python tools/solver_overhead.py`; numbers in `solvers-overhead.csv`. Processor time outside",
        f"evaluations over processor time inside them, one thread, median of {ROUNDS} interleaved teleports.",
        "",
        "Logistic problems come twice. *Autograd*: a loss function as users write it, differentiated automatically.",
        "*Closed form*: the library's own `LinearObjective`, whose evaluations are a few products with the data and",
        "take microseconds, so that Python itself is visible beside them. The last row is a network in float32.",
        "In brackets microseconds per Hessian-vector product. The others are there to compare with: nonlinear CG does",
        "next to nothing between two evaluations (of which it takes more per product), SLSQP's own work is compiled.",
        "",
        f"| problem | variables | HVPs | ms per teleport | `auto` | lowest to highest | goal | met | "
        f"{' | '.join(others)} |",
        "| --- | ---: | ---: | ---: | ---: | --- | ---: | --- |" + " ---: |" * len(others),
    ]

    def share(rows: pd.DataFrame) -> str:
        return "" if rows.empty else f"{rows['overhead'].item():.0%} ({rows['per_product'].item():.0f})"

    for name, rows in table.groupby("problem", sort=False):
        ours = rows[rows["solver"] == DEFAULT].iloc[0]
        cells = [share(rows[rows["solver"] == called]) for called in (DEFAULT, *others)]
        lines.append(
            f"| {name} | {ours['variables']} | {ours['hvps']} | {ours['milliseconds']:.1f} | {cells[0]} | "
            f"{ours['lowest']:.0%} to {ours['highest']:.0%} | {ours['goal']:.0%} | "
            f"{'yes' if ours['overhead'] <= ours['goal'] else 'no'} | {' | '.join(cells[1:])} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
