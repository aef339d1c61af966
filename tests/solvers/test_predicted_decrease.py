"""The scale-free number of a certificate, against the decrease that a line search finds."""

from __future__ import annotations

import math

import pytest
import torch
from tests.functions import Quadratic

from levelport import teleport
from levelport.solvers import Auto


def test_quadratic_decrease_is_that_of_the_exact_line_search() -> None:
    quadratic = Quadratic.random(torch.logspace(0, -3, 20, dtype=torch.float64), seed=3)
    x = torch.linspace(-1.0, 2.0, 20, dtype=torch.float64)
    result = teleport(quadratic, x)

    def decrease(x: torch.Tensor) -> float:
        point = quadratic.at(x)
        steps = torch.logspace(-2, 4, 4001, dtype=torch.float64)
        return point.value - min(quadratic.at(x - step * point.gradient).value for step in steps)

    assert result.predicted_decrease == pytest.approx(decrease(result.x), rel=1e-4)
    assert result.predicted_gain == pytest.approx(decrease(result.x) / decrease(x), rel=1e-4)


def test_it_is_free_of_units_and_of_charge() -> None:
    def rosenbrock(w: torch.Tensor) -> torch.Tensor:
        return (1 - w[0]) ** 2 + 100 * (w[1] - w[0] ** 2) ** 2

    x = torch.tensor([-1.2, 1.0], dtype=torch.float64)
    plain = teleport(rosenbrock, x)
    scaled = teleport(lambda w: 1e4 * rosenbrock(w * 8), x / 8)
    cost = plain.cost
    assert scaled.predicted_gain == pytest.approx(plain.predicted_gain, rel=1e-3)
    assert plain.cost is cost
    assert math.isfinite(plain.curvature_start)


def test_without_curvature_the_model_has_no_best_step() -> None:
    x = torch.tensor([0.5], dtype=torch.float64)
    assert teleport(lambda w: -(w * w).sum(), x, Auto(max_hvps=2, radius=1e-3)).predicted_decrease == math.inf


def test_nothing_is_predicted_where_the_model_has_no_best_step() -> None:
    """At (2, 0) the bump curves down along its gradient: the best gradient step is infinite there."""
    result = teleport(lambda x: -torch.exp(-0.5 * x.square().sum()), torch.tensor([2.0, 0.0], dtype=torch.float64))
    assert result.curvature_start < 0.0
    assert math.isnan(result.predicted_gain)
