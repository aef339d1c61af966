"""The guarantee over random functions: smooth, nasty, badly scaled, in float32, of one variable, never defined."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from levelport import SQP, Auto, Solver, TeleportResult, TeleportStatus, teleport
from levelport.solvers import solver_named

Function = Callable[[Tensor], Tensor]


def wave(x: Tensor) -> Tensor:
    """Coefficients that differ from coordinate to coordinate."""
    return torch.arange(1, x.numel() + 1, dtype=x.dtype, device=x.device)


SMOOTH: dict[str, Function] = {
    "quadratic": lambda x: (wave(x) * x.square()).sum(),
    "saddle": lambda x: (torch.cos(3 * wave(x)) * x.square()).sum(),
    "saddle with barriers": lambda x: (torch.cos(3 * wave(x)) * x.square() + 0.1 * x**4).sum(),
    "quartic": lambda x: (wave(x) * x**4).sum(),
    "log-cosh": lambda x: torch.log(torch.cosh(x)).sum(),
    "log-sum-exp": lambda x: torch.logsumexp(wave(x) * x, 0) + 0.01 * x.square().sum(),
    "tanh": lambda x: torch.tanh(x).sum() ** 2,
    "product": lambda x: (x - 1).prod() + x.square().sum(),
    "gauss": lambda x: -torch.exp(-x.square().sum()),
}
NASTY: dict[str, Function] = {
    "log": lambda x: torch.log(x).sum(),
    "square root": lambda x: torch.sqrt(x).sum(),
    "reciprocal": lambda x: (1 / x).sum(),
    "entropy": lambda x: (x * torch.log(x)).sum(),
    "barrier": lambda x: x.sum() - torch.log(1 - x.square()).sum(),
    "exponential tower": lambda x: torch.exp(torch.exp(x)).sum(),
    "overflow": lambda x: torch.exp(100 * x.square()).sum(),
    "oscillation": lambda x: (x.square() - 10 * torch.cos(20 * x)).sum(),
    "fast oscillation": lambda x: torch.sin(1000 * x).sum() + x.square().sum(),
    "essential singularity": lambda x: torch.sin(1 / x).sum(),
    "power 3/2": lambda x: (x.abs() ** 1.5).sum(),
    "absolute value": lambda x: x.abs().sum(),
    "relu": lambda x: torch.relu(wave(x) * x).square().sum() + torch.relu(-x).sum(),
    "maximum": lambda x: (wave(x) * x).max() ** 2,
    "cliff": lambda x: x.square().sum() + 10 * (x.sum() > 1).to(x.dtype),
    "hole": lambda x: torch.where(x.square().sum() < 0.25, x.new_tensor(math.nan), x.square().sum()),
    "constant": lambda x: 0 * x.sum() + 3,
    "unrelated": lambda x: torch.ones((), dtype=x.dtype),
    "linear": lambda x: (wave(x) * x).sum(),
    "never defined": lambda x: (x * math.nan).sum(),
    "infinite": lambda x: (x * 0 + math.inf).sum(),
}
FUNCTIONS = SMOOTH | NASTY

coordinates = st.floats(-3, 3, allow_nan=False, width=32)
starts = st.lists(coordinates, min_size=1, max_size=6)
scales = st.sampled_from([1.0, 1.0, 1e-6, 1e6, 1e-3, 1e3, 1e-30, 1e30])
solvers = st.sampled_from([Auto(), Auto(), Auto(), SQP(), Auto(memory=1)])
dtypes = st.sampled_from([torch.float64, torch.float64, torch.float32])
budgets = st.sampled_from([1, 2, 3, 7, 15, 50])


def check(fun: Function, x: Tensor, solver: Solver, *, level_set: bool, max_hvps: int) -> TeleportResult:
    """Teleport, now and then twice; assert everything that is guaranteed of every result."""
    before = x.clone()
    calls = 0

    def counted(w: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return fun(w)

    result = teleport(counted, x, replace(solver_named(solver), max_hvps=max_hvps), level_set=level_set)
    assert torch.equal(x, before) or bool(x.isnan().any())
    y = result.x
    assert isinstance(y, Tensor)
    assert (y.shape, y.dtype, y.device) == (x.shape, x.dtype, x.device)
    assert not y.requires_grad
    assert y.data_ptr() != x.data_ptr()
    # What is reported is what the function says at the very tensor returned.
    w = y.clone().requires_grad_()
    value = fun(w)
    gradient = torch.autograd.grad(value, w)[0] if value.requires_grad else torch.zeros_like(w)
    assert same(float(value.detach()), result.value)
    largest = float(gradient.double().abs().max())
    largest = largest if 0.0 < largest < math.inf else 1.0
    norm = largest * float(torch.linalg.vector_norm(gradient.double() / largest))  # squares may leave the range
    assert same(norm, result.gradient_norm) or norm == pytest.approx(result.gradient_norm, rel=1e-6)
    # The cost is what was really spent: a gradient comes with its value.
    assert calls == result.cost.values + result.cost.gradients
    assert result.cost.hvps <= max_hvps
    if calls % 3 == 0:  # a third of them once more: nothing depends on what was before
        again = teleport(fun, x, replace(solver_named(solver), max_hvps=max_hvps), level_set=level_set)
        assert isinstance(again.x, Tensor)
        assert torch.equal(torch.nan_to_num(again.x), torch.nan_to_num(y))
        assert again.status is result.status
        assert replace(again.cost, seconds=0.0) == replace(result.cost, seconds=0.0)
    if result.status is TeleportStatus.NON_FINITE_START:
        assert torch.equal(torch.nan_to_num(y), torch.nan_to_num(x))
        return result
    slack = (1e-6 if isinstance(solver, SQP) else 0.0) * max(abs(result.value_start), torch.finfo(x.dtype).tiny)
    if level_set:
        eps = torch.finfo(x.dtype).eps
        resolution = 4.0 * eps * result.gradient_norm_start * float(x.double().norm())
        allowed = max(slack, max(1e-9, 100 * eps) * abs(result.value_start), resolution)
        assert abs(result.value - result.value_start) <= allowed
    assert result.value <= result.value_start + slack or level_set
    assert result.gradient_norm >= result.gradient_norm_start
    assert bool(torch.isfinite(y).all())
    if result.status in (TeleportStatus.STATIONARY_START, TeleportStatus.NO_FEASIBLE_GAIN):
        assert torch.equal(y, x)
        assert result.gain == 1.0
    if result.status is TeleportStatus.STATIONARY_START:
        assert result.gradient_norm == 0.0
    if result.status is TeleportStatus.CONVERGED and isinstance(solver, Auto) and x.dtype == torch.float64:
        moved = torch.linalg.vector_norm(y - x) + 1e-12 * torch.linalg.vector_norm(x)
        vanishing = abs(result.curvature) * float(moved) <= 1e-3 * norm
        assert abs(result.alignment) > 0.999 or vanishing
    assert result.message
    return result


def same(a: float, b: float) -> bool:
    """Equal, or both not a number."""
    return a == b or (math.isnan(a) and math.isnan(b))


@settings(max_examples=350)
@given(
    name=st.sampled_from(sorted(FUNCTIONS)),
    start=starts,
    solver=solvers,
    dtype=dtypes,
    f_scale=scales,
    x_scale=scales,
    level_set=st.booleans(),
    max_hvps=budgets,
)
def test_any_function(
    name: str,
    start: list[float],
    solver: Solver,
    dtype: torch.dtype,
    f_scale: float,
    x_scale: float,
    level_set: bool,
    max_hvps: int,
) -> None:
    x = (torch.tensor(start, dtype=torch.float64) / x_scale).to(dtype)
    check(
        lambda w: f_scale * FUNCTIONS[name](x_scale * w),
        x,
        solver,
        level_set=level_set,
        max_hvps=max_hvps,
    )


@settings(max_examples=200)
@given(
    left=st.sampled_from(sorted(FUNCTIONS)),
    right=st.sampled_from(sorted(SMOOTH)),
    combine=st.sampled_from(["sum", "product", "composition"]),
    start=st.lists(coordinates, min_size=1, max_size=4),
    mixing=st.integers(0, 5),
    solver=solvers,
    level_set=st.booleans(),
)
def test_combinations(
    left: str, right: str, combine: str, start: list[float], mixing: int, solver: Solver, level_set: bool
) -> None:
    """Sums, products and compositions in rotated coordinates."""
    x = torch.tensor(start, dtype=torch.float64)
    matrix = torch.randn(len(start), len(start), generator=torch.Generator().manual_seed(mixing), dtype=torch.float64)
    f, g = FUNCTIONS[left], SMOOTH[right]

    def combined(w: Tensor) -> Tensor:
        if combine == "sum":
            return f(matrix @ w) + g(w)
        if combine == "product":
            return f(matrix @ w) * g(w)
        return f(torch.tanh(matrix @ w) + g(w))

    check(combined, x, solver, level_set=level_set, max_hvps=20)


@settings(max_examples=100)
@given(
    entries=st.lists(st.floats(allow_nan=True, allow_infinity=True, width=64), min_size=1, max_size=3),
    name=st.sampled_from(sorted(FUNCTIONS)),
    solver=st.sampled_from([Auto(), SQP()]),
)
def test_any_start(entries: list[float], name: str, solver: Solver) -> None:
    """Starts of any size, infinite and undefined ones included, are answered by a status."""
    start = torch.tensor(entries, dtype=torch.float64)
    result = teleport(FUNCTIONS[name], start, replace(solver_named(solver), max_hvps=6))
    assert isinstance(result.status, TeleportStatus)
    if result.status is not TeleportStatus.NON_FINITE_START and bool(torch.isfinite(start).all()):
        assert result.gradient_norm >= result.gradient_norm_start


@pytest.mark.parametrize("solver", [Auto(), SQP()], ids=["auto", "sqp"])
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_once_per_device(name: str, solver: Solver, device: torch.device) -> None:
    start = torch.tensor([0.7, 0.4, 0.2], device=device, dtype=torch.float32)
    check(FUNCTIONS[name], start, solver, level_set=False, max_hvps=15)


def test_containers_keep_their_shape(device: torch.device) -> None:
    def loss(p: dict[str, Tensor]) -> Tensor:
        return (p["a"].square().sum() - p["b"].sum()) ** 2 + p["a"].sum() ** 2

    start = {"b": torch.ones(2, 2, device=device), "a": torch.full((3,), 0.5, device=device)}
    kept = {name: part.clone() for name, part in start.items()}
    result = teleport(loss, start)
    assert isinstance(result.x, dict)
    assert list(result.x) == ["b", "a"]
    assert all(result.x[name].shape == part.shape for name, part in start.items())
    assert all(torch.equal(start[name], part) for name, part in kept.items())
    assert float(loss(result.x)) == result.value <= result.value_start
    assert result.gain > 1.0
    listed = teleport(lambda p: loss({"b": p[0], "a": p[1]}), [start["b"], start["a"]])
    assert isinstance(listed.x, list)
    assert listed.gradient_norm == result.gradient_norm
    paired = teleport(lambda p: loss({"b": p[0], "a": p[1]}), (start["b"], start["a"]))
    assert isinstance(paired.x, tuple)


def test_scalar_tensor() -> None:
    result = teleport(lambda x: (x - 1) ** 4 + x, torch.tensor(0.5, dtype=torch.float64))
    assert isinstance(result.x, Tensor)
    assert result.x.shape == ()
