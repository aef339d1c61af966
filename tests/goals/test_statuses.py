"""What ``interval`` says where there is no plain answer: curved, unbounded, barriers, lower minima, budgets, units."""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path

import pytest
import torch
from likelihoods import double_exponential, hill, logistic, multinomial, profile_end
from torch import Tensor

import levelport
from levelport.goals import EndStatus
from levelport.goals.chart import Chart, Region
from levelport.goals.goal import Aim, LinearGoal
from levelport.goals.pairs import Pairs
from levelport.goals.verify import second_look
from levelport.objectives import FunctionObjective

DTYPE = torch.float64
RISE = 1.920729410347062


def statuses(result: levelport.goals.IntervalResult) -> list[str]:
    return [end.status.name for both in result.ends for end in both]


def test_collinear_columns() -> None:
    """Coefficients of collinear columns are unbounded; predictions have the interval of the smaller model."""
    rng = torch.Generator().manual_seed(0)
    X = torch.randn(60, 2, dtype=DTYPE, generator=rng)
    y = 2.0 * (torch.rand(60, dtype=DTYPE, generator=rng) < torch.sigmoid(X[:, 0])).to(DTYPE) - 1.0
    twice = torch.cat([X, 2.0 * X[:, :1]], dim=1)

    def nll(data: Tensor):  # type: ignore[no-untyped-def]
        return lambda w: -torch.nn.functional.logsigmoid(y * (data @ w)).sum()

    start = torch.zeros(3, dtype=DTYPE)
    result = levelport.interval(nll(twice), start, confidence=0.95, refine=True)
    assert statuses(result) == ["UNBOUNDED"] * 2 + ["CERTIFIED"] * 2 + ["UNBOUNDED"] * 2
    assert math.isinf(result.upper[0])
    direction = result.ends[0][1].direction
    assert direction is not None
    assert float((twice @ direction).abs().max()) <= 1e-3 * float(direction.abs().max())
    prediction = levelport.interval(nll(twice), start, lambda w: twice[:3] @ w, confidence=0.95, refine=True)
    small = levelport.interval(nll(X), start[:2], lambda w: X[:3] @ w, confidence=0.95, refine=True)
    odds = levelport.interval(nll(twice), start, lambda w: w[0].exp(), confidence=0.95, refine=True)
    assert statuses(odds)[1] == "UNBOUNDED"
    assert prediction.success
    half = small.upper - small.lower
    assert float(((prediction.upper - small.upper) / half).abs().max()) <= 1e-3
    assert float(((prediction.lower - small.lower) / half).abs().max()) <= 1e-3


@pytest.mark.parametrize("scale", [4.0, 20.0])
def test_steep_quantities_are_not_unbounded(scale: float) -> None:
    """exp(20 w), an odds ratio, ends at 1e15 Wald widths, and at a finite value."""
    result = levelport.interval(
        lambda v: 0.5 * (v**2).sum(), torch.zeros(2, dtype=DTYPE), lambda v: torch.exp(scale * v[0]), rise=2.0
    )
    assert result.success
    assert math.log(result.upper) == pytest.approx(2.0 * scale, abs=0.01 * scale)


@pytest.mark.parametrize("shift", [1e-20, 1e-16, 1e-12, 1e-6, 1e-3, 1e-2])
def test_nearly_stationary_quantities(shift: float) -> None:
    """The Wald width of a product beside its saddle, and of a square beside its minimum, says nothing of the ends."""
    result = levelport.interval(
        lambda v: 0.5 * (v**2).sum(),
        torch.zeros(2, dtype=DTYPE),
        lambda v: torch.stack([(v[0] + shift) * (v[1] + shift), (v[0] + shift) ** 2]),
        rise=2.0,
    )
    assert result.success
    upper = torch.tensor([(math.sqrt(2.0) + shift) ** 2, (2.0 + shift) ** 2], dtype=DTYPE)
    assert torch.allclose(result.upper, upper, rtol=0.0, atol=4e-3)
    assert torch.allclose(result.lower, torch.tensor([-2.0, 0.0], dtype=DTYPE), rtol=0.0, atol=4e-3)


def test_saddle_beside_the_minimizer_by_less_than_roundings() -> None:
    zero = torch.zeros(2, dtype=DTYPE)
    result = levelport.interval(lambda v: 0.5 * (v**2).sum(), zero, lambda v: (v[0] + 1e-60) * (v[1] + 1e-60), rise=2.0)
    assert result.success
    assert (result.lower, result.upper) == pytest.approx((-2.0, 2.0), abs=4e-3)


