"""What the default solver's own work costs beyond the evaluations it asks for: docs/results/solvers-overhead.{csv,md}.

    python scripts/solver_overhead.py

    overhead = (processor time of the teleport - processor time inside evaluations) / processor time inside evaluations.

Processor time of the thread, one thread, problems in turn, median of the rounds. Leave the machine alone meanwhile: the
processor's caches are shared. About two minutes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from levelport import teleport
from levelport.lab.bench.metered import Metered
from levelport.lab.bench.own_cost import LARGE, large_network
from levelport.objective import Objective
from levelport.objectives import FunctionObjective, LinearObjective
from levelport.optim import Never, minimize
from levelport.problems.registry import problem

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


def main() -> None:
    """Measure in turn, write the table and the page."""
    torch.set_num_threads(1)
    built = {name: make() for name, (make, _, _) in CASES.items()}
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in CASES}
    for _ in range(ROUNDS + 1):
        for name, (objective, x) in built.items():
            metered = Metered(objective, clock=time.thread_time)
            began = time.thread_time()
            teleport(metered, x, max_hvps=CASES[name][1])
            total = time.thread_time() - began
            seen[name].append((total, metered.evaluation_seconds))
    rows = []
    for name, rounds in seen.items():
        shares = [(total - inside) / inside for total, inside in rounds[1:]]  # the first one warms up
        rows.append(
            {
                "problem": name,
                "variables": built[name][0].dimension,
                "hvps": CASES[name][1],
                "milliseconds": 1e3 * statistics.median(total for total, _ in rounds[1:]),
                "overhead": statistics.median(shares),
                "lowest": min(shares),
                "highest": max(shares),
                "goal": CASES[name][2],
                "met": statistics.median(shares) <= CASES[name][2],
            }
        )
    table = pd.DataFrame(rows)
    (RESULTS / "solvers-overhead.csv").write_text(table.to_csv(index=False, float_format="%.4g"), encoding="utf-8")
    lines = [
        "# What the default solver costs beyond its evaluations\n\n",
        "Written by `python scripts/solver_overhead.py`; numbers in `solvers-overhead.csv`. Processor time outside\n",
        f"evaluations over processor time inside them, one thread, median of {ROUNDS} interleaved teleports.\n\n",
        "Logistic problems come twice. *Autograd*: a loss function as users write it, differentiated automatically.\n",
        "*Closed form*: the library's own `LinearObjective`, whose evaluations are a few products with the data and\n",
        "take microseconds, so that Python itself is visible beside them. The last row is a network in float32.\n\n",
        "| problem | variables | HVPs | ms per teleport | overhead | lowest to highest | goal | met |\n",
        "| --- | ---: | ---: | ---: | ---: | --- | ---: | --- |\n",
    ]
    for row in rows:
        lines.append(
            f"| {row['problem']} | {row['variables']} | {row['hvps']} | {row['milliseconds']:.1f} "
            f"| {row['overhead']:.0%} | {row['lowest']:.0%} to {row['highest']:.0%} | {row['goal']:.0%} "
            f"| {'yes' if row['met'] else 'no'} |\n"
        )
    page = "".join(lines)
    (RESULTS / "solvers-overhead.md").write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
