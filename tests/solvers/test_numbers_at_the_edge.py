"""Squares that leave the range of numbers, half precision, and doubts: a result and a status, never an exception."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.functions import rosenbrock
from torch import Tensor

from levelport import Auto, Every, FunctionObjective, Never, Teleported, TeleportStatus, minimize, teleport
from levelport.numerics.newton import newton_step
from levelport.optim import Armijo, FixedStep, Newton, Polyak
from levelport.optim.result import MinimizeStatus
from levelport.vectors import all_finite, norm


def tensor(*entries: float) -> Tensor:
    return torch.tensor(entries, dtype=torch.float64)


def quartic(x: Tensor) -> Tensor:
    return (x**4).sum() + x[0] * x[1] + x[0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 0.0])
def test_all_finite_sees_one_number_in_a_thousand(number: float, dtype: torch.dtype) -> None:
    v = torch.linspace(-3.0, 3.0, 1001, dtype=dtype)
    assert all_finite(v)
    assert all_finite(v[:0])
    v[700] = number
    assert all_finite(v) == math.isfinite(number)


@pytest.mark.parametrize("exponent", [-320, -310, -200, -162, -154, -100, 0, 100, 153, 154, 200, 307])
def test_norm_at_all_sizes(exponent: int) -> None:
    unit = float(f"1e{exponent}")
    found = float(norm(tensor(3.0 * unit, -4.0 * unit, 0.0)))
    assert found == pytest.approx(math.hypot(3.0 * unit, 4.0 * unit), rel=1e-14, abs=0.0)


def test_norm_of_what_has_none() -> None:
    assert float(norm(tensor(math.inf, 1.0))) == math.inf
    assert math.isnan(float(norm(tensor(math.nan, 1.0))))
    assert float(norm(tensor(0.0, 0.0))) == 0.0
    assert float(norm(tensor(1e308, 1e308, 1e308, 1e308))) == math.inf


@pytest.mark.parametrize("power", [-660, -520, 520, 660])
def test_a_power_of_two_costs_nothing(power: int) -> None:
    """f·2ᵏ has the same sub-level sets: as good a teleport, though ‖∇f‖² is 0 or infinite."""
    plain = teleport(quartic, tensor(1.0, 0.5))
    scaled = teleport(lambda x: 2.0**power * quartic(x), tensor(1.0, 0.5))
    # Some products of an ascent do round at these sizes, so the last steps may differ.
    assert scaled.gradient_norm / 2.0**power >= (1.0 - 1e-4) * plain.gradient_norm
    assert scaled.value <= scaled.value_start


@pytest.mark.parametrize("method", ["auto", "armijo", "newton-cg", Polyak(max_step=1.0), Armijo(c=0.1)], ids=str)
@pytest.mark.parametrize("scale", [1e-170, 1e155, 1e200])
def test_descent_with_squares_out_of_range(method: object, scale: float) -> None:
    result = minimize(
        lambda x: scale * (x * x).sum(),
        tensor(1.0, 1.0),
        method,  # type: ignore[arg-type]
        schedule=Every(1),
        max_iterations=200,
    )
    assert result.value <= 2.0 * scale
    if method == "newton-cg":
        assert result.success


def test_a_norm_that_is_no_number_of_the_dtype() -> None:
    """Every entry is a float32 and the norm is not: the unit normal is one all the same."""
    point = FunctionObjective(lambda x: (3e38 * x).sum(), like=torch.zeros(4)).at(torch.zeros(4))
    assert point.gradient_norm == pytest.approx(6e38, rel=1e-6)
    torch.testing.assert_close(point.normal, torch.full((4,), 0.5))


def test_a_landing_where_the_gradient_vanishes() -> None:
    """Float32 cannot hold the slope of a saturated sigmoid; found by the fuzzer."""
    x = torch.tensor([1.0, 6.901656943026876])
    result = teleport(lambda x: torch.sigmoid(x - 1.0).sum(), x, Auto(memory=3, max_hvps=20))
    assert result.value <= result.value_start
    assert result.gradient_norm >= result.gradient_norm_start


def test_an_ascent_whose_first_product_overflows() -> None:
    """Steep enough in float32 that some Hessian-vector product on the way is infinite. Found by the fuzzer."""
    p = torch.nn.Parameter(torch.tensor([5.654858152240524e-05, 0.0]))
    optimizer = Teleported(torch.optim.Adam([p], lr=0.01), Every(1), solver=Auto(max_hvps=5))
    for _ in range(3):
        optimizer.step(lambda: 1e30 * rosenbrock(p / 1e-3 + 0.5))
    assert bool(torch.isfinite(p).all())


def test_a_step_below_the_smallest_number() -> None:
    result = teleport(lambda x: 1e-162 * x.sum() - 0.5e163 * (x * x).sum(), tensor(0.0, 0.0))
    assert result.value <= result.value_start
    assert result.gradient_norm >= result.gradient_norm_start > 0.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("solver", ["auto", "sqp"])
def test_half_precision_keeps_the_guarantee(dtype: torch.dtype, solver: str) -> None:
    result = teleport(quartic, torch.tensor([1.0, 0.5], dtype=dtype), solver)
    assert result.x.dtype is dtype
    assert result.value <= result.value_start * (1.0 + (1e-6 if solver == "sqp" else 0.0))
    assert result.gradient_norm >= result.gradient_norm_start
    assert minimize(quartic, torch.tensor([1.0, 0.5], dtype=dtype), max_iterations=20).value < result.value_start


def test_an_inflection_is_a_doubt_and_no_error() -> None:
    """∇²f = 0 at the start is true here, and ∇f changes by much around it."""
    result = teleport(lambda x: (x + (1e8 * x) ** 3).sum(), tensor(0.0, 0.0))
    assert result.status is TeleportStatus.CONVERGED
    assert "second derivative vanishes" in result.detail


def test_a_probe_that_leaves_the_range_is_a_doubt_and_no_error() -> None:
    """The function lives on lengths of 1e-150: a step of 1e-16 overflows. Found by the fuzzer."""
    result = teleport(lambda x: ((x / 1e-150).sin() + (x / 1e-150) ** 4).sum(), tensor(0.0))
    assert "second derivative vanishes" in result.detail


def test_a_kink_is_a_doubt_and_no_error() -> None:
    result = teleport(lambda x: (x + 1e8 * x.relu() ** 2).sum(), tensor(0.0, 0.0))
    assert "second derivative vanishes" in result.detail


@pytest.mark.parametrize("verb", [teleport, minimize])
def test_autocast_around_a_solve_changes_nothing(verb: object) -> None:
    """A solver's own products would otherwise be made in half precision."""
    plain = verb(quartic, torch.tensor([1.0, 0.5]))  # type: ignore[operator]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = verb(quartic, torch.tensor([1.0, 0.5]))  # type: ignore[operator]
    assert torch.equal(plain.x, inside.x)