def test_unbounded_is_said_early() -> None:
    result = levelport.interval(lambda v: (v**2 / (1.0 + v**2)).sum(), torch.zeros(1, dtype=DTYPE), rise=2.0)
    assert statuses(result) == ["UNBOUNDED", "UNBOUNDED"]
    assert all(end.cost.gradient_equivalents <= 30 for both in result.ends for end in both)


def test_unbounded_on_one_side_is_said_early() -> None:
    """The same for an entry as a function: flatness learned on the way is not taken for a new quantity."""

    def f(v: Tensor) -> Tensor:
        return v[0] ** 2 / (1.0 + torch.relu(v[0]) ** 2) + v[1] ** 2

    result = levelport.interval(f, torch.zeros(2, dtype=DTYPE), lambda v: v[0], rise=2.0)
    assert statuses(result) == ["CERTIFIED", "UNBOUNDED"]
    assert result.ends[0][1].cost.gradient_equivalents <= 30


def test_step_does_not_jump_a_wall() -> None:
    """f < level again beyond the barrier at 0.5, which the Wald step would jump."""

    def f(v: Tensor) -> Tensor:
        return v[0] ** 2 + 5.0 * torch.exp(-50.0 * (v[0] - 0.5) ** 2) - 5.0 * math.exp(-12.5)

    result = levelport.interval(f, torch.zeros(1, dtype=DTYPE), rise=1.0, refine=True)
    assert float(result.upper) < 0.5
    assert float(result.lower) == pytest.approx(-1.0, abs=1e-3)


def test_lower_minimum_is_reported() -> None:
    def f(v: Tensor) -> Tensor:
        return (v[0] ** 2 - 1.0) ** 2 + 0.1 * v[0] + v[1] ** 2

    x = levelport.minimize(f, torch.tensor([0.98, 0.0], dtype=DTYPE)).x
    result = levelport.interval(f, x, [0], rise=1.5)
    assert EndStatus.NEW_MINIMUM in {end.status for both in result.ends for end in both}
    assert result.minimum is not None
    assert float(f(result.minimum)) < result.value
    assert all(end.value <= result.value + 1.5 for both in result.ends for end in both)
    again = levelport.interval(f, x, [0], rise=1.5, refine=True)
    assert again.success
    assert float(again.x[0]) == pytest.approx(-1.0, abs=0.05)


def test_lower_minimum_met_in_a_second_search_is_reported() -> None:
    """The search for rise 0.8 from the end of rise 1.5 reaches no farther, but crosses a deeper well."""
    wells = torch.tensor([[-2.07, -3.17], [0.48, 0.72], [1.57, 1.01]], dtype=DTYPE)
    depths = torch.tensor([0.98, 1.5, 1.26], dtype=DTYPE)

    def f(v: Tensor) -> Tensor:
        return 0.05 * v.square().sum() - (depths * torch.exp(-0.7 * (v - wells).square().sum(dim=1))).sum()

    x = levelport.minimize(f, wells[0]).x
    found = [end for end in levelport.profile(f, x, [0], rises=[0.3, 0.8, 1.5]).every_end() if end.minimum is not None]
    assert {end.status for end in found} == {EndStatus.NEW_MINIMUM}
    assert all(float(f(end.minimum)) == end.minimum_value < float(f(x)) - 0.5 for end in found)


def test_curved_valley_is_certified_or_said() -> None:
    problem = double_exponential(1, poor=True)
    x = problem.minimizer()
    result = levelport.interval(problem.fun, x, rise=RISE)
    certified = 0
    for index, both in enumerate(result.ends):
        for sign, end in zip((-1.0, 1.0), both, strict=True):
            truth = profile_end(problem.fun, x, index, sign, RISE)
            if end.status is EndStatus.CERTIFIED:
                certified += 1
                assert abs(end.bound - truth) <= 1e-2 * abs(truth - float(x[index]))
    assert certified >= 7


def test_budget_gives_an_inner_bound() -> None:
    problem = double_exponential(1, poor=True)
    result = levelport.interval(problem.fun, problem.minimizer(), [0], rise=RISE, max_cost=10.0)
    full = levelport.interval(problem.fun, problem.minimizer(), [0], rise=RISE)
    assert EndStatus.BUDGET in {end.status for end in result.ends[0]}
    assert float(full.lower) <= float(result.lower) <= float(result.estimate)


def test_callback_sees_ends_and_stops() -> None:
    seen: list[str] = []

    def stop_after_three(end: levelport.goals.End) -> bool:
        seen.append(f"{end.name} {end.side}")
        return len(seen) == 3

    result = levelport.interval(lambda v: (v**2).sum(), torch.zeros(3), rise=1.0, callback=stop_after_three)
    assert seen == ["x[0] lower", "x[0] upper", "x[1] lower"]
    assert statuses(result) == ["CERTIFIED"] * 3 + ["BUDGET"] * 3


