"""Edges that random problems have found: radii, steps, divisions, and settings that mean nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from tests.functions import beale, booth, goldstein_price, himmelblau, rosenbrock
from torch import Tensor, nn

from levelport import ObjectiveError, TeleportStatus, teleport
from levelport.solvers import Auto, Krylov
from levelport.solvers.ascent import LevelSetAscent


def random_quadratic(dimension: int, condition: float, seed: int) -> tuple[Callable[[Tensor], Tensor], Tensor, float]:
    """A convex quadratic, a start, and the largest gradient on its level, √(2 θ (f(w) - f*))."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    basis, _ = torch.linalg.qr(draw(dimension, dimension))
    values = torch.logspace(0.0, -math.log10(condition), dimension, dtype=torch.float64)
    hessian, bottom, lowest = basis @ torch.diag(values) @ basis.T, draw(dimension), 3.0

    def f(x: Tensor) -> Tensor:
        return 0.5 * torch.dot(x - bottom, hessian @ (x - bottom)) + lowest

    start = draw(dimension)
    return f, start, math.sqrt(2.0 * (float(f(start)) - lowest))


@pytest.mark.parametrize("level_set", [False, True])
@pytest.mark.parametrize("condition", [3.0, 1e3])
@pytest.mark.parametrize("dimension", range(2, 11))
def test_small_quadratics_cost_what_their_formula_says(dimension: int, condition: float, level_set: bool) -> None:
    f, start, largest = random_quadratic(dimension, condition, seed=dimension)
    result = teleport(f, start, level_set=level_set)
    assert result.status is TeleportStatus.CONVERGED
    assert result.gradient_norm == pytest.approx(largest, rel=1e-8)
    # Start ½ + 1, first product and certificate 2 + 2, solution 1; differences 1 each, but the last of several ½.
    assert result.cost.gradient_equivalents == (7.5 if dimension == 2 else dimension + 5.0)


@pytest.mark.parametrize(
    ("scales", "start"),
    [
        ([1.0, 1.0, 10.0], [1.0, 1.0, 1.0]),
        ([5.0, 2.0, 2.0, 2.0, 2.0], [1.0, -1.0, 2.0, 0.5, 3.0]),
        ([*range(1, 11)], [1.0, 1.0] + [0.0] * 8),
    ],
    ids=["repeated, small", "repeated, larger", "orthogonal"],
)
def test_quadratics_beyond_the_krylov_space_cost_15_at_most(scales: list[float], start: list[float]) -> None:
    """Of a repeated eigenvalue the Krylov space has one vector, and none where the gradient is orthogonal to them."""
    scale, w = torch.tensor(scales, dtype=torch.float64), torch.tensor(start, dtype=torch.float64)
    result = teleport(lambda x: 0.5 * torch.dot(scale, x * x), w)
    assert result.status is TeleportStatus.CONVERGED
    assert result.gradient_norm == pytest.approx(math.sqrt(max(scales) * float(torch.dot(scale, w * w))), rel=1e-8)
    assert result.cost.gradient_equivalents <= 15.0


def test_nearly_quadratic_costs_one_gradient_more(monkeypatch: pytest.MonkeyPatch) -> None:
    f, start, _ = random_quadratic(5, 10.0, seed=0)
    with_check = teleport(lambda x: f(x) + 0.01 * (x**4).sum(), start)
    monkeypatch.setattr("levelport.solvers.auto.FEW", 0)
    without = teleport(lambda x: f(x) + 0.01 * (x**4).sum(), start)
    assert with_check.gradient_norm == without.gradient_norm
    assert with_check.cost.gradient_equivalents == without.cost.gradient_equivalents + 1.0


def test_last_product_is_no_value_where_values_are_rounded() -> None:
    """Of a quadratic 1e6 above zero, values have four digits less than what the last curvature is compared with."""
    f, start, _ = random_quadratic(5, 10.0, seed=0)
    low, high = (teleport(lambda x, more=more: f(x) + more, start) for more in (0.0, 1e6))
    assert high.cost.gradient_equivalents == low.cost.gradient_equivalents + 0.5
    assert high.gradient_norm == pytest.approx(low.gradient_norm, rel=1e-7)


