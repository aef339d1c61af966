"""Numbers inside solvers that a result shows only dimly, against closed forms."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from levelport import FunctionObjective, Krylov, TeleportStatus
from levelport.numerics.lanczos import KrylovModel
from levelport.solvers import Monitor, TeleportProblem, move_from
from levelport.solvers.auto import _status, quadratic_solution
from levelport.solvers.krylov import _radius
from levelport.solvers.problem import INSIDE, Certificate, TrustRegion, log_gain, parabola_root, retract, room


def vector(*entries: float) -> Tensor:
    return torch.tensor(entries, dtype=torch.float64)


def bowl(*scales: float) -> FunctionObjective:
    weights = vector(*scales)
    return FunctionObjective(lambda x: 0.5 * torch.dot(weights, x * x), weights)


@pytest.mark.parametrize("steep", [100.0, 1.0, 0.01])
def test_radius_doubles_where_the_model_is_exact(steep: float) -> None:
    """On a quadratic f is what the model predicts, climb included, so a descent to the edge earns twice the radius."""
    objective = bowl(steep, 1e-3 * steep)
    start = objective.at(vector(0.003, 30.0), curvature=True)
    move = move_from(start, objective, Krylov(hvp="exact"), {"radius": 3.0, "first_norm": 1e12 * start.gradient_norm})
    assert move.state["radius"] == pytest.approx(6.0, rel=0.01)


@pytest.mark.parametrize(
    ("decrease", "trusted", "expected"),
    [
        (1.0, 8.0, 16.0),
        (1.0, 9.0, 9.0),
        (0.5, 8.0, 8.0),
        (0.0, 8.0, 4.0),
        (0.0, 3.0, 3.0),
        (-math.inf, 9.0, 4.0),
        (math.nan, 9.0, 4.0),
    ],
)
def test_trust_radius_after_a_step_of_length_8(decrease: float, trusted: float, expected: float) -> None:
    """Twice the step where f fell by 1 as predicted and the radius was used up, half of it where f did not fall."""
    objective = bowl(1.0, 2.0)
    start = objective.at(vector(1.0, 1.0))
    end: Any = SimpleNamespace(value=start.value - decrease)
    assert _radius(trusted, KrylovModel(start, 2), end, 1.0, 1.0, 8.0) == expected


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize(("level", "above"), [(0.7, 1.7), (1.0, 4.0)])
def test_way_back_to_the_level_crosses_a_kink(level: float, above: float, unit: float) -> None:
    """Slopes of 20 above 1 and 1/20 beyond it mislead secants; with the level between two points they cannot."""
    objective = FunctionObjective(lambda x: torch.where(x < unit, 20.0, 0.05).mul(x / unit - 1.0).sum(), vector(0.0))
    problem = TeleportProblem(objective, objective.at(vector(level * unit)))
    end = retract(problem, objective.at(vector(above * unit)))
    assert -1e-12 <= end.value - problem.level <= 0.0


def test_way_back_to_a_level_out_of_reach_keeps_its_start() -> None:
    """x exp(-x) is at most 0.37, and the tangent at 0.99 leads to where it is 0."""
    objective = FunctionObjective(lambda x: x[0] * torch.exp(-x[0]) + x[1] ** 2, vector(0.0, 0.0))
    problem = TeleportProblem(objective, objective.at(vector(0.0, 2.0)))
    point = objective.at(vector(0.99, 0.0))
    assert retract(problem, point) is point


@pytest.mark.parametrize(
    ("place", "status"),
    [
        ((0.0, 2.0), TeleportStatus.CONVERGED),
        ((2.0, 0.0), TeleportStatus.CONVERGED),
        ((1.0, 1.0), TeleportStatus.STALLED),
    ],
)
def test_status_is_that_of_the_point_returned(place: tuple[float, float], status: TeleportStatus) -> None:
    """The ascent converged somewhere else; gradients of a bowl are eigenvectors on its axes, and nowhere else."""
    objective = bowl(1.0, 9.0)
    start, point = objective.at(vector(1.5, 0.3)), objective.at(vector(*place), curvature=True)
    assert Certificate.at(point).curvature > 0.0
    winner: Any = SimpleNamespace(status=TeleportStatus.CONVERGED, point=start, region=TrustRegion(1.0, 10.0))
    assert _status(TeleportProblem(objective, start), winner, point) is status


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("side", [1.0, -1.0])
@pytest.mark.parametrize("flat", [1.0, -1.0])
def test_quadratic_solution_is_on_the_side_of_the_start(side: float, flat: float, unit: float) -> None:
    """Both ends of the steep axis are solutions; w is nearer to one of them."""
    objective = bowl(1.0, 9.0)
    start = objective.at(unit * vector(flat * 0.6, side * 0.2), curvature=True)
    problem = TeleportProblem(objective, start, max_hvps=50)
    point = quadratic_solution(problem, Monitor(problem, None))
    assert point is not None
    torch.testing.assert_close(
        point.x, vector(0.0, side * math.sqrt(2.0 * start.value / 9.0)), rtol=1e-8, atol=1e-9 * unit
    )
    assert point.value <= start.value


def test_logarithm_of_the_gain_out_of_range() -> None:
    """The ratio of two norms may leave the range where neither does."""
    objective = FunctionObjective(lambda x: 1e-200 * x[0] + 1e200 * torch.relu(x[1] - 1.0), vector(0.0, 0.0))
    problem = TeleportProblem(objective, objective.at(vector(0.0, 0.0)))
    steep = objective.at(vector(0.0, 2.0))
    assert log_gain(steep, problem) == pytest.approx(400.0 * math.log(10.0))
    back = TeleportProblem(objective, steep)
    assert log_gain(problem.start, back) == pytest.approx(-400.0 * math.log(10.0))


def test_products_that_vanish_are_aligned() -> None:
    objective = FunctionObjective(lambda x: x.sum(), vector(1.0, 1.0))
    certificate = Certificate.at(objective.at(vector(1.0, 2.0), curvature=True))
    assert (certificate.curvature, certificate.alignment, certificate.misalignment) == (0.0, 1.0, 0.0)


@pytest.mark.parametrize(
    ("offset", "direction"),
    [((0.5, 0.0), (1.0, 0.0)), ((0.5, 0.3), (0.0, -1.0)), ((3.0, 0.0), (-0.6, 0.8)), ((0.0, 2.5), (0.6, -0.8))],
)
@pytest.mark.parametrize("radius", [1.0, 1e-3, 1e150])
def test_room_is_the_way_to_the_edge(offset: tuple[float, ...], direction: tuple[float, ...], radius: float) -> None:
    """Inside, to the edge; outside and heading inwards, to where it is as far out as here."""
    at, along = torch.tensor(offset, dtype=torch.float64), torch.tensor(direction, dtype=torch.float64)
    a = room(radius * float(torch.dot(at, along)), radius * float(at.norm()), radius)
    assert a > 0.0
    assert float((at + a / radius * along).norm()) == pytest.approx(max(INSIDE, float(at.norm())), rel=1e-9)


def test_no_room_outside_and_heading_out() -> None:
    assert room(2.0, 3.0, 1.0) == 0.0
    assert room(-1.0, 3.0, math.inf) == math.inf


@pytest.mark.parametrize("curvature", [3.0, 0.0, -3.0])
@pytest.mark.parametrize("excess", [0.4, -0.4, 1e-9])
def test_parabola_root_is_the_nearer_one(excess: float, curvature: float) -> None:
    t = parabola_root(excess, 2.0, curvature)
    assert 2.0 * t - 0.5 * curvature * t * t == pytest.approx(excess, rel=1e-9)
    assert abs(t) <= abs(excess)  # the other root is further away than 2·slope/curvature - |excess|
    assert parabola_root(4.0, 2.0, 3.0) == 2.0  # its top is 2/3: the tangent's