def test_minimize_refuses_noise() -> None:
    with pytest.raises(ValueError, match="not deterministic"):
        minimize(lambda x: x.square().sum() * (1.0 + torch.rand(())), tensor(1.0, 1.0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_noise_is_noticed_in_any_precision(dtype: torch.dtype) -> None:
    factors = iter([1.0, 1.2, 1.0, 1.2])
    with pytest.raises(ValueError, match="not deterministic"):
        teleport(lambda x: x.square().sum() * next(factors), torch.tensor([3.0, 2.0], dtype=dtype))


@pytest.mark.parametrize("method", ["lbfgs", "newton-cg"])
@pytest.mark.parametrize(
    ("dtype", "scale", "near"), [(torch.float16, 50.0, 1e-3), (torch.float32, 1e21, 1e-5)], ids=str
)
def test_slopes_beyond_the_range_of_the_dtype(method: str, dtype: torch.dtype, scale: float, near: float) -> None:
    """‖∇f‖² is no number of the dtype, and f has a minimum all the same."""
    start = torch.tensor([3.0, 2.0], dtype=dtype)
    result = minimize(lambda x: scale * x.square().sum(), start, method, schedule=Never(), gtol=1e-8)
    assert float(result.x.abs().max()) <= near


@pytest.mark.parametrize("scale", [1e-16, 1e16])
def test_newtons_step_in_single_precision_is_free_of_units(scale: float) -> None:
    objective = FunctionObjective(lambda x: scale * (x[0] ** 2 + 5.0 * x[1] ** 2), like=torch.zeros(2))
    solved = newton_step(objective.at(torch.tensor([3.0, 2.0])), tolerance=1e-4, max_hvps=10)
    torch.testing.assert_close(solved.step, torch.tensor([-3.0, -2.0]))


def test_steps_beyond_the_range_of_single_precision_are_no_error() -> None:
    """The gradient hardly changes along the level set, so that the first length asked for is beyond 3e38."""
    start = torch.tensor([-5.65e29, 3.54e30, -6.12e29, 1e30, -3.57e29], dtype=torch.float32)

    def far(x: Tensor) -> Tensor:
        u = x / 1e30
        return 1e15 * ((1 - u[0]) ** 2 + 100 * (u[1:] - u[:-1] ** 2).square().sum())

    result = teleport(far, start, Auto(max_hvps=5, tol=1e-14))
    assert math.isfinite(result.gradient_norm)
    assert result.value <= result.value_start


@pytest.mark.parametrize("method", ["auto", "armijo", "newton-cg", FixedStep(1e38)], ids=str)
def test_minimize_stays_finite_where_f_saturates(method: Any) -> None:
    """tanh and its gradient are finite at -∞, which is no point. Found by the fuzzer."""
    start = torch.tensor([0.0, 6.5e29], dtype=torch.float32)
    result = minimize(lambda x: 1e-8 * torch.tanh(x / 1e30 + 0.5).sum(), start, method, max_iterations=6)
    assert all_finite(result.x)
    assert result.value <= result.trace[0].value


def test_a_step_to_infinity_is_divergence() -> None:
    start = torch.tensor([0.0], dtype=torch.float32)
    result = minimize(lambda x: (1e30 * x).tanh().sum(), start, FixedStep(1e38), schedule=Never())
    assert result.status is MinimizeStatus.DIVERGED
    assert torch.equal(result.x, start)


def test_newton_cg_stays_at_a_minimum() -> None:
    """The gradient is exactly zero. Found by the fuzzer."""
    start = FunctionObjective(lambda w: w.square().sum(), tensor(0.0, 0.0))
    point = start.at(tensor(0.0, 0.0), curvature=True)
    step = Newton().advance(start, point, None, None)
    assert step.point is None or torch.equal(step.point.x, point.x)
