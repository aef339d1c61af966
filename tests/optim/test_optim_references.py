"""Each method against a slow reference implementation, and the two routes (minimize, torch) against each other."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import levelport
from levelport.numerics.strong_wolfe import strong_wolfe
from levelport.objective import Point
from levelport.objectives import FunctionObjective, LinearObjective
from levelport.optim import (
    Armijo,
    ArmijoSGD,
    At,
    Every,
    FixedStep,
    Momentum,
    Never,
    Newton,
    Normalized,
    Polyak,
    PolyakSGD,
    Teleported,
    minimize,
)
from levelport.optim.armijo import armijo_search
from levelport.optim.newton_cg import newton_direction
from levelport.solvers import SQP

PENALTY = 1e-3
DATA = np.random.default_rng(7)
X = torch.tensor(DATA.standard_normal((80, 6)) * np.logspace(0, -1, 6))
Y = torch.tensor(np.sign(DATA.standard_normal(80)))


def logistic(w: Tensor) -> Tensor:
    return nn.functional.softplus(-Y * (X @ w)).mean() + PENALTY * w.square().sum()


def start() -> Tensor:
    return torch.linspace(-1.0, 1.0, 6, dtype=torch.float64)


def torch_route(make: Any, schedule: Any, steps: int, first_step: Any = "optimizer", **options: Any) -> Tensor:
    weight = nn.Parameter(start())
    optimizer = Teleported(make([weight]), schedule, first_step=first_step, **options)
    for _ in range(steps):
        optimizer.step(lambda: logistic(weight))
    return weight.detach()


def test_teleported_sgd_is_algorithm_1_of_the_paper() -> None:
    blocks, lr, w = {2: 2, 9: 1, 15: 3}, 0.5, start()
    due = {k + i for k, size in blocks.items() for i in range(size)}
    for k in range(20):
        if k in due:
            w = levelport.teleport(logistic, w, solver=levelport.SQP(max_hvps=50)).x
        w = w.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(logistic(w), w)
        w = (w - lr * gradient).detach()
    ours = torch_route(lambda p: torch.optim.SGD(p, lr=lr), At(due), 20, solver=SQP(max_hvps=50))
    assert float((ours - w).abs().max()) < 1e-12
    plain = torch_route(lambda p: torch.optim.SGD(p, lr=lr), Never(), 20)
    assert float((ours - plain).abs().max()) > 1e-3  # and the teleports made a difference


def reference_armijo(w: np.ndarray[Any, Any], steps: int, c: float) -> np.ndarray[Any, Any]:
    """Forward-track, then backtrack, exactly as the paper's appendix says; NumPy, no reuse of anything."""
    x, y = X.numpy(), Y.numpy()

    def f(w: Any) -> float:
        return float(np.logaddexp(0, -y * (x @ w)).mean() + PENALTY * w @ w)

    eta = 1.0
    for _ in range(steps):
        g = x.T @ (-y / (1 + np.exp(y * (x @ w)))) / len(y) + 2 * PENALTY * w
        while f(w - eta * g) <= f(w) - c * eta * g @ g:
            eta *= 1.25
        while f(w - eta * g) > f(w) - c * eta * g @ g:
            eta *= 0.8
        w = w - eta * g
    return w


@pytest.mark.parametrize("c", [0.5, 0.1, 0.001])
def test_armijo_is_the_papers(c: float) -> None:
    expected = reference_armijo(start().numpy(), 15, c)
    ours = minimize(logistic, start(), Armijo(c=c), schedule=Never(), max_iterations=15, gtol=0.0)
    assert isinstance(ours.x, Tensor)
    assert float(np.abs(ours.x.numpy() - expected).max()) < 1e-12
    weight = nn.Parameter(start())
    optimizer = ArmijoSGD([weight], c=c)
    for _ in range(15):
        optimizer.step(lambda: logistic(weight))
    assert float(np.abs(weight.detach().numpy() - expected).max()) < 1e-12
    assert optimizer.param_groups[0]["step_size"] == pytest.approx(ours.trace[-1].step, rel=1e-12)


PAIRS = [
    (FixedStep(0.5), lambda p: torch.optim.SGD(p, lr=0.5), {}),
    (Momentum(0.5), lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9, dampening=0.9), {}),
    (Polyak(2.0), lambda p: PolyakSGD(p, lr=2.0), {}),
    (Armijo(c=0.1), lambda p: ArmijoSGD(p, c=0.1), {}),
]


