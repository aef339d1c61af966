"""Bounds on parameters, against closed forms of quadratics."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import levelport
from levelport import ObjectiveError
from levelport.goals import EndStatus
from levelport.goals.bounds import Bounded, Bounds
from levelport.objectives import FunctionObjective


def tilted(center: tuple[float, float]):  # type: ignore[no-untyped-def]
    def f(v: Tensor) -> Tensor:
        a, b = v[0] - center[0], v[1] - center[1]
        return a * a + b * b + a * b

    return f


def bounded_ends(center: tuple[float, float], low: float, x: Tensor) -> list[float]:
    """Ends of v₁ over {f ≤ f(x) + 1, v₀ ≥ low}, by a fine grid in v₀."""
    level = float(tilted(center)(x)) + 1.0
    a = torch.linspace(low, low + 4.0, 400_001, dtype=torch.float64) - center[0]
    root = ((a / 2.0) ** 2 - (a * a - level)).clamp_min(-1.0)
    inside = root >= 0.0
    b = root.clamp_min(0.0).sqrt()
    return [float((-a / 2.0 - b)[inside].min()) + center[1], float((-a / 2.0 + b)[inside].max()) + center[1]]


@pytest.mark.parametrize("bounds", [(0.0, None), [(0.0, 5.0), (None, None)]], ids=["one side", "two sides"])
def test_end_at_a_bound(bounds: object) -> None:
    x = torch.tensor([0.2, 3.0], dtype=torch.float64)
    result = levelport.interval(tilted((0.2, 3.0)), x, rise=1.0, bounds=bounds)
    assert result.ends[0][0].status is EndStatus.AT_BOUND
    assert float(result.lower[0]) == 0.0
    assert float(result.upper[0]) == pytest.approx(0.2 + math.sqrt(4.0 / 3.0), rel=1e-3)
    expected = bounded_ends((0.2, 3.0), 0.0, x)
    assert result.lower[1] == pytest.approx(expected[0], abs=2e-3)
    assert result.upper[1] == pytest.approx(expected[1], abs=2e-3)
    assert result.success


@pytest.mark.parametrize("bounds", [(0.0, None), [(0.0, 5.0), (None, None)]], ids=["one side", "two sides"])
def test_minimizer_on_a_bound(bounds: object) -> None:
    """The free minimum lies beyond the bound; others may leave it although their gradient there vanishes."""
    x = torch.tensor([0.0, 2.75], dtype=torch.float64)
    result = levelport.interval(tilted((-0.5, 3.0)), x, rise=1.0, bounds=bounds)
    assert result.ends[0][0].status is EndStatus.AT_BOUND
    assert float(result.lower[0]) == 0.0
    expected = bounded_ends((-0.5, 3.0), 0.0, x)
    assert result.lower[1] == pytest.approx(expected[0], abs=2e-3)
    assert result.upper[1] == pytest.approx(expected[1], abs=2e-3)
    level = float(tilted((-0.5, 3.0))(x)) + 1.0
    assert float(result.upper[0]) == pytest.approx(-0.5 + math.sqrt(level * 4.0 / 3.0), rel=2e-3)


@pytest.mark.parametrize("trials", [1, 20])
def test_refine_to_a_value_of_zero_on_a_bound(trials: int) -> None:
    """An efficiency with no failure: -n log p, lowest at p = 1, where p < 1 by a rounding already costs more."""
    start = torch.tensor([0.9], dtype=torch.float64)
    result = levelport.interval(lambda p: -trials * p.log().sum(), start, rise=0.5, bounds=[(0, 1)], refine=True)
    assert float(result.lower) == pytest.approx(math.exp(-0.5 / trials), rel=1e-4)
    assert float(result.upper) == 1.0
    assert result.setup.values <= 400  # 1747 if steps were halved down to the smallest number


@pytest.mark.parametrize("x0", [0.0, 1e-9, 1e-6, 1e-4])
def test_minimizer_beside_a_bound(x0: float) -> None:
    """Beside a bound the Wald width is tiny, whatever lies further away."""
    x = torch.tensor([x0, x0], dtype=torch.float64)
    result = levelport.interval(
        lambda v: (v[0] + 1) ** 2 + (v[1] - v[0]) ** 2, x, [0], rise=1.0, bounds=[(0, None), (None, None)]
    )
    assert float(result.upper) == pytest.approx(math.sqrt(2.0) - 1.0, abs=2e-3)
    assert result.ends[0][0].status is EndStatus.AT_BOUND


@pytest.mark.parametrize("rise", [1e-12, 1.0, 1e3, 1e12])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_minimizer_on_a_bound_without_a_gradient(rise: float, unit: float) -> None:
    """In the variables of the search f is of fourth order there, in any unit of f and of x."""
    x = torch.tensor([unit], dtype=torch.float64)
    result = levelport.interval(lambda v: rise * (v / unit - 1.0).square().sum(), x, rise=rise, bounds=(unit, None))
    assert result.success
    assert float(result.lower) == unit
    assert float(result.upper) == pytest.approx(2.0 * unit, rel=1e-3)


def test_bounds_where_nothing_is_known_of_f() -> None:
    """Scales of zero would make f undefined at the minimizer itself."""
    zero = torch.zeros(1)
    bent = levelport.interval(lambda v: (v**1.5).sum(), zero, rise=1.0, bounds=(0.0, None))
    assert (bent.value, bent.ends[0][0].status) == (0.0, EndStatus.FAILED)
    assert "Hessian at x is not finite" in bent.notes[0]
    steep = levelport.interval(lambda v: 1e20 * v.sum(), zero, rise=1.0, bounds=(0.0, None))
    assert float(steep.upper) == pytest.approx(1e-20, rel=1e-3)


def test_ends_off_the_bound_of_the_minimizer() -> None:
    """On the bound the Lagrangian is stationary in the variables of the search: near it Wald steps end too early."""
    H = torch.tensor([[18.6, 4.4, 1.8], [4.4, 11.6, 2.8], [1.8, 2.8, 4.2]], dtype=torch.float64)
    zero, bounds = torch.zeros(3, dtype=torch.float64), [(-0.9, None), (0.0, 0.1), (None, 1.8)]
    result = levelport.interval(lambda v: 0.5 * v @ H @ v, zero, [2], rise=1.9, bounds=bounds)
    free, ends = H[[0, 2]][:, [0, 2]].inverse(), list[float]()
    for second in torch.linspace(0.0, 0.1, 201).tolist():
        pull = H[[0, 2], 1] * second
        rest = 1.9 - 0.5 * float(H[1, 1]) * second**2 + 0.5 * float(pull @ free @ pull)
        ends.append(float(-(free @ pull)[1] - (2.0 * rest * free[1, 1]).sqrt()))
    assert result.success
    assert float(result.lower[0]) == pytest.approx(min(ends), rel=1e-3)


def test_minimizer_on_many_bounds_costs_few_products() -> None:
    """Nonnegative least squares with 300 variables, about half of them zero."""
    target = torch.randn(300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    result = levelport.interval(
        lambda v: (v - target).square().sum(),
        target.clamp_min(0.0),
        [int(target.argmax())],
        rise=1.0,
        bounds=(0.0, None),
    )
    assert result.setup.hvps < 30
    assert float(result.upper) == pytest.approx(float(target.max()) + 1.0, rel=1e-3)


@pytest.mark.parametrize("gradient", [0.0, 1e-10])
def test_minimizer_inside_is_on_no_bound(gradient: float) -> None:
    """However small its gradient: the bound of the first entry is 20 away, the interval half as long."""
    x = torch.tensor([20.0, 1.0], dtype=torch.float64)

    def f(v: Tensor) -> Tensor:
        return 0.01 * (v[0] - 20.0) ** 2 + (v[1] - 1.0) ** 2 + gradient * v[0]

    free, bounded = (levelport.interval(f, x, rise=1.0, bounds=bounds) for bounds in (None, (0.0, None)))
    assert [end.detail for end in bounded.ends[0]] == ["", ""]
    assert bounded.lower[0] == pytest.approx(float(free.lower[0]), rel=1e-3)
    assert math.isfinite(bounded.ends[0][0].wald)


def test_derivatives_of_the_change_of_variables() -> None:
    inf = math.inf
    bounds = Bounds(
        torch.tensor([0.0, -inf, -1.0, -inf, 0.0, -9.0]).double(), torch.tensor([inf, 3.0, 2.0, inf, 9.0, 0.9]).double()
    )
    x = torch.tensor([0.5, 1.0, 0.3, 0.7, 0.6, 0.8], dtype=torch.float64)
    f = FunctionObjective(lambda v: (v**3).sum() + v.prod(), like=x)
    bounds.set_scale(f.at(x, curvature=True), 1.0)
    point = Bounded(f, bounds).at(bounds.inner(x) + 0.1, curvature=True)
    assert torch.allclose(bounds.outer(bounds.inner(x))[0], x)
    v = torch.tensor([1.0, -2.0, 0.5, 1.5, 0.7, -0.3], dtype=torch.float64)
    step = 1e-6
    ahead, behind = (Bounded(f, bounds).at(point.x + sign * step * v) for sign in (1.0, -1.0))
    assert (ahead.value - behind.value) / (2.0 * step) == pytest.approx(float(point.gradient @ v), rel=1e-7)
    assert torch.allclose((ahead.gradient - behind.gradient) / (2.0 * step), point.hvp(v), rtol=1e-6)


def test_bounds_go_by_the_keys_of_x() -> None:
    x = {"a": torch.zeros(1, dtype=torch.float64), "b": torch.zeros(2, dtype=torch.float64)}
    low = {"b": torch.full((2,), -0.5), "a": torch.full((1,), -0.25)}  # in another order
    result = levelport.interval(
        lambda v: v["a"].square().sum() + v["b"].square().sum(), x, rise=1.0, bounds=(low, None)
    )
    assert (float(result.lower["a"]), result.lower["b"].tolist()) == (-0.25, [-0.5, -0.5])


def test_bad_bounds_are_named() -> None:
    x = torch.zeros(2, dtype=torch.float64)
    for bounds, words in (((1.0, 0.0), "below its upper"), (3.0, "must be a pair"), ([(0, 1)] * 3, "must be a pair")):
        with pytest.raises(ValueError, match=words):
            levelport.interval(lambda v: (v**2).sum(), x, rise=1.0, bounds=bounds)
    with pytest.raises(ObjectiveError, match="outside its bounds"):
        levelport.interval(lambda v: (v**2).sum(), x, rise=1.0, bounds=(1.0, None))


@pytest.mark.parametrize("start", [0.0, 1e-9, 1e-3, 4.0])
@pytest.mark.parametrize("bounds", [(0.0, None), (0.0, 5.0)], ids=["one side", "two sides"])
@pytest.mark.parametrize("unit", [1.0, 1e-8])
def test_refine_leaves_a_bound(start: float, bounds: object, unit: float) -> None:
    """Where x' = 0, or all but 0, no gradient leads to the minimum inside."""
    x = torch.full((2,), start, dtype=torch.float64)
    f = tilted((1.0, 2.0))
    result = levelport.interval(lambda v: unit * f(v), x, rise=0.5 * unit, bounds=bounds, refine=True)
    half = math.sqrt(0.5 / 0.75)
    expected = torch.tensor([1.0, 2.0], dtype=torch.float64)
    assert result.success
    assert torch.allclose(result.x, expected, rtol=1e-6)
    assert torch.allclose(result.lower, expected - half, atol=2e-3 * half)
    assert torch.allclose(result.upper, expected + half, atol=2e-3 * half)


