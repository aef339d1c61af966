"""The truncated Newton system against a direct solve."""

from __future__ import annotations

import math

import pytest
import torch
from tests.functions import Quadratic

from levelport.numerics.newton import newton_step
from levelport.objectives import FunctionObjective


def quadratic(dimension: int, condition: float, seed: int = 0) -> tuple[Quadratic, torch.Tensor]:
    spectrum = torch.logspace(0, math.log10(condition), dimension, dtype=torch.float64)
    start = torch.randn(dimension, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Quadratic.random(spectrum, seed), start


@pytest.mark.parametrize(("dimension", "condition"), [(1, 1.0), (5, 1e2), (40, 1e3)])
def test_solves_the_newton_system(dimension: int, condition: float) -> None:
    objective, x = quadratic(dimension, condition)
    point = objective.at(x)
    solved = newton_step(point, tolerance=1e-10, max_hvps=10 * dimension)
    exact = torch.linalg.solve(objective.hessian, -point.gradient)
    torch.testing.assert_close(solved.step, exact, rtol=1e-6, atol=1e-8)
    assert solved.decrease == pytest.approx(point.value - objective.minimum, rel=1e-8)
    assert not solved.negative


def test_predicts_exactly_the_decrease_of_the_truncated_step() -> None:
    objective, x = quadratic(30, 1e4)
    point = objective.at(x)
    for products in (1, 3, 7):
        solved = newton_step(point, tolerance=0.0, max_hvps=products)
        assert objective.at(x + solved.step).value == pytest.approx(point.value - solved.decrease, rel=1e-9)


def test_counts_its_products() -> None:
    objective, x = quadratic(30, 1e4)
    newton_step(objective.at(x), tolerance=0.0, max_hvps=9)
    assert objective.cost.hvps == 9


def test_reports_negative_curvature() -> None:
    saddle = FunctionObjective(lambda x: x[0] ** 2 - x[1] ** 2, like=torch.zeros(2, dtype=torch.float64))
    solved = newton_step(saddle.at(torch.tensor([0.0, 1.0], dtype=torch.float64)), tolerance=1e-6, max_hvps=5)
    assert solved.negative
    assert solved.decrease == 0.0
    assert not bool(solved.step.any())
    downhill = solved.or_downhill(torch.tensor([0.0, -2.0], dtype=torch.float64))
    assert downhill.tolist() == [0.0, 2.0]


def test_a_flat_direction_is_not_negative() -> None:
    valley = FunctionObjective(lambda x: x[0] ** 2 + x[1], like=torch.zeros(2, dtype=torch.float64))
    solved = newton_step(valley.at(torch.zeros(2, dtype=torch.float64)), tolerance=1e-6, max_hvps=5)
    assert not solved.negative
    assert solved.decrease == 0.0
