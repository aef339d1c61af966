"""The test functions: known facts, and teleports against brute force over the sub-level set."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from levelport import SQP, Auto, TeleportResult, TeleportStatus, teleport
from levelport_lab.problems import functions
from levelport_lab.problems.functions import FUNCTIONS, function_named, second_order_huber

BOUNDED = ["booth", "goldstein-price", "rosenbrock", "himmelblau"]
"""Those with bounded sub-level sets; Beale's has a test of its own."""


def gradient(known: functions.TestFunction, points: Tensor) -> Tensor:
    """∇f at many points, one row each, in one backward pass."""
    w = points.clone().requires_grad_()
    (gradients,) = torch.autograd.grad(torch.func.vmap(known.function)(w).sum(), w)
    return gradients


def values(known: functions.TestFunction, points: Tensor) -> Tensor:
    return torch.func.vmap(known.function)(points)


def start_of(known: functions.TestFunction) -> Tensor:
    return torch.tensor(known.start, dtype=torch.float64)


def landing(known: functions.TestFunction, solver: Auto | SQP | None = None) -> tuple[TeleportResult, Tensor]:
    result = teleport(known.function, start_of(known), solver or Auto(max_hvps=100))
    assert isinstance(result.x, Tensor)
    return result, result.x


@pytest.mark.parametrize("name", FUNCTIONS)
def test_minimizers(name: str) -> None:
    known = FUNCTIONS[name]
    for minimizer in known.minimizers:
        w = torch.tensor(minimizer, dtype=torch.float64)
        assert float(known(w)) == pytest.approx(known.minimum, abs=1e-12)
        assert float(gradient(known, w[None]).norm()) <= 1e-6
    rng = np.random.default_rng(0)
    left, right, bottom, top = known.window
    points = rng.uniform([left, bottom], [right, top], size=(2000, 2))
    assert float(values(known, torch.from_numpy(points)).min()) >= known.minimum
    assert left <= known.start[0] <= right
    assert bottom <= known.start[1] <= top


@pytest.mark.parametrize("name", BOUNDED)
def test_no_higher_than_the_global_maximum(name: str) -> None:
    """A grid over the window gives the largest gradient of the sub-level set there, up to its spacing."""
    known = FUNCTIONS[name]
    result, x = landing(known)
    left, right, bottom, top = known.window
    wide = max(float((x - start_of(known)).abs().max()), 1.0)
    axes = [
        torch.linspace(min(left, float(x[0]) - wide), max(right, float(x[0]) + wide), 1501, dtype=torch.float64),
        torch.linspace(min(bottom, float(x[1]) - wide), max(top, float(x[1]) + wide), 1501, dtype=torch.float64),
    ]
    grid = torch.cartesian_prod(*axes)
    inside = grid[values(known, grid) <= result.value_start]
    norms = gradient(known, inside).norm(dim=1)
    best = float(norms.max())
    assert result.gradient_norm <= best * 1.05
    assert result.gradient_norm >= float(gradient(known, start_of(known)[None]).norm())


@pytest.mark.parametrize("name", BOUNDED)
def test_local_maximum_by_dense_sampling(name: str) -> None:
    """No point of the sub-level set near the result has a larger gradient, beyond what the sampling radius allows."""
    known = FUNCTIONS[name]
    result, x = landing(known)
    assert result.certificate.misalignment <= 1e-5  # rounding decides whether the last step is called convergence
    rng = np.random.default_rng(1)
    unit = torch.from_numpy(rng.normal(size=(40_000, 2)))
    for radius in (1e-2, 1e-3, 1e-4):
        ball = x + radius * float(x.norm() + 0.1) * unit
        inside = ball[values(known, ball) <= result.value_start]
        assert len(inside) > 100
        assert float(gradient(known, inside).norm(dim=1).max()) <= result.gradient_norm * (1 + 1e-7)


def test_goldstein_price_has_several_maxima() -> None:
    """From (0, 0) there is a local maximum of 5807.6; one above 9207 lies in neither of the two basins looked at."""
    result, _ = landing(FUNCTIONS["goldstein-price"])
    assert result.gradient_norm >= 5807.6 * (1 - 1e-6)


def test_beale_has_no_finite_solution() -> None:
    """Along w₂ = 1 - t/w₁ the value stays bounded while ∂f/∂w₂ grows like w₁: only the trust radius ends it."""
    known = FUNCTIONS["beale"]
    result, x = landing(known)
    assert result.status is TeleportStatus.TRUST_RADIUS
    assert result.value <= result.value_start
    valley = torch.tensor([[far, 1 - 0.9 / far] for far in (10.0, 100.0, 1000.0)], dtype=torch.float64)
    assert float(values(known, valley).max()) < result.value_start
    near = gradient(known, valley).norm(dim=1)
    assert float(near[2]) > 50 * float(near[0])
    assert abs(float(x[0])) > 50


