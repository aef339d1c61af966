"""The table of costs: counted right, and with the order that the docs claim."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import torch

from levelport.lab.bench.comparison import (
    ACCURACIES,
    ComparisonRow,
    as_text,
    compare,
    minimum,
    standardised_breast_cancer,
)


@pytest.fixture(scope="module")
def rows() -> dict[str, ComparisonRow]:
    return {row.method: row for row in compare(max_cost=3000.0)}


def test_gradient_descent_alone_never_gets_there(rows: dict[str, ComparisonRow]) -> None:
    assert rows["GD-Armijo"].costs == (None, None, None)
    assert rows["GD-Armijo + published solver"].costs == (None, None, None)


def test_teleports_get_there(rows: dict[str, ComparisonRow]) -> None:
    coarse, medium, fine = rows["levelport.minimize"].costs
    assert coarse is not None
    assert medium is not None
    assert fine is not None
    assert coarse <= medium <= fine <= 250.0


def test_scipy_is_counted_as_scipy_counts(rows: dict[str, ComparisonRow]) -> None:
    X, y = standardised_breast_cancer()
    f_star = minimum(X, y, 1e-6)

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
    expected = rows["SciPy L-BFGS-B"].costs[0]
    assert expected == pytest.approx(evaluations, rel=0.05)  # one gradient per evaluation; paths differ in last bits


def test_the_minimum_is_the_minimum() -> None:
    X, y = standardised_breast_cancer()
    reg = 1e-3
    found = minimum(X, y, reg)

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


def test_the_table_as_text() -> None:
    text = as_text([ComparisonRow("a", (1.0, 22.4, None))])
    assert text.splitlines() == [
        "| method | 1e-04 | 1e-06 | 1e-10 |",
        "| --- | ---: | ---: | ---: |",
        "| a | 1 | 22 | not reached |",
    ]
