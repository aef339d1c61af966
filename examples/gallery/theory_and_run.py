"""Theory against a run.

Logistic regression with proved constants. Left: f - f* for gradient descent with a line search, alone and with a
teleport before every other step, and the theorems' bound on each. The runs stay below their bounds, with teleports by
many orders of magnitude. Right: the same methods against cost, which the bounds do not take into account.
"""

from __future__ import annotations

import math

from matplotlib.figure import Figure

import levelport
from levelport.optim import Armijo
from levelport_lab import problem
from levelport_lab.theory import audit, warm_start

ITERATIONS = 30
SHOWN = {
    "strongly convex: (1-μ/L)ᴷ δ₀": ("bound, alone", "tab:blue"),
    "teleports, recursion": ("bound, with teleports", "tab:orange"),
}


def main() -> Figure:
    named = problem("logreg/blood", reg=1e-3)
    objective = named.objective()
    start = warm_start(objective, named.initial_point(), 5)
    found = audit(objective, start, ITERATIONS)
    assert not found.violations()

    picture = Figure(figsize=(10, 4), layout="constrained")
    bounded, spent = picture.subplots(1, 2, sharey=True)
    for name, run, colour in (("alone", found.descent, "tab:blue"), ("with teleports", found.teleported, "tab:orange")):
        gaps = [gap if run.resolved(k) else math.nan for k, gap in enumerate(run.gaps)]
        bounded.semilogy(gaps, marker=".", color=colour, label=name)
    for bound in found.bounds:
        if bound.label in SHOWN:
            name, colour = SHOWN[bound.label]
            bounded.semilogy(bound.rate, "--", color=colour, label=name)
            print(f"{name}: at K = {ITERATIONS} at most {bound.rate[ITERATIONS]:.1e}")
    print(f"measured with teleports at K = 3: {found.teleported.gaps[3]:.0e}, alone {found.descent.gaps[3]:.0e}")

    floor, rounding = named.optimum().value, found.descent.rounding
    for name, schedule in (("alone", levelport.Never()), ("with teleports", levelport.Every(2, start=1))):
        result = levelport.minimize(objective, start, Armijo(), schedule=schedule, solver="auto", max_cost=300)
        rows = [(row.cost, row.value - floor) for row in result.trace if row.value - floor > rounding]
        spent.semilogy(*zip(*rows, strict=True), marker=".", label=name)
    bounded.set(xlabel="iteration", ylabel="f - f*", title="against iterations", ylim=(rounding, 10.0))
    spent.set(xlabel="gradient equivalents", title="against cost")
    picture.legend(*bounded.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return picture
