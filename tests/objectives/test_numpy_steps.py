"""Differences of values: the points at which f is looked at are those of SciPy's rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from levelport.objectives.numpy import NumpyObjective, products


@pytest.mark.parametrize(("jac", "power"), [("2-point", 1 / 2), ("3-point", 1 / 3)])
def test_steps_grow_with_large_entries_only(jac: str, power: float) -> None:
    seen: list[Any] = []

    def fun(x: Any) -> float:
        seen.append(x.copy())
        return float((x**2).sum())

    x = torch.tensor([-300.0, 0.01, 1.5, 0.0], dtype=torch.float64)
    point = NumpyObjective(fun, jac, dimension=4).at(x)  # type: ignore[arg-type]
    np.testing.assert_allclose(point.gradient, 2.0 * x, atol=1e-3)
    steps = np.array([np.abs(row - x.numpy()) for row in seen])
    expected = np.finfo(float).eps ** power * np.maximum(1.0, np.abs(x.numpy()))
    np.testing.assert_allclose(steps.max(axis=0), expected, rtol=1e-6)
    assert all(np.count_nonzero(step) <= 1 for step in steps)  # one entry at a time
    assert len(seen) == (5 if jac == "2-point" else 9)


def test_gradients_of_any_dtype_become_float64() -> None:
    point = NumpyObjective(lambda x: float(x @ x), lambda x: (2 * x).astype(int), dimension=2).at(
        torch.ones(2).double()
    )
    assert point.gradient.dtype == torch.float64


def test_false_takes_differences_as_in_scipy() -> None:
    point = NumpyObjective(lambda x: float(x @ x), False, dimension=2).at(torch.ones(2).double())
    np.testing.assert_allclose(point.gradient, [2.0, 2.0], rtol=1e-6)


@pytest.mark.parametrize("hessp", [None, lambda x, v, a, b: 12 * a * x**2 * v])
@pytest.mark.parametrize("jac", [None, "2-point", "3-point", True, lambda x, a, b: 4 * a * x**3])
def test_arguments_reach_every_call(jac: Any, hessp: Any) -> None:
    """f = 2 Σ x⁴ + 3."""

    def fun(x: Any, a: float, b: float) -> Any:
        value = a * float((x**4).sum()) + b
        return (value, 4 * a * x**3) if jac is True else value

    x = torch.tensor([1.0, -2.0], dtype=torch.float64)
    point = NumpyObjective(fun, jac, hessp, dimension=2, args=(2.0, 3.0)).at(x)
    assert point.value == 37.0
    np.testing.assert_allclose(point.gradient, 8.0 * x**3, rtol=1e-5)
    np.testing.assert_allclose(point.hvp(torch.ones_like(x)), 24.0 * x**2, rtol=1e-2)


def test_a_dense_hessian_gets_its_arguments() -> None:
    asked: list[float] = []

    def hess(x: Any, a: float) -> Any:
        asked.append(a)
        x *= 0.0  # a copy
        return a * np.diag([1.0, 4.0])

    product, x = products(hess), np.array([1.0, 2.0])
    for _ in range(2):
        np.testing.assert_array_equal(product(x, np.ones(2), 3.0), [3.0, 12.0])
    np.testing.assert_array_equal(product(2.0 * x, np.ones(2), 3.0), [3.0, 12.0])
    assert asked == [3.0, 3.0]
