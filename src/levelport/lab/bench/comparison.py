"""One table: what descent with teleports costs next to gradient descent, L-BFGS and Newton-CG.

Logistic regression on scikit-learn's breast-cancer data, f(w) = mean log(1 + exp(-y x·w)) + reg ‖w‖² from w = 0,
features standardised, a bias column. The cost of a method is the number of gradient equivalents (value ½, gradient 1,
HVP 2) it has spent when (f - f*)/(f(0) - f*) first falls to each accuracy, by the instrument of all benchmarks: whoever
minimises, every gradient is a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from levelport.lab.bench.competitors import Competitor, competitor_named, descent
from levelport.lab.bench.instances import Instance
from levelport.lab.bench.watched import Watched
from levelport.objectives.linear import LinearObjective
from levelport.optim.armijo import Armijo
from levelport.optim.jump import Jump
from levelport.optim.schedules import Every

ACCURACIES = (1e-4, 1e-6, 1e-10)

CONTESTANTS = (
    Competitor("GD-Armijo", descent(Armijo(), teleport=False)),
    Competitor(
        "GD-Armijo + published solver", descent(Armijo(), teleport=Every(50, start=5), jump=Jump("sqp", max_hvps=50))
    ),
    competitor_named("levelport.minimize"),
    competitor_named("SciPy L-BFGS-B"),
    competitor_named("SciPy L-BFGS-B, 60 pairs"),
    competitor_named("SciPy Newton-CG"),
)
"""GD has the paper's Armijo constant here, ½; elsewhere in the benchmark it has that of ``minimize``."""


@dataclass(frozen=True)
class ComparisonRow:
    """A method, and the gradient equivalents it needs for each accuracy; None where it did not get there."""

    method: str
    costs: tuple[float | None, ...]


def compare(
    reg: float = 1e-6,
    contestants: Sequence[Competitor] = CONTESTANTS,
    accuracies: Sequence[float] = ACCURACIES,
    max_cost: float = 20_000.0,
) -> list[ComparisonRow]:
    """The rows of the table, each method stopped at ``max_cost`` gradient equivalents at the latest."""
    X, y = standardised_breast_cancer()
    zero = torch.zeros(X.shape[1], dtype=X.dtype)
    f_start, f_star = LinearObjective.logistic(X, y, penalty=reg).at(zero).value, minimum(X, y, reg)
    levels = [f_star + accuracy * (f_start - f_star) for accuracy in accuracies]
    rows = []
    for contestant in contestants:
        objective = LinearObjective.logistic(X, y, penalty=reg)
        watched = Watched(objective, target=min(levels), max_cost=max_cost)
        contestant.run(watched, Instance(objective, zero, f_star, lr=1.0, f_star_for_polyak=f_star))
        costs = tuple(next((cost for cost, value, _ in watched.records if value <= one), None) for one in levels)
        rows.append(ComparisonRow(contestant.name, costs))
    return rows


def standardised_breast_cancer() -> tuple[Tensor, Tensor]:
    """Features with mean 0 and standard deviation 1 and a column of ones; labels ±1."""
    from sklearn.datasets import load_breast_cancer

    features, classes = load_breast_cancer(return_X_y=True)
    features = (features - features.mean(0)) / features.std(0)
    X = np.hstack([features, np.ones((len(features), 1))])
    return torch.tensor(X), torch.tensor(2.0 * classes - 1.0)


def minimum(X: Tensor, y: Tensor, reg: float) -> float:
    """f* by Newton's method with a dense Hessian and halved steps, to the last bit that f has."""
    objective = LinearObjective.logistic(X, y, penalty=reg)
    identity = torch.eye(X.shape[1], dtype=X.dtype)
    point = objective.at(torch.zeros(X.shape[1], dtype=X.dtype))
    while True:
        hessian = torch.stack([point.hvp(column) for column in identity])
        direction = torch.linalg.solve(hessian, point.gradient)
        trials = (objective.at(point.x - 0.5**halvings * direction) for halvings in range(60))
        better = next((trial for trial in trials if trial.value < point.value), None)
        if better is None:
            return point.value
        point = better


def as_text(rows: Sequence[ComparisonRow], accuracies: Sequence[float] = ACCURACIES) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| method | " + " | ".join(f"{accuracy:.0e}" for accuracy in accuracies) + " |",
        "| --- |" + " ---: |" * len(accuracies),
    ]
    for row in rows:
        cells = ("not reached" if cost is None else f"{cost:.0f}" for cost in row.costs)
        lines.append(f"| {row.method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
