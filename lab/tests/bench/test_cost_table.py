"""The table of costs: counted right, and with the order that the docs claim."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.optimize
import torch

from levelport_lab.bench.competitors import LBFGS, OURS
from levelport_lab.bench.cost_table import ACCURACIES, MAIN, Costs, cell, cost_table
from levelport_lab.bench.instances import logistic_objective
from levelport_lab.problems.datasets import load_data
from levelport_lab.problems.optima import compute

DATA = "breast-cancer-wisconsin"


@pytest.fixture(scope="module")
def costs() -> dict[str, Costs]:
    return cost_table(max_cost=3000.0)


def labels() -> torch.Tensor:
    return torch.tensor(load_data(DATA).y, dtype=torch.float64)


def test_gradient_descent_alone_never_gets_there(costs: dict[str, Costs]) -> None:
    assert costs[MAIN[0]] == costs[MAIN[1]] == (math.inf, math.inf, math.inf)


def test_teleports_get_there(costs: dict[str, Costs]) -> None:
    coarse, medium, fine = costs[OURS]
    assert coarse <= medium <= fine <= 250.0


def test_scipy_is_counted_as_scipy_counts(costs: dict[str, Costs]) -> None:
    objective = logistic_objective(DATA, 1e-6)
    X, y, f_star = objective.X, labels(), compute(objective).value

    def both(w: np.ndarray) -> tuple[float, np.ndarray]:  # type: ignore[type-arg]
        margins = y.numpy() * (X.numpy() @ w)
        weights = -y.numpy() / (1.0 + np.exp(margins))
        gradient = X.numpy().T @ weights / len(y) + 2e-6 * w
        return float(np.logaddexp(0.0, -margins).mean() + 1e-6 * w @ w), gradient

    values: list[float] = []

    def recorded(w: np.ndarray) -> tuple[float, np.ndarray]:  # type: ignore[type-arg]
        value, gradient = both(w)
        values.append(value)
        return value, gradient

    scipy.optimize.minimize(recorded, np.zeros(31), jac=True, method="L-BFGS-B", options={"ftol": 0.0, "gtol": 0.0})
    level = f_star + ACCURACIES[0] * (np.log(2.0) - f_star)
    evaluations = 1 + next(position for position, value in enumerate(values) if value <= level)
    expected = costs[LBFGS][0]
    assert expected == pytest.approx(evaluations, rel=0.05)  # one gradient per evaluation; paths differ in last bits


def test_the_minimum_is_the_minimum() -> None:
    reg = 1e-3
    objective = logistic_objective(DATA, reg)
    X, y, found = objective.X, labels(), compute(objective).value

    def f(w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.softplus(-y * (X @ w)).mean() + reg * w.square().sum()

    def gradient(w: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        x = torch.tensor(w, requires_grad=True)
        return torch.autograd.grad(f(x), x)[0].numpy()

    other = scipy.optimize.minimize(
        lambda w: float(f(torch.tensor(w))), np.zeros(31), jac=gradient, method="BFGS", options={"gtol": 1e-8}
    )
    assert found == pytest.approx(other.fun, rel=1e-10)
    assert found <= other.fun


def test_cells_say_what_was_not_reached() -> None:
    assert [cell(cost) for cost in (1.0, 22.4, math.inf)] == ["1", "22", "not reached"]
