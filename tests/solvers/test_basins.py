"""Several local maxima: ascents start from other basins as well."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from levelport import TeleportStatus, teleport
from levelport.objectives import FunctionObjective
from levelport.solvers import Auto, basins
from levelport.solvers.problem import Certificate, Frame, TeleportProblem

STEEPNESS = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
LEVEL = 10.0


def valley(x: Tensor) -> Tensor:
    """Σ (cosh(k_i x_i) - 1). On the level L the gradient along axis i is k_i √((L + 1)² - 1), a local maximum each.

    At the end of axis i the curvature along it is k_i² (L + 1); as long as that exceeds the k_j² of the other axes at
    x_j = 0, going there makes the gradient shorter.
    """
    return (torch.cosh(STEEPNESS * x) - 1.0).sum()


def maximum(axis: int) -> float:
    return float(STEEPNESS[axis]) * math.sqrt((LEVEL + 1.0) ** 2 - 1.0)


def near_the_end_of_axis(axis: int) -> Tensor:
    """A point on the level, a little beside the end of an axis."""
    x = torch.full((3,), 0.005, dtype=torch.float64)
    x[axis] = 0.0
    x[axis] = math.acosh(LEVEL + 1.0 - float(valley(x))) / float(STEEPNESS[axis])
    return x


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_highest_of_three_maxima_is_found_from_each(axis: int) -> None:
    result = teleport(valley, near_the_end_of_axis(axis))
    assert result.status is TeleportStatus.CONVERGED
    assert result.gradient_norm == pytest.approx(maximum(2), rel=1e-8)
    assert result.violation == 0.0


@pytest.mark.parametrize("axis", [0, 1])
def test_one_ascent_ends_on_its_own_side(axis: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(basins, "steepest_side", lambda problem, frame, above: None)
    assert teleport(valley, near_the_end_of_axis(axis)).gradient_norm == pytest.approx(maximum(axis), rel=1e-6)


def test_no_search_without_the_products_for_it() -> None:
    result = teleport(valley, near_the_end_of_axis(0), Auto(max_hvps=basins.PRODUCTS + 3))
    assert result.gradient_norm == pytest.approx(maximum(0), rel=1e-3)
    assert result.nhev <= basins.PRODUCTS + 3


def test_starts_beyond_the_radius_are_not_used() -> None:
    """The end of the steepest axis is further away than the ends of this one are."""
    start = near_the_end_of_axis(0)
    result = teleport(valley, start, Auto(radius=1.0))
    assert float((result.x - start).norm()) <= 1.0
    assert result.gradient_norm < 1.1 * maximum(0)


def two_wells(x: Tensor) -> Tensor:
    """Styblinski and Tang's function: a hill around 0, which its slopes leave by an inflection."""
    return 0.5 * (x**4 - 16.0 * x**2 + 5.0 * x).sum()


def largest_gradient_below(level: float) -> float:
    """By brute force. The function is separable: all values and slopes of one coordinate, in pairs."""
    x = torch.linspace(-6.0, 6.0, 2401, dtype=torch.float64)
    value, slope = 0.5 * (x**4 - 16.0 * x**2 + 5.0 * x), 2.0 * x**3 - 16.0 * x + 2.5
    below = value[:, None] + value[None, :] <= level
    return float(torch.sqrt(slope[:, None] ** 2 + slope[None, :] ** 2)[below].max())


@pytest.mark.parametrize("start", [(0.479, -0.02), (0.3, 0.4), (-0.5, 0.2), (0.1, -0.6)])
def test_ascent_ending_in_the_interior_searches_below(start: tuple[float, float]) -> None:
    """There H n = 0, a KKT point with a gradient that is a fifth of the largest one, which is high above it."""
    x = torch.tensor(start, dtype=torch.float64)
    result = teleport(two_wells, x)
    assert result.gradient_norm > 0.7 * largest_gradient_below(result.value_start)
    assert result.cost.hvps <= 50


@pytest.mark.parametrize("lift", [0.0, 1e-3])
def test_no_search_below_from_the_level_or_above(lift: float) -> None:
    """Where f bends down along the gradient, an ascent may end at the level or a little above it."""
    x = torch.tensor([0.3, 0.4], dtype=torch.float64)
    objective = FunctionObjective(two_wells, x)
    start = objective.at(x, curvature=True)
    problem = TeleportProblem(objective, start, slack=0.0, max_hvps=50)
    above = objective.at(x + lift * start.normal, curvature=True)
    assert Certificate.at(above).curvature < 0.0
    assert above.value >= problem.level
    frame = Frame.of(above, above.normal, above.hessian_normal / above.gradient_norm, on_level=False)
    assert basins.steepest_side(problem, frame, 0.0) is None