def test_quadratic_start_at_the_solution_stays() -> None:
    scales = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)
    start = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    result = teleport(lambda x: torch.dot(scales, x * x), start)
    assert result.status is TeleportStatus.CONVERGED
    assert result.gradient_norm == pytest.approx(10.0)


def armijo_steps(f: Callable[[Tensor], Tensor], w: Tensor) -> Tensor:
    """Five steps of gradient descent with backtracking."""
    size = 1.0
    for _ in range(5):
        gradient = torch.func.grad(f)(w)
        while float(f(w - size * gradient)) > float(f(w) - 0.1 * size * gradient.square().sum()):
            size *= 0.5
        w, size = w - size * gradient, 2.0 * size
    return w


def test_derived_radius_on_raw_wine() -> None:
    """Softmax regression on features from 0.1 to 1680, after five steps from 0: the solution is 5000 ‖w‖ away."""
    datasets = pytest.importorskip("sklearn.datasets")
    data = datasets.load_wine()
    X, y = torch.tensor(data.data), torch.tensor(data.target)

    def f(w: Tensor) -> Tensor:
        return nn.functional.cross_entropy(X @ w, y)

    result = teleport(f, armijo_steps(f, torch.zeros(13, 3, dtype=torch.float64)), Auto(max_hvps=200))
    assert result.status is TeleportStatus.CONVERGED
    assert result.gain > 27.8  # 20.3 at the derived radius


@pytest.mark.parametrize("seed", range(4))
def test_derived_radius_is_widened_on_unscaled_features(seed: int) -> None:
    """Features from 0.1 to 1000, after five steps from 0: the derived radius is 0.1, the solution 11 to 25 away.

    The second ascent, from the far side, begins beyond the radius that the first one had at its start.
    """
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(90) % 3
    scale = torch.tensor([0.1, 0.5, 2.0, 10.0, 100.0, 800.0], dtype=torch.float64)
    centers = torch.tensor(
        [[1.0, 0.5, 1.5, 1.2, 1.0, 1.3], [1.3, 1.0, 1.0, 1.5, 0.9, 0.7], [0.8, 1.4, 1.2, 0.9, 1.1, 0.9]],
        dtype=torch.float64,
    )
    X = scale * (centers[y] + 0.3 * torch.randn(90, 6, generator=generator, dtype=torch.float64))

    def f(w: Tensor) -> Tensor:
        return nn.functional.cross_entropy(X @ w, y)

    start = armijo_steps(f, torch.zeros(6, 3, dtype=torch.float64))
    result, given = teleport(f, start, Auto(max_hvps=200)), teleport(f, start, Auto(max_hvps=200, radius=1e3))
    assert result.status is given.status is TeleportStatus.CONVERGED
    assert result.gain == pytest.approx(given.gain, rel=1e-3)  # 75 to 91 % of it with a radius for each ascent