@pytest.mark.parametrize("box", [(0.0, 1e10), (0.5, 1e16), (-1e16, 2.0), (-1e20, 1e20), (-1e3, 1e12), (0.99, 1e300)])
def test_box_of_any_width(box: tuple[float, float]) -> None:
    """As with the sides that are near alone: a sine over the whole box would leave x without digits."""
    x = torch.ones(2, dtype=torch.float64)
    result = levelport.interval(lambda v: (v - 1.0).square().sum(), x, [0], rise=0.25, bounds=box)
    assert result.success
    assert float(result.lower) == pytest.approx(max(box[0], 0.5), abs=1e-3)
    assert float(result.upper) == pytest.approx(1.5, abs=1e-3)
    assert result.cost.gradient_equivalents <= 100.0


def test_far_side_of_a_box() -> None:
    """f is nearly flat, so the end is at the other side, which the formula of the near side has to reach."""
    x = torch.tensor([0.01], dtype=torch.float64)
    result = levelport.interval(lambda v: 1e-6 * (v - 0.01).square().sum(), x, rise=1.0, bounds=(0.0, 1.0))
    assert (float(result.lower), float(result.upper)) == (0.0, 1.0)
    assert all(end.status is EndStatus.AT_BOUND for end in result.ends[0])


def test_bound_beyond_the_range_of_float32() -> None:
    result = levelport.interval(lambda v: v.square().sum(), torch.zeros(1), rise=1.0, bounds=(-1e100, None))
    assert float(result.lower) == pytest.approx(-1.0, rel=1e-3)
