"""One table: what descent with teleports costs next to gradient descent, L-BFGS and Newton-CG.

Logistic regression on scikit-learn's breast-cancer data, f(w) = mean log(1 + exp(-y x·w)) + reg ‖w‖² from w = 0,
features standardised, a bias column. The cost of a method is the number of gradient equivalents (value ½, gradient 1,
HVP 2) it has spent when (f - f*)/(f(0) - f*) first falls to each accuracy. All methods are counted by the same
ledger; a value and a gradient at the same point share their forward pass.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from levelport.objective import Point
from levelport.objectives.linear import LinearObjective
from levelport.optim.armijo import Armijo
from levelport.optim.jump import Jump
from levelport.optim.minimize import minimize
from levelport.optim.schedules import Every

ACCURACIES = (1e-4, 1e-6, 1e-10)

Curve = list[tuple[float, float]]
"""(gradient equivalents, value) along a run."""


@dataclass(frozen=True)
class ComparisonRow:
    """A method, and the gradient equivalents it needs for each accuracy; None where it did not get there."""

    method: str
    costs: tuple[float | None, ...]


def compare(
    reg: float = 1e-6, accuracies: Sequence[float] = ACCURACIES, max_cost: float = 20_000.0
) -> list[ComparisonRow]:
    """The rows of the table, each method stopped at ``max_cost`` gradient equivalents at the latest."""
    X, y = standardised_breast_cancer()
    f_start = LinearObjective.logistic(X, y, penalty=reg).at(zeros(X)).value
    f_star = minimum(X, y, reg)
    target = f_star + min(accuracies) * (f_start - f_star)
    rows = []
    for name, run in methods().items():
        objective = LinearObjective.logistic(X, y, penalty=reg)
        curve = run(objective, target, max_cost)
        levels = [f_star + accuracy * (f_start - f_star) for accuracy in accuracies]
        costs = tuple(next((cost for cost, value in curve if value <= level), None) for level in levels)
        rows.append(ComparisonRow(name, costs))
    return rows


def methods() -> dict[str, Callable[[LinearObjective, float, float], Curve]]:
    """The contestants by name."""

    def ours(*settings: Any, **options: Any) -> Callable[[LinearObjective, float, float], Curve]:
        def run(objective: LinearObjective, target: float, max_cost: float) -> Curve:
            result = minimize(
                objective,
                zeros(objective.X),
                *settings,
                gtol=0.0,
                f_target=target,
                max_iterations=10**9,
                max_cost=max_cost,
                **options,
            )
            return [(row.cost, row.value) for row in result.trace]

        return run

    return {
        "GD-Armijo": ours(Armijo(), False),
        "GD-Armijo + published solver": ours(Armijo(), Every(50, start=5), jump=Jump("sqp", max_hvps=50)),
        "levelport.minimize": ours(),
        "SciPy L-BFGS-B": _scipy("L-BFGS-B", {"ftol": 0.0, "gtol": 0.0, "maxcor": 10}),
        "SciPy L-BFGS-B, 60 pairs": _scipy("L-BFGS-B", {"ftol": 0.0, "gtol": 0.0, "maxcor": 60}),
        "SciPy Newton-CG": _scipy("Newton-CG", {"xtol": 0.0}),
    }


class _Enough(Exception):
    """Ends a SciPy run from inside."""


class _Counted:
    """SciPy's callables on an objective; the ledger counts, and a point serves value, gradient and products."""

    def __init__(self, objective: LinearObjective, target: float, max_cost: float) -> None:
        self.objective, self.target, self.max_cost = objective, target, max_cost
        self.curve: Curve = []
        self._x: NDArray[Any] | None = None
        self._point: Point | None = None

    def _at(self, x: NDArray[Any]) -> Point:
        if self._point is None or self._x is None or not np.array_equal(self._x, x):
            self._x, self._point = x.copy(), self.objective.at(torch.tensor(x))
        return self._point

    def _note(self, value: float) -> None:
        cost = self.objective.cost.gradient_equivalents
        self.curve.append((cost, value))
        if value <= self.target or cost >= self.max_cost:
            raise _Enough

    def fun(self, x: NDArray[Any]) -> float:
        return self._at(x).value

    def jac(self, x: NDArray[Any]) -> NDArray[Any]:
        point = self._at(x)
        gradient = point.gradient
        self._note(point.value)  # with its gradient: a value alone is a trial, not yet an iterate
        return gradient.numpy().copy()

    def hessp(self, x: NDArray[Any], v: NDArray[Any]) -> NDArray[Any]:
        return self._at(x).hvp(torch.tensor(v)).numpy().copy()


def _scipy(method: str, options: dict[str, Any]) -> Callable[[LinearObjective, float, float], Curve]:
    from scipy.optimize import minimize as scipy_minimize

    def run(objective: LinearObjective, target: float, max_cost: float) -> Curve:
        counted = _Counted(objective, target, max_cost)
        limits = {"maxiter": 10**6} | ({"maxfun": 10**6} if method == "L-BFGS-B" else {})
        products = {"hessp": counted.hessp} if method == "Newton-CG" else {}
        with contextlib.suppress(_Enough):
            scipy_minimize(
                counted.fun,
                zeros(objective.X).numpy(),
                jac=counted.jac,
                method=method,
                options=options | limits,
                **products,
            )
        return counted.curve

    return run


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
    point = objective.at(zeros(X))
    while True:
        hessian = torch.stack([point.hvp(column) for column in identity])
        direction = torch.linalg.solve(hessian, point.gradient)
        trials = (objective.at(point.x - 0.5**halvings * direction) for halvings in range(60))
        better = next((trial for trial in trials if trial.value < point.value), None)
        if better is None:
            return point.value
        point = better


def zeros(X: Tensor) -> Tensor:
    """w = 0."""
    return torch.zeros(X.shape[1], dtype=X.dtype)


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