def test_steps_below_roundings_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no step gains, as at a kink, backtracking ends where growth would be lost in the last digits of f."""
    tried = []

    def fail(self: LevelSetAscent, line: Any, step: float) -> tuple[None, float]:
        tried.append(step * line.length)
        return None, 1e-3

    monkeypatch.setattr(LevelSetAscent, "_trial", fail)
    start = torch.tensor([1.0, 1.5, -0.7], dtype=torch.float64)
    teleport(lambda x: (x**4).sum() + x.prod(), start)
    assert 1e-18 < min(tried) < 1e-12


def test_kink_costs_few_steps_below_the_resolution_of_x(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ReLU network whose hidden units are rescaled by up to 10: the ascent ends at a kink, in ever shorter steps."""
    generator = torch.Generator().manual_seed(0)
    sizes = [5, 10, 10, 1]
    X = torch.randn(60, 5, generator=generator, dtype=torch.float64)
    y = (torch.randn(60, generator=generator) > 0).double()
    weights: list[Tensor] = []
    for inputs, outputs in pairwise(sizes):
        weights.append(torch.randn(outputs, inputs, generator=generator, dtype=torch.float64) / inputs**0.5)
        weights.append(0.1 * torch.randn(outputs, generator=generator, dtype=torch.float64))

    def f(p: list[Tensor]) -> Tensor:
        hidden = (X @ p[0].T + p[1]).relu()
        output = (hidden @ p[2].T + p[3]).relu() @ p[4].T + p[5]
        loss = nn.functional.binary_cross_entropy_with_logits(output[:, 0], y)
        return loss + 1e-3 * sum((q.square().sum() for q in p), torch.zeros((), dtype=torch.float64))

    for _ in range(5):
        gradients = torch.func.grad(f)(weights)
        weights = [p - 0.1 * g for p, g in zip(weights, gradients, strict=True)]
    generator.manual_seed(0)
    for layer in (0, 2):
        scales = 10.0 ** (2.0 * torch.rand(10, generator=generator, dtype=torch.float64) - 1.0)
        weights[layer], weights[layer + 1] = weights[layer] * scales[:, None], weights[layer + 1] * scales
        weights[layer + 2] = weights[layer + 2] / scales
    tried, trial = [], LevelSetAscent._trial

    def counted(self: LevelSetAscent, line: Any, step: float) -> Any:
        before = self.problem.objective.cost.gradient_equivalents
        result = trial(self, line, step)
        length = step * line.length / float(self.point.x.norm())
        tried.append((length, self.problem.objective.cost.gradient_equivalents - before))
        return result

    monkeypatch.setattr(LevelSetAscent, "_trial", counted)
    result = teleport(f, weights, Auto(max_hvps=200))
    assert result.status is TeleportStatus.STALLED
    assert min(length for length, _ in tried) < 1e-9  # there was a kink
    assert sum(cost for length, cost in tried if length < 2.2e-16) <= 0.01 * result.cost.gradient_equivalents


@pytest.mark.parametrize("start", [(1.0, 2.0), (0.3, -1.0), (2.0, 1.0)])
def test_float32_ends_where_growth_cannot_be_seen(start: tuple[float, float]) -> None:
    def f(x: Tensor) -> Tensor:
        return (x**4).sum() + x[0] ** 2

    exact = teleport(f, torch.tensor(start, dtype=torch.float64))
    single = teleport(f, torch.tensor(start))
    assert single.gain == pytest.approx(exact.gain, rel=1e-5)
    assert single.cost.gradient_equivalents <= 100  # 123 to 205 if trials too short to be judged are shortened further


def test_trace_shows_lambda() -> None:
    f, start, _ = random_quadratic(30, 1e2, seed=1)
    seen: list[tuple[float, float]] = []

    def note(row: Any, point: Any) -> None:
        normal = point.gradient / point.gradient.norm()
        direct = torch.autograd.functional.vhp(f, point.x, normal)[1]
        seen.append((row.curvature, float(torch.dot(direct, normal))))

    result = teleport(f, start, callback=note)
    assert len(seen) == len(result.trace) > 3
    for told, direct in seen:
        assert told == pytest.approx(direct, rel=1e-9)


def test_krylov_radius_that_underflows_is_answered() -> None:
    """1e-162 x₀ - .5e163 x₀² + .5e163 x₁² + 1e-162 x₁ from 0: lengths underflow, and a radius was divided by."""

    def f(x: Tensor) -> Tensor:
        return 1e-162 * x[0] - 0.5e163 * x[0] ** 2 + 0.5e163 * x[1] ** 2 + 1e-162 * x[1]

    result = teleport(f, torch.zeros(2, dtype=torch.float64), Krylov())
    assert result.value <= result.value_start
    assert math.isfinite(result.gradient_norm)


def test_vmap_is_answered() -> None:
    starts = torch.ones(3, 2, dtype=torch.float64)
    with pytest.raises(ObjectiveError, match="vmap"):
        torch.func.vmap(lambda x: teleport(lambda z: z.square().sum(), x).x)(starts)
    with pytest.raises(ObjectiveError, match="vmap"):
        torch.func.vmap(lambda scale: teleport(lambda z: (scale * z).square().sum(), starts[0]).x)(starts)


