"""Differences of values: the points at which f is looked at are those of SciPy's rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from levelport.objectives.numpy import NumpyObjective


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
