"""Figure 8 of the paper, in small.

Ten logistic regressions with penalty 1e-6: the share of problems that gradient descent with a line search has solved,
with teleports by the paper's solver, with ours, and without, against iterations as in the paper and against cost.
Teleports at 5, 55, 105 and 155; solved means that the gap has fallen to a thousandth. `levelport reproduce fig8` runs
all of it.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

import levelport
from levelport.optim import Armijo
from levelport_lab.problems import problem

ARMS = {
    "no teleports": (levelport.Never(), levelport.Auto()),
    "published solver": (levelport.Every(50, start=5), levelport.SQP(max_hvps=50)),
    "levelport's solver": (levelport.Every(50, start=5), levelport.Auto(max_hvps=50)),
}
ITERATIONS = 200
NAMES = (
    "blood", "breast-cancer", "credit-approval", "horse-colic", "ilpd-indian-liver", "ionosphere", "mammographic",
    "pima", "conn-bench-sonar-mines-rocks", "tic-tac-toe",
)  # fmt: skip


def main() -> Figure:
    picture = Figure(figsize=(9, 3.8), layout="constrained")
    left, right = picture.subplots(1, 2, sharey=True)
    for arm, (schedule, solver) in ARMS.items():
        steps, costs = [], []
        for name in NAMES:
            one = problem(f"logreg/{name}", reg=1e-6)
            best, start = one.optimum().value, one.initial_point()
            run = levelport.minimize(
                one.objective(), start, Armijo(c=0.5), schedule=schedule, solver=solver, max_iterations=ITERATIONS
            )
            level = best + 1e-3 * (run.trace[0].value - best)
            solved = next((row for row in run.trace if row.value <= level), None)
            steps.append(np.inf if solved is None else solved.iteration)
            costs.append(np.inf if solved is None else solved.cost)
        share = np.arange(1, len(NAMES) + 1) / len(NAMES)
        left.step(np.sort(steps), share, where="post", label=arm)
        right.step(np.sort(costs), share, where="post", label=arm)
        print(f"{arm}: {np.isfinite(steps).mean():.0%} solved in {ITERATIONS} iterations")
    left.set(xlabel="iterations", ylabel="share of problems solved", xlim=(0, ITERATIONS), ylim=(0, 1))
    right.set(xlabel="gradient equivalents", xscale="log")
    left.legend(loc="lower right")
    return picture