@pytest.mark.parametrize("unit_f", [1e-8, 1e8])
@pytest.mark.parametrize("units", [[1e-8, 1e8, 1.0, 1e-3], [1e6] * 4], ids=["mixed", "large"])
def test_units_change_nothing(unit_f: float, units: list[float]) -> None:
    problem = hill(0)
    x, u = problem.minimizer(), torch.tensor(units, dtype=DTYPE)
    plain = levelport.interval(problem.fun, x, lambda v: v.exp(), rise=RISE)
    scaled = levelport.interval(
        lambda v: unit_f * problem.fun(v / u), x * u, lambda v: 1e5 * (v / u).exp(), rise=unit_f * RISE
    )
    assert torch.allclose(scaled.upper, 1e5 * plain.upper, rtol=1e-9)
    assert torch.allclose(scaled.lower, 1e5 * plain.lower, rtol=1e-9)
    assert scaled.cost.gradient_equivalents == plain.cost.gradient_equivalents


def test_units_of_a_curved_valley() -> None:
    """The hand-over inherits the coordinates; costs of long searches may differ by rounding."""
    problem = double_exponential(1, poor=True)
    x, u = problem.minimizer(), torch.tensor([1e-6, 1e6, 1.0, 1e3, 1e-3], dtype=DTYPE)
    plain = levelport.interval(problem.fun, x, rise=RISE)
    scaled = levelport.interval(lambda v: problem.fun(v / u), x * u, rise=RISE)
    half = plain.upper - plain.lower
    assert float(((scaled.upper / u - plain.upper) / half).abs().max()) <= 1e-3
    assert float(((scaled.lower / u - plain.lower) / half).abs().max()) <= 1e-3


def test_float32_is_good_to_a_thousandth() -> None:
    rng = torch.Generator().manual_seed(3)
    X, y = torch.randn(200, 4, generator=rng), 2.0 * torch.randint(0, 2, (200,), generator=rng) - 1.0

    def nll(w: Tensor) -> Tensor:
        return -torch.nn.functional.logsigmoid(y.to(w) * (X.to(w) @ w)).sum()

    exact = levelport.interval(nll, torch.zeros(4, dtype=DTYPE), confidence=0.95, refine=True, tol=1e-5)
    single = levelport.interval(nll, torch.zeros(4), confidence=0.95, refine=True)
    half = 0.5 * (exact.upper - exact.lower)
    assert single.ends[0][0].x.dtype == torch.float32
    assert float(((single.upper - exact.upper) / half).abs().max()) <= 2e-3
    assert float(((single.lower - exact.lower) / half).abs().max()) <= 2e-3


def test_large_dimension_shares_directions() -> None:
    """Without the Hessian, conjugate gradients agree with it, and the second end costs next to nothing."""
    problem = multinomial(0, samples=3000, features=24, classes=6)
    x = problem.minimizer()
    few = levelport.interval(problem.fun, x, [3, 60], rise=RISE)
    assert few.cost.hvps < x.numel()
    exact = levelport.interval(problem.fun, x, lambda w: w[[3, 60]].repeat(10), rise=RISE, tol=1e-5)
    assert exact.setup.hvps == x.numel()
    half = 0.5 * (exact.upper - exact.lower)[:2]
    assert float(((few.upper - exact.upper[:2]) / half).abs().max()) <= 2e-3
    assert float(((few.lower - exact.lower[:2]) / half).abs().max()) <= 2e-3
    assert few.ends[0][1].cost.gradient_equivalents <= 8.0
    assert few.success


def test_quantities_that_vanish_or_do_not_change() -> None:
    zero = torch.zeros(2, dtype=DTYPE)

    def f(v: Tensor) -> Tensor:
        return (v**2).sum()

    square = levelport.interval(f, zero, lambda v: v[0] ** 2, rise=1.0)
    assert (square.lower, square.upper) == pytest.approx((0.0, 1.0), abs=1e-3)
    constant = levelport.interval(f, zero, lambda v: 0.0 * v[0] + 3.0, rise=1.0)
    assert statuses(constant) == ["FAILED", "FAILED"]
    assert "does not change" in constant.ends[0][0].message
    broken = levelport.interval(f, zero, lambda v: v[0].log(), rise=1.0)
    assert statuses(broken) == ["FAILED", "FAILED"]


def test_flat_hessian_is_no_obstacle() -> None:
    result = levelport.interval(lambda v: (v**4).sum(), torch.zeros(2, dtype=DTYPE), rise=1.0)
    assert torch.allclose(result.upper, torch.ones(2, dtype=DTYPE), atol=1e-3)