@pytest.mark.parametrize(("rule", "make", "options"), PAIRS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("schedule", [Never(), Every(4, start=1)], ids=str)
@pytest.mark.parametrize("included", [False, True], ids=["algorithm-1", "one-move"])
def test_minimize_and_the_torch_route_agree(rule: Any, make: Any, options: Any, schedule: Any, included: bool) -> None:
    ours = minimize(
        logistic,
        start(),
        rule,
        schedule=schedule,
        solver=SQP(max_hvps=10),
        first_step="included" if included else "method",
        max_iterations=10,
        gtol=0.0,
    )
    assert ours.iterations == 10
    assert ours.teleports <= (0 if isinstance(schedule, Never) else 3)
    assert [row.kind for row in ours.trace].count("first step") == (ours.teleports if included else 0)
    first_step = "included" if included else "optimizer"
    other = torch_route(make, schedule, 10, first_step, solver=SQP(max_hvps=10), **options)
    torch.testing.assert_close(ours.x, other, rtol=1e-12, atol=1e-12)


def test_objectives_and_functions_agree() -> None:
    closed = LinearObjective.logistic(X, Y, penalty=PENALTY)
    by_closed_form = minimize(closed, start(), Armijo(), schedule=Every(5), max_iterations=12, gtol=0.0)
    by_autograd = minimize(logistic, start(), Armijo(), schedule=Every(5), max_iterations=12, gtol=0.0)
    assert by_closed_form.value == pytest.approx(by_autograd.value, rel=1e-6)  # exact products, differences


def test_polyak_converges_in_one_step_where_its_model_is_exact() -> None:
    # f = |x|²: (f - 0)/‖g‖² = 1/4, half of the way to the minimum.
    result = minimize(lambda x: x.square().sum(), start(), Polyak(1.0), schedule=Never(), max_iterations=1)
    torch.testing.assert_close(result.x, 0.5 * start())
    bounded = minimize(lambda x: x.square().sum(), start(), Polyak(0.1), schedule=Never(), max_iterations=1)
    torch.testing.assert_close(bounded.x, 0.8 * start())
    beyond = minimize(
        lambda x: x.square().sum(), start(), Polyak(1.0, f_star=100.0), schedule=Never(), max_iterations=1
    )
    torch.testing.assert_close(beyond.x, start())


def test_normalized_steps_have_one_length() -> None:
    w = start()
    for _ in range(15):
        w = w.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(logistic(w), w)
        w = (w - 0.05 * gradient / gradient.norm()).detach()
    ours = minimize(logistic, start(), Normalized(0.05), max_iterations=15, gtol=0.0)
    assert float((ours.x - w).abs().max()) < 1e-12


def test_newton_steps_of_fixed_length_on_a_quadratic() -> None:
    """Where one product solves for the direction, each step of 0.8 leaves a fifth of the distance."""
    x = torch.tensor([1.0, 2.0, -3.0], dtype=torch.float64)
    result = minimize(lambda w: 3.0 * (w * w).sum(), x, Newton(step=0.8), max_iterations=3, gtol=0.0)
    assert float((result.x - 0.2**3 * x).abs().max()) < 1e-12


def test_newton_is_newton() -> None:
    # Near the minimum CG is asked for a relative residual of √‖g‖, so the direction is that of the dense Hessian.
    near = minimize(logistic, start(), Newton(), schedule=Never(), gtol=1e-6).x
    assert isinstance(near, Tensor)
    w = (near + 1e-7).requires_grad_()
    hessian = torch.autograd.functional.hessian(logistic, w)
    (gradient,) = torch.autograd.grad(logistic(w), w)
    expected = -torch.linalg.solve(hessian, gradient)
    point = FunctionObjective(logistic, like=w).at(w.detach(), curvature=True)
    direction = newton_direction(point, max_hvps=50)
    assert float((direction - expected).norm() / expected.norm()) < 1e-2
    assert float((hessian @ direction + gradient).norm()) <= point.gradient_norm**1.5 * (1 + 1e-6)
    solved = minimize(logistic, start(), Newton(), schedule=Never(), gtol=1e-10)
    assert solved.success
    assert solved.iterations < 12
    assert solved.cost.hvps > 0
    assert [row.step for row in solved.trace[-3:]] == [1.0, 1.0, 1.0]


def test_newton_descends_where_the_hessian_is_indefinite() -> None:
    def saddle(x: Tensor) -> Tensor:
        return (x[0] ** 2 - 1.0) ** 2 + x[1] ** 2

    x = torch.tensor([0.1, 0.5], dtype=torch.float64)  # ∂²f/∂x₀² = 12·0.01 - 4 < 0
    point = FunctionObjective(saddle, like=x).at(x)
    direction = newton_direction(point, 10)
    assert float(torch.dot(direction, point.gradient)) < 0.0
    result = minimize(saddle, x, Newton(), schedule=Never(), gtol=1e-9)
    assert result.success
    assert result.value < 1e-12


def test_newton_limits_its_products() -> None:
    for limit in (1, 3):
        result = minimize(logistic, start(), Newton(max_hvps=limit), schedule=Never(), max_iterations=5, gtol=0.0)
        assert result.cost.hvps <= 5 * limit
        assert result.value < float(logistic(start()))


@pytest.mark.parametrize("initial", [1e-4, 1.0, 1e3])
def test_strong_wolfe_conditions_hold(initial: float) -> None:
    generator = np.random.default_rng(0)
    for _ in range(10):
        x = torch.tensor(generator.standard_normal(6) * 3)
        objective = FunctionObjective(logistic, like=x)
        point = objective.at(x)
        direction = -point.gradient * float(np.exp(generator.standard_normal()))
        slope = float(torch.dot(point.gradient, direction))
        found = strong_wolfe(objective.at, point, direction, initial=initial, c2=0.3)
        assert found is not None
        t, end = found
        assert end.value <= point.value + 1e-4 * t * slope
        assert abs(float(torch.dot(end.gradient, direction))) <= 0.3 * abs(slope)
        torch.testing.assert_close(end.x, x + t * direction)


@pytest.mark.parametrize(("minimizer", "evaluations"), [(5.0, 2), (11.0, 2), (100.0, 3)])
def test_secant_extrapolates_to_the_minimum_of_a_parabola(minimizer: float, evaluations: int) -> None:
    """A first step of 1 is too short; the secant of the slopes leads to the minimum, up to ten strides at a time."""
    objective = FunctionObjective(lambda x: (x[0] - minimizer) ** 2, like=torch.zeros(1, dtype=torch.float64))
    start = objective.at(torch.zeros(1, dtype=torch.float64))
    found = strong_wolfe(objective.at, start, torch.ones(1, dtype=torch.float64), c2=1e-6)
    assert found is not None
    assert found[0] == pytest.approx(minimizer)
    assert objective.cost.gradients == 1 + evaluations


@pytest.mark.parametrize("minimizer", [0.01, 0.15, 0.5, 0.85])
@pytest.mark.parametrize("initial", [1.0, 3.0])
def test_on_a_parabola_the_search_steps_to_its_minimum(minimizer: float, initial: float) -> None:
    """Two evaluations: one that is too long, and the minimum, or a tenth of the first where that is further."""
    objective = FunctionObjective(lambda x: (x[0] - minimizer) ** 2, like=torch.zeros(1, dtype=torch.float64))
    start = objective.at(torch.zeros(1, dtype=torch.float64))
    tried: list[float] = []

    def at(x: Tensor) -> Point:
        tried.append(float(x))
        return objective.at(x)

    found = strong_wolfe(at, start, torch.ones(1, dtype=torch.float64), initial=initial, c2=1e-6)
    assert found is not None
    assert found[0] == pytest.approx(minimizer)
    assert tried[:2] == pytest.approx([initial, max(minimizer, 0.1 * initial)])


def test_strong_wolfe_refuses_ascent_and_survives_infinities() -> None:
    x = torch.tensor([0.5], dtype=torch.float64)
    objective = FunctionObjective(lambda w: -torch.log(1.0 - w).sum() + (w - 2).square().sum(), like=x)
    point = objective.at(x)
    assert strong_wolfe(objective.at, point, point.gradient) is None
    found = strong_wolfe(objective.at, point, -point.gradient / point.gradient_norm, initial=10.0)
    assert found is not None
    assert float(found[1].x) < 1.0


def test_search_takes_the_largest_acceptable_step_on_its_grid() -> None:
    # Acceptable up to 3: from 1, the grid is 1.25ᵏ, and 1.25⁴ = 2.44 is the last that will do.
    calls: list[float] = []

    def attempt(size: float) -> float | None:
        calls.append(size)
        return size if size <= 3.0 else None

    found = armijo_search(attempt, 1.0)
    assert found is not None
    assert found[0] == found[1] == pytest.approx(1.25**4)
    assert len(calls) == 6  # 1, 1.25, ..., 1.25⁵: the accepted one is not evaluated twice
    found = armijo_search(attempt, 10.0)
    assert found is not None
    assert found[0] == pytest.approx(10 * 0.8**6)
    assert armijo_search(lambda size: None, 1.0) is None
    bounded = armijo_search(lambda size: size, 1.0, max_step=2.0)
    assert bounded is not None
    assert bounded[0] == 2.0
    # A finer way down than up finds a step between the last two.
    finer = armijo_search(attempt, 1.0, grow=2.0, shrink=0.9)
    assert finer is not None
    assert finer[0] == pytest.approx(4 * 0.9**3)


@pytest.mark.parametrize("most", [math.inf, 1e300], ids=["no-bound", "a-bound"])
def test_the_search_ends_where_every_finite_step_is_acceptable(most: float) -> None:
    """f unbounded below: infinity, which no factor leads back from, is never tried."""
    found = armijo_search(lambda size: size if math.isfinite(size) else None, 1.0, max_step=most)
    assert found is not None
    assert found[0] == min(most, sys.float_info.max)


@pytest.mark.parametrize(("newton", "expected"), [(None, 1e6), (1e9, 1e9), (3.0, 3.0)])
def test_search_ends_at_a_million_or_at_the_newton_step(newton: float | None, expected: float) -> None:
    """Where f is linear every step is acceptable."""
    objective = FunctionObjective(lambda w: w.sum(), like=torch.zeros(1, dtype=torch.float64))
    step = Armijo().advance(objective, objective.at(torch.zeros(1, dtype=torch.float64)), None, newton)
    assert step.size == expected


@pytest.mark.parametrize("slope", [0.0, math.nan, math.inf], ids=str)
def test_without_a_slope_no_search_is_made(slope: float) -> None:
    """A minimum, or a loss that is not finite: there is nothing to find, and one evaluation tells."""
    weight = nn.Parameter(torch.ones(2, dtype=torch.float64))
    optimizer, evaluations = ArmijoSGD([weight]), 0

    def loss() -> Tensor:
        nonlocal evaluations
        evaluations += 1
        return slope * weight.sum()

    optimizer.step(loss)
    assert evaluations == 1
    assert weight.tolist() == [1.0, 1.0]
    assert optimizer.param_groups[0]["step_size"] == 0.0
    assert optimizer.param_groups[0]["next_trial"] == 1.0


def test_armijo_goes_on_below_the_rounding_error_of_f() -> None:
    # The decrease of f is lost in 1 + 1e-18 long before the gradient is as small as asked for.
    scale = torch.tensor([1.0, 3.0], dtype=torch.float64)
    result = minimize(
        lambda x: 1.0 + (scale * x.square()).sum(),
        torch.ones(2, dtype=torch.float64),
        Armijo(),
        schedule=Never(),
        gtol=1e-12,
    )
    assert result.success
    assert float(torch.as_tensor(result.x).abs().max()) < 1e-11


def test_search_starts_at_one_over_curvature_after_a_teleport() -> None:
    weight = nn.Parameter(start())
    optimizer = Teleported(ArmijoSGD([weight], c=0.1), Every(1), solver=SQP(max_hvps=20))
    optimizer.step(lambda: logistic(weight))
    result = optimizer.last_teleport
    assert result is not None
    assert result.teleport.curvature > 0.0
    taken = optimizer.param_groups[0]["step_size"]
    assert taken == pytest.approx(1.0 / result.teleport.curvature, rel=1e-12)
    assert optimizer.param_groups[0]["newton_step"] is None


def test_the_first_step_belongs_to_the_move() -> None:
    weight = nn.Parameter(start())
    optimizer = Teleported(torch.optim.SGD([weight], lr=0.25), Never(), solver="auto")
    before = logistic(weight).item()
    result = optimizer.teleport(lambda: logistic(weight))
    assert result.gain > 1.0
    assert result.first_step == pytest.approx(1.0 / result.teleport.curvature)
    (gradient,) = torch.autograd.grad(logistic(x := result.teleport.x.clone().requires_grad_()), x)
    torch.testing.assert_close(
        weight.detach(), result.teleport.x - result.first_step * gradient, rtol=1e-12, atol=1e-14
    )
    assert logistic(weight).item() == pytest.approx(result.value_after, rel=1e-12)
    assert result.value_after < result.teleport.value <= before
    landed = weight.detach().clone()
    optimizer.step(lambda: logistic(weight))
    assert weight.grad is not None
    torch.testing.assert_close(weight.detach(), landed - 0.25 * weight.grad, rtol=1e-12, atol=1e-14)


class Uphill(torch.autograd.Function):
    """Σ x², with a gradient of the wrong sign."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.square().sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * torch.tensor([-2.0, -4.0, 1.0], dtype=torch.float64)


@pytest.mark.parametrize("known", [None, 4.0])
def test_where_no_step_descends_nothing_moves(known: float | None) -> None:
    start = torch.tensor([1.0, 2.0, -0.1], dtype=torch.float64)
    weight = torch.nn.Parameter(start.clone())
    optimizer = ArmijoSGD([weight], initial=0.5)
    if known is not None:
        optimizer.after_teleport(known)
    assert float(optimizer.step(lambda: Uphill.apply(weight))) == pytest.approx(5.01)
    group = optimizer.param_groups[0]
    assert torch.equal(weight.detach(), start)
    assert (group["step_size"], group["next_trial"], group["newton_step"]) == (0.0, 0.5, None)
    objective = FunctionObjective(Uphill.apply, start)
    step = Armijo(initial=0.5).advance(objective, objective.at(start), 0.25, known)
    assert (step.point, step.state, step.size) == (None, 0.25, 0.0)
