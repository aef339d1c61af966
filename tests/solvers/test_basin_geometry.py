"""Starting points in other basins against closed forms: on a quadratic every place to look at is known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from levelport.objectives import FunctionObjective
from levelport.solvers import basins
from levelport.solvers.contract import Monitor
from levelport.solvers.problem import Frame, TeleportProblem, split
from levelport.vectors import read

SCALES = torch.tensor([0.5, 3.0, 20.0], dtype=torch.float64)
PLACES = [(2.0, 0.3, -0.1), (0.4, 1.5, 0.2), (-1.0, 0.8, 0.5)]


def bowl(x: Tensor) -> Tensor:
    return 0.5 * torch.dot(SCALES, x * x)


def skewed(x: Tensor) -> Tensor:
    """A bowl with unequal sides: on the side of positive x_1 it is the steeper, the further out."""
    return bowl(x) + 0.4 * torch.relu(x[1]) ** 3


def posed(f: object, place: tuple[float, ...], radius: float | None = None) -> tuple[TeleportProblem, Frame]:
    """The problem from ``place``, and the geometry there, with the ledger at the start of the search."""
    x = torch.tensor(place, dtype=torch.float64)
    objective = FunctionObjective(f, x)  # type: ignore[arg-type]
    start = objective.at(x, curvature=True)
    normal = start.normal
    along, tangential = split(normal, start.hessian_normal)
    curvature, residual = read([along], [tangential])
    start.product_sizes = curvature, residual, math.hypot(curvature, residual)
    frame = Frame.of(start, normal, tangential / start.gradient_norm, on_level=True)
    return TeleportProblem(objective, start, max_hvps=50, radius=radius), frame


@pytest.mark.parametrize("place", PLACES)
def test_bottom_is_where_the_parabola_has_it(place: tuple[float, ...]) -> None:
    """Along the normal f is a parabola with slope ‖g‖ and curvature ⟨n, H n⟩."""
    problem, frame = posed(bowl, place)
    x = problem.start.x
    gradient = SCALES * x
    newton = torch.dot(gradient, gradient) / torch.dot(gradient, SCALES * gradient)
    bottom = basins._bottom(problem, frame)
    assert bottom is not None
    torch.testing.assert_close(bottom.x, x - newton * gradient)


@pytest.mark.parametrize("place", PLACES)
def test_steepest_side_looks_along_the_axes_of_a_bowl(place: tuple[float, ...]) -> None:
    """From b along every axis, both ways, first where a bowl around b itself would be near the level."""
    seen: list[Tensor] = []

    def recorded(x: Tensor) -> Tensor:
        seen.append(x.detach().clone())
        return bowl(x)

    problem, frame = posed(recorded, place)
    bottom = basins._bottom(problem, frame)
    assert bottom is not None
    base, depth = bottom.x, problem.level - bottom.value
    found = basins.steepest_side(problem, frame, -math.inf)
    assert found is not None
    for axis, unit in enumerate(torch.eye(3, dtype=torch.float64)):
        for sign in (1.0, -1.0):
            place_there = base + sign * 0.975 * math.sqrt(2.0 * depth / float(SCALES[axis])) * unit
            assert any(torch.allclose(x, place_there, rtol=0.0, atol=1e-6) for x in seen)
    away = found.x - base
    assert float(away[2].abs() / away.norm()) == pytest.approx(1.0, abs=1e-6)
    assert -0.1 * depth <= found.value - problem.level <= 0.0
    assert basins.steepest_side(problem, frame, 10.0) is None  # nothing there has a gradient e¹⁰ times as long


@pytest.mark.parametrize("place", PLACES)
def test_far_side_of_a_bowl_is_a_mirror(place: tuple[float, ...]) -> None:
    """It is found, and an ascent from there would only repeat the one from here."""
    problem, frame = posed(bowl, place)
    t = -(1.0 + basins._MIDDLE) * frame.point.gradient_norm / frame.certificate.curvature
    assert basins._at_level(problem, frame.point.x, frame.normal, t, problem.level) is not None
    assert basins.far_side(problem, frame) is None


def test_far_side_of_a_skewed_bowl_is_worth_an_ascent() -> None:
    problem, frame = posed(skewed, (0.2, -1.5, 0.02))
    found = basins.far_side(problem, frame)
    assert found is not None
    assert float(found.x[1]) > 0.0
    assert found.gradient_norm > frame.point.gradient_norm
    assert 0.8 * problem.level < found.value <= problem.level


def test_far_side_much_flatter_than_this_one_is_not() -> None:
    """From the steep side of f = x² below 0 and x²/100 above it the gradient on the far side is a tenth."""
    problem, frame = posed(lambda x: torch.where(x < 0.0, x * x, 0.01 * x * x).sum(), (-1.0,))
    there = problem.objective.at(torch.tensor([9.9], dtype=torch.float64), curvature=True)
    assert 0.9 * problem.level < there.value < problem.level
    assert not basins._worth_an_ascent(frame, there, problem)


@pytest.mark.parametrize(("radius", "found"), [(5.0, True), (1.0, False)])
def test_points_at_the_level_beyond_the_radius_are_dropped(radius: float, found: bool) -> None:
    problem, frame = posed(skewed, (0.2, -1.5, 0.02), radius)
    assert (basins.far_side(problem, frame) is not None) is found


def test_a_point_exactly_at_the_level_is_at_the_level() -> None:
    """Over the integers: f = x², from -3 to 3, without a rounding."""
    problem, _ = posed(lambda x: (x * x).sum(), (-3.0,))
    x, right = torch.tensor([-3.0], dtype=torch.float64), torch.tensor([1.0], dtype=torch.float64)
    there = basins._at_level(problem, x, right, 6.0, 9.0)
    assert there is not None
    assert float(there.x) == 3.0


@pytest.mark.parametrize("count", [3, 10])
def test_sampled_points_are_apart_and_at_the_level(count: int) -> None:
    problem, _ = posed(bowl, (2.0, 0.3, -0.1))
    points = basins.sampled(problem, Monitor(problem, None), 1.0, count)
    assert 2 <= len(points) <= count
    for number, point in enumerate(points):
        assert point.value <= problem.level
        assert all(float((point.x - other.x).norm()) > 0.1 for other in points[:number])
    norms = [point.gradient_norm for point in points]
    assert norms == sorted(norms, reverse=True)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_sampled_points_do_not_depend_on_the_unit_of_f(unit: float) -> None:
    points = []
    for scale in (1.0, unit):
        problem, _ = posed(lambda x, scale=scale: scale * skewed(x), (2.0, 0.3, -0.1))  # type: ignore[misc]
        points.append(torch.stack([p.x for p in basins.sampled(problem, Monitor(problem, None), 1.0, 4)]))
    torch.testing.assert_close(*points, rtol=1e-6, atol=1e-6)


def test_sampled_points_depend_on_their_seed_alone() -> None:
    """Neither on torch's generator and default dtype nor on how often they were drawn; it is left as it was."""
    problem, _ = posed(bowl, (2.0, 0.3, -0.1))
    drawn, default = [], torch.get_default_dtype()
    for seed, dtype in ((3, torch.float32), (4, torch.float64)):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        torch.set_default_dtype(dtype)
        try:
            drawn.append(torch.stack([p.x for p in basins.sampled(problem, Monitor(problem, None), 1.0, 4)]))
        finally:
            torch.set_default_dtype(default)
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(*drawn)
    other = basins.sampled(problem, Monitor(problem, None), 1.0, 4, seed=1)
    assert not torch.equal(torch.stack([p.x for p in other]), drawn[0])