def test_near_separable_logistic() -> None:
    problem = logistic(5, samples=30, features=4)
    result = levelport.interval(problem.fun, problem.minimizer(), rise=RISE)
    assert all(end.value <= result.value + RISE for both in result.ends for end in both)


def test_fuzz_cases() -> None:
    """A few cases of tools/fuzz_goals.py, which runs thousands."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
    try:
        import fuzz_goals
    finally:
        sys.path.pop(0)
    for number in (*range(5000, 5040), 1675, 5061, 6378):  # the last ones have divided by zero
        case, rng = fuzz_goals.make(number), random.Random(number + 1)
        for check in (fuzz_goals.check_interval, fuzz_goals.check_improve):
            assert check(case, rng)[0] == [], case.text


@pytest.mark.parametrize("bend", [1.0, 3.0])
@pytest.mark.parametrize(("d", "place"), [(2, 0), (5, 0), (12, 10)])
def test_end_across_a_symmetric_valley_is_no_saddle(bend: float, d: int, place: int) -> None:
    """On the axis of symmetry of a banana h is stationary on the level, but its end lies in the arms."""
    rest = [i for i in range(d) if i not in (place, d - 1)]

    def f(v: Tensor) -> Tensor:
        return v[place] ** 2 + (v[d - 1] - bend * v[place] ** 2) ** 2 + v[rest].square().sum()

    end = levelport.interval(f, torch.zeros(d, dtype=DTYPE), [d - 1], rise=1.0).ends[0][1]
    arm = 1.0 - 0.25 / bend**2  # v₀² at the end
    assert end.bound == pytest.approx(bend * arm + math.sqrt(1.0 - arm), rel=5e-3)
    assert end.success


@pytest.mark.parametrize(("curvature", "known"), [(1e-10, True), (1e-14, False), (-1e-14, False)])
def test_second_look_knows_its_digits(curvature: float, known: bool) -> None:
    """A curvature along the level below the rounding errors of the largest one gives no certificate."""
    scales = torch.tensor([1.0, 100.0, curvature], dtype=DTYPE)
    objective = FunctionObjective(lambda v: 0.5 * (scales * v * v).sum(), like=torch.zeros(3, dtype=DTYPE))
    chart = Chart(torch.zeros(3, dtype=DTYPE), torch.eye(3, dtype=DTYPE), torch.eye(3, dtype=DTYPE))
    region = Region(objective, chart, 0.0, 1.0, 1.0)
    site = region.at(torch.tensor([-math.sqrt(2.0), 0.0, 0.0], dtype=DTYPE))
    aim = Aim(LinearGoal.entry(0, site.z), 1.0, chart)
    look = second_look(region, aim, site, aim.at(site))
    assert look is not None
    assert (look.gain < 1e-9) is known
    assert abs(float(look.softest[2])) == pytest.approx(1.0)


def test_least_curvature_of_the_pairs() -> None:
    """Against BFGS written out: the least eigenvalue of B on the plane across a gradient."""
    rng = torch.Generator().manual_seed(5)
    root = torch.randn(6, 6, dtype=DTYPE, generator=rng)
    H, pairs = root @ root.T / 6.0, Pairs(scale=1.0)
    B = torch.eye(6, dtype=DTYPE)
    for _ in range(2):
        s = torch.randn(6, dtype=DTYPE, generator=rng)
        y, Bs = H @ s, B @ s
        pairs.learn(s, y)
        B = B - torch.outer(Bs, Bs) / (s @ Bs) + torch.outer(y, y) / (s @ y)
    g = torch.randn(6, dtype=DTYPE, generator=rng)
    plane = torch.linalg.qr(torch.cat([g[:, None], torch.eye(6, dtype=DTYPE)[:, :5]], dim=1))[0][:, 1:]
    least = float(torch.linalg.eigvalsh(plane.T @ B @ plane)[0])
    assert least < 0.9
    assert pairs.least_curvature(g) == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("sizes", [(1e-17, 1e-17), (1e-30, 1e-40), (1e150, 1e-150)])
def test_least_curvature_of_pairs_beyond_all_digits(sizes: tuple[float, float]) -> None:
    """A quantity that says too little: no certificate by the Wald step's own test, and no error either."""
    pairs, s = Pairs(scale=1.0), torch.tensor([1.0, 0.0, 0.0], dtype=DTYPE)
    for size in sizes:
        pairs.learn(s, size * s)
    assert len(pairs) == 2
    assert pairs.least_curvature(torch.tensor([0.0, 1.0, 0.0], dtype=DTYPE)) < 1e-9