def test_beale_stays_below_the_maximum_within_reach() -> None:
    """The strip around w₂ = 1 has a width of the order 1/|w₁|: a grid in (w₁, t) with t = w₁ (1 - w₂) sees it."""
    known = FUNCTIONS["beale"]
    result, x = landing(known)
    far = float((x - start_of(known)).norm())
    first, t = torch.cartesian_prod(
        torch.linspace(1 - far, 1 + far, 2000, dtype=torch.float64), torch.linspace(-20, 20, 1001, dtype=torch.float64)
    ).T
    grid = torch.stack([first, 1 - t / first], dim=1)
    ball = (grid - start_of(known)).norm(dim=1) <= far
    inside = grid[ball & (values(known, grid) <= result.value_start)]
    best = float(gradient(known, inside).norm(dim=1).max())
    assert best > 10 * float(gradient(known, start_of(known)[None]).norm())  # the grid does see the strip
    assert result.gradient_norm <= 1.05 * best


def test_booth_in_closed_form() -> None:
    result, x = landing(FUNCTIONS["booth"])
    assert result.gradient_norm == pytest.approx(57.62812, abs=1e-5)
    # The shortest axis of the level ellipse through (1, 3) points along (1, 1).
    offset = x - torch.tensor([1.0, 3.0], dtype=torch.float64)
    assert abs(float(offset[0] - offset[1])) <= 1e-4 * float(offset.norm())
    assert result.curvature == pytest.approx(18.0, rel=1e-6)


def test_huber_is_twice_differentiable_at_its_seams() -> None:
    """Value, slope and curvature agree from both sides of |t| = 1; the curvature at 0 is 3/2."""
    for t in (1.0, -1.0):
        for order in range(3):
            sides = []
            for nudge in (-1e-7, 1e-7):
                w = torch.tensor([t + nudge], dtype=torch.float64, requires_grad=True)
                derivative = second_order_huber(w)
                for _ in range(order):
                    (derivative,) = torch.autograd.grad(derivative.sum(), w, create_graph=True)
                sides.append(float(derivative.sum().detach()))
            assert sides[0] == pytest.approx(sides[1], abs=1e-6)
    w = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    hessian = torch.autograd.functional.hessian(lambda u: second_order_huber(u), w)
    assert float(hessian) == pytest.approx(1.5)


@pytest.mark.parametrize("solver", [Auto(), SQP()], ids=["auto", "sqp"])
def test_huber_plateau(solver: Auto | SQP) -> None:
    """Where all |wᵢ| ≥ 1 the gradient norm is at its maximum sqrt(2) and λ = 0."""
    start = torch.tensor([1.5, -2.0], dtype=torch.float64)
    result = teleport(second_order_huber, start, solver)
    assert result.status is TeleportStatus.CONVERGED
    assert result.curvature == 0.0
    assert torch.equal(result.x, start)  # type: ignore[arg-type]
    assert result.gradient_norm == pytest.approx(math.sqrt(2))


def test_huber_reaches_its_largest_gradient() -> None:
    """The largest on a fine grid over the sub-level set, up to the grid's spacing."""
    known = FUNCTIONS["huber"]
    result, _ = landing(known)
    grid = torch.cartesian_prod(*[torch.linspace(-2, 2, 1601, dtype=torch.float64)] * 2)
    inside = grid[values(known, grid) <= result.value_start]
    best = float(gradient(known, inside).norm(dim=1).max())
    assert result.gradient_norm == pytest.approx(best, rel=1e-2)
    assert result.gradient_norm >= best


@pytest.mark.parametrize("solver", [Auto(max_hvps=100), SQP(max_hvps=100)], ids=["auto", "sqp"])
def test_flat_huber_keeps_to_its_level(solver: Auto | SQP) -> None:
    """f depends on w₁ alone and grows with |w₁|: every point of the level has the same gradient norm."""
    known = FUNCTIONS["flat-huber"]
    result, x = landing(known, solver=solver)
    assert result.gain == pytest.approx(1.0, abs=1e-9)
    assert abs(float(x[0])) == pytest.approx(known.start[0], abs=1e-9)
    assert result.status is TeleportStatus.CONVERGED


@pytest.mark.parametrize("dimension", [2, 5, 20])
def test_rosenbrock_in_any_dimension(dimension: int) -> None:
    start = torch.linspace(-1, 1, dimension, dtype=torch.float64)
    result = teleport(FUNCTIONS["rosenbrock"].function, start, Auto(max_hvps=100))
    assert result.gain > 1.5
    assert result.value <= result.value_start


def test_misspelt_function() -> None:
    with pytest.raises(ValueError, match="'booth'"):
        function_named("boothe")
    with pytest.raises(ValueError, match="himmelblau"):
        function_named("zzz")