def test_lazy_parameters_are_answered() -> None:
    module = nn.LazyLinear(3)
    with pytest.raises(ObjectiveError, match="lazy parameter"):
        teleport(lambda p: p[0].square().sum(), list(module.parameters()))


def styblinski_tang(x: Tensor) -> Tensor:
    return 0.5 * (x**4 - 16 * x**2 + 5 * x).sum()


def six_hump_camel(x: Tensor) -> Tensor:
    a, b = x
    return (4 - 2.1 * a**2 + a**4 / 3) * a**2 + a * b + (4 * b**2 - 4) * b**2


GLOBAL_MAXIMA: list[tuple[Callable[[Tensor], Tensor], tuple[float, float], tuple[float, float], list[float]]] = [
    (booth, (0.0, 0.0), (5.0, 5.0), [40.4406, 11.3735, 5.1401, 110.7755, 70.679]),
    (himmelblau, (0.0, 0.0), (4.0, 4.0), [288.1893, 232.4262, 286.0846, 275.8937, 132.3772]),
    (goldstein_price, (0.0, 0.0), (2.0, 2.0), [381361.24, 206828.52, 19091.728, 66791.604, 122969.81]),
    (rosenbrock, (0.0, 0.0), (2.0, 2.0), [2368.4921, 17422.590, 6069.0863, 120.23057, 8037.1644]),
    # Where f(w) exceeds 0.45, sub-level sets of this one are unbounded and have no largest gradient.
    (beale, (3.0, 0.5), (0.25, 0.08), [2.1250563, 3.2635564, 0.49557092, 12.962174, 0.94286590]),
    (styblinski_tang, (0.0, 0.0), (4.0, 4.0), [62.396555, 81.359282, 80.182362, 96.175053, 101.22460]),
    (six_hump_camel, (0.0, 0.0), (2.0, 2.0), [105.48612, 150.98332, 39.467554, 45.751976, 22.853654]),
]
"""Functions, a box of starts, and the largest gradient for five of them: the best of SLSQP from 6 to 60 points."""


def test_samples_find_global_maxima_of_test_functions() -> None:
    """From nine starts of ten within 1 % of SLSQP from many points; without samples from six of ten."""
    generator, found = torch.Generator().manual_seed(0), []
    for f, center, half, largest in GLOBAL_MAXIMA:
        for best in largest:
            draw = 2.0 * torch.rand(2, generator=generator, dtype=torch.float64) - 1.0
            start = torch.tensor(center, dtype=torch.float64) + torch.tensor(half, dtype=torch.float64) * draw
            result = teleport(f, start, Auto(starts=20, max_hvps=800))
            assert result.violation == 0.0
            found.append(result.gradient_norm > 0.99 * best)
    assert sum(found) >= 0.9 * len(found)


@pytest.mark.parametrize("starts", [0, 20])
def test_goldstein_price_from_the_origin(starts: int) -> None:
    """The ascent ends at 5807.6; the largest gradient on this level is 9207."""
    result = teleport(goldstein_price, torch.zeros(2, dtype=torch.float64), Auto(starts=starts, max_hvps=800))
    assert (result.gradient_norm > 0.99 * 9207.0) is (starts > 0)
    assert result.violation == 0.0


def test_later_ascents_leave_a_product_for_the_certificate() -> None:
    """A later ascent spent the last product, and the point of an earlier one was returned; without samples, too."""

    def f(x: Tensor) -> Tensor:
        u = x - 1e-8
        return (1e3 * u).sin().sum() + u.square().sum()

    start = torch.tensor([0.6145347881405347, 2.2622490629843686], dtype=torch.float64)
    for max_hvps in range(3, 14):
        for starts in (0, 2):
            solver = Auto(max_hvps=max_hvps, memory=1, starts=starts)
            assert teleport(f, start, solver).cost.hvps <= max_hvps
