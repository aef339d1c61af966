"""Time that the default solver spends outside evaluations: table "overhead" of docs/results/development.md.

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
from levelport_lab.bench.plain_ascent import PlainAscent
from levelport_lab.bench.report import Table, write_page
from levelport_lab.bench.scipy_solvers import ScipySolver
from levelport_lab.problems.registry import problem

ROUNDS = 15
LARGE = "mlp-relu-1000-900/digits"
"""A network with about a million parameters, which evaluates in milliseconds all the same."""
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
    """A network with a million parameters, in float32."""
    named = problem(LARGE, reg=1e-4, dtype=torch.float32)
    return named.objective(), named.initial_point()


LOGISTIC = {"logreg/pima": 1e-3, "logreg/spambase": 1e-3}

CASES: dict[str, tuple[Callable[[], tuple[Objective, Tensor]], int]] = {
    **{f"{name}, {reg:g}, closed form": (partial(closed_form, name, reg), 50) for name, reg in LOGISTIC.items()},
    **{f"{name}, {reg:g}, autograd": (partial(by_autograd, name, reg), 50) for name, reg in LOGISTIC.items()},
    LARGE: (million, 10),
}
"""How to build a problem, and the Hessian-vector products of a teleport on it."""


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
    built = {name: make() for name, (make, _) in CASES.items()}
    seen: dict[tuple[str, str], list[dict[str, float]]] = {}
    for _ in range(ROUNDS + 1):
        for name, (objective, x) in built.items():
            for called, solver in SOLVERS.items():
                if called == DEFAULT or name != LARGE:
                    found = measured(objective, x, solver, CASES[name][1])
                    seen.setdefault((name, called), []).append(found)
    rows = []
    for name, (objective, _) in built.items():
        # The first round warms up.
        medians = {
            called: pd.DataFrame(seen[name, called][1:]).median() for called in SOLVERS if (name, called) in seen
        }
        cells = [f"{medians[c]['overhead']:.0%}" if c in medians else "-" for c in SOLVERS]
        rows.append([name, str(objective.dimension), *cells])
    table = Table("overhead", ["problem", "variables", *SOLVERS], rows)
    write_page(RESULTS / "development.md", [table])
    print(table.text())


if __name__ == "__main__":
    main()
