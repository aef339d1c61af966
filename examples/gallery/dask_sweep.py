"""A sweep on a local Dask cluster.

Logistic regression on two data sets with six penalties, by gradient descent with a line search and by `minimize`: 24
runs on two worker processes that Dask starts on this machine. Results are stored under the hash of their specification,
so a second start computes only what is missing. With the address of a scheduler in place of `jobs=2` the same lines use
a cluster.
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

from matplotlib.figure import Figure

from levelport_lab.bench.instances import ProblemName
from levelport_lab.bench.races import RaceSpec
from levelport_lab.engine.backends import Backend
from levelport_lab.engine.runner import Plan, run_plan
from levelport_lab.engine.store import Store
from levelport_lab.paper.profiles import Axis, spent_until_solved

NEEDS = "distributed"
ACCURACY = 1e-6
PENALTIES = [10.0**-power for power in range(1, 7)]
METHODS = {"GD-Armijo": "gradient descent", "levelport.minimize": "minimize"}


def main() -> Figure:
    specs = {
        (data, method, reg): RaceSpec(ProblemName("logistic", f"logreg/{data}", reg), method, 2000.0)
        for data in ("blood", "ionosphere")
        for method in METHODS
        for reg in PENALTIES
    }
    with tempfile.TemporaryDirectory() as directory:
        store = Store(Path(directory))
        sweep = run_plan(Plan.of(list(specs.values()), store), store, Backend("dask", jobs=2))
        again = Plan.of(list(specs.values()), store)
    print(f"{sweep.computed} runs computed, {len(sweep.failures)} failed; a second start would run {len(again.todo)}")

    picture = Figure(figsize=(9, 4), layout="constrained")
    for panel, data in zip(picture.subplots(1, 2, sharey=True), ("blood", "ionosphere"), strict=True):
        for method, label in METHODS.items():
            costs = []
            for reg in PENALTIES:
                run = sweep.results[specs[data, method, reg].key].best
                costs.append(spent_until_solved(run, run.facts["f_start"], run.facts["f_star"], ACCURACY, Axis.COST))
            panel.loglog(PENALTIES, costs, marker="o", label=label)
            words = [f"{cost:.0f}" if math.isfinite(cost) else "not reached" for cost in costs]
            print(f"{data}, {label}: {', '.join(words)}")
        panel.set(title=data, xlabel="penalty")
    panel.legend()
    picture.axes[0].set_ylabel(f"gradient equivalents to accuracy {ACCURACY:g}")
    return picture
