"""On convex quadratics the global maximum sqrt(2 λ_max (f - f*)) is known, and must be reached."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from tests.functions import Quadratic, booth
from torch import Tensor

from levelport import Auto, TeleportStatus, teleport
from levelport.solvers import solver_named
from levelport.solvers.problem import Certificate, TeleportProblem, is_kkt

EXACT = Auto(memory=100)


def spectrum(kind: str, d: int, condition: float, seed: int) -> Tensor:
    """d positive eigenvalues between 1/condition and 1."""
    generator = torch.Generator().manual_seed(seed)
    uniform = torch.rand(d, generator=generator, dtype=torch.float64)
    if kind == "logarithmic":
        values = condition ** (-uniform)
    elif kind == "uniform":
        values = 1 / condition + (1 - 1 / condition) * uniform
    elif kind == "clustered":  # three groups, 1 % wide
        values = condition ** (-torch.floor(3 * uniform) / 2) * (1 - 0.01 * uniform)
    else:  # repeated: three values, each many times
        values = condition ** (-torch.floor(3 * uniform) / 2)
    return values / values.max()


@pytest.mark.parametrize("condition", [1.0, 1e2, 1e5, 1e8])
@pytest.mark.parametrize("kind", ["logarithmic", "uniform", "clustered", "repeated"])
@pytest.mark.parametrize("d", [1, 2, 3, 10, 40, 100])
def test_global_maximum(d: int, kind: str, condition: float) -> None:
    quadratic = Quadratic.random(spectrum(kind, d, condition, seed=d), seed=d, minimum=0.5)
    start = torch.randn(d, generator=torch.Generator().manual_seed(d + 1), dtype=torch.float64)
    result = teleport(quadratic, start, replace(solver_named(EXACT), max_hvps=1000, tol=1e-9))
    assert result.gradient_norm == pytest.approx(quadratic.largest_gradient_norm(start), rel=1e-6)
    assert result.value <= result.value_start


@pytest.mark.parametrize(("condition", "kind"), [(1e2, "uniform"), (1e8, "logarithmic"), (1e8, "clustered")])
def test_global_maximum_in_500_dimensions(condition: float, kind: str) -> None:
    quadratic = Quadratic.random(spectrum(kind, 500, condition, seed=7), seed=7)
    start = torch.randn(500, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    result = teleport(quadratic, start, replace(solver_named(EXACT), max_hvps=1000, tol=1e-5))
    assert result.status is TeleportStatus.CONVERGED
    assert result.gradient_norm == pytest.approx(quadratic.largest_gradient_norm(start), rel=1e-6)


@pytest.mark.parametrize("condition", [1e1, 1e2, 1e4, 1e8])
@pytest.mark.parametrize("d", [2, 10, 20, 100, 500])
def test_default_settings(d: int, condition: float) -> None:
    """With 50 products and a KKT tolerance of 1e-6: 1e-5 up to 20 dimensions, 1e-3 beyond.

    The tolerance bounds the angle between ∇f and ∇²f ∇f, which flat directions hardly turn.
    """
    quadratic = Quadratic.random(spectrum("logarithmic", d, condition, seed=d), seed=d)
    start = torch.randn(d, generator=torch.Generator().manual_seed(d + 1), dtype=torch.float64)
    result = teleport(quadratic, start)
    accuracy = 1e-5 if d <= 20 else 1e-3
    assert result.gradient_norm == pytest.approx(quadratic.largest_gradient_norm(start), rel=accuracy)


@pytest.mark.parametrize("share", [1e-2, 1e-4, 1e-6])
def test_start_with_a_tiny_component_along_the_steepest_axis(share: float) -> None:
    """The Krylov space sees v_max only through that component; enough steps amplify it."""
    eigenvalues = torch.logspace(0, -4, 20, dtype=torch.float64)
    quadratic = Quadratic.random(eigenvalues, seed=3)
    coordinates = torch.randn(20, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    coordinates[0] = share
    start = quadratic.minimizer + quadratic.eigenvectors @ coordinates
    result = teleport(quadratic, start, replace(solver_named(EXACT), max_hvps=500))
    assert result.gradient_norm == pytest.approx(quadratic.largest_gradient_norm(start), rel=1e-6)


@pytest.mark.parametrize("index", [0, 1, 4])
def test_start_on_an_eigenvector_is_a_kkt_point(index: int) -> None:
    """H g = λ g holds there, so it is returned as it is; any gain that rounding lets it find is welcome."""
    quadratic = Quadratic.random(torch.tensor([8.0, 4.0, 2.0, 1.0, 0.5], dtype=torch.float64), seed=5)
    start = quadratic.minimizer + 3.0 * quadratic.eigenvectors[:, index]
    result = teleport(quadratic, start)
    assert result.status is TeleportStatus.CONVERGED
    assert result.alignment == pytest.approx(1.0, abs=1e-12)
    if index == 0:
        assert result.gain == pytest.approx(1.0, abs=1e-12)


def test_certificate_of_the_solution() -> None:
    """At the maximum λ = λ_max, the alignment is 1, and one gradient step of length 1/λ is the Newton step."""
    quadratic = Quadratic.random(torch.tensor([10.0, 3.0, 1.0], dtype=torch.float64), seed=6)
    start = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    result = teleport(quadratic, start, Auto(tol=1e-10))
    assert isinstance(result.x, Tensor)
    assert result.curvature == pytest.approx(10.0, rel=1e-10)
    assert result.kkt_residual * result.gradient_norm <= 1e-8
    landed = result.x - quadratic.at(result.x).gradient / result.curvature
    assert torch.allclose(landed, quadratic.minimizer, atol=1e-8)


def test_booth_teleport_and_one_step_land_on_the_minimizer(float64_device: torch.device) -> None:
    start = torch.tensor([7.5, -4.0], dtype=torch.float64, device=float64_device)
    result = teleport(booth, start, Auto(tol=1e-9))
    assert isinstance(result.x, Tensor)
    assert result.x.device == start.device
    # f(7.5, -4) = 7.5² + 6² = 92.25 and λ_max = 18.
    assert result.gradient_norm == pytest.approx(math.sqrt(2 * 18 * 92.25), rel=1e-9)
    w = result.x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(booth(w), w)
    landed = result.x - gradient / result.curvature
    assert landed.tolist() == pytest.approx([1.0, 3.0], abs=1e-7)


def test_singular_quadratic() -> None:
    """Directions of zero curvature neither help nor hurt."""
    eigenvalues = torch.tensor([4.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    quadratic = Quadratic.random(eigenvalues, seed=9)
    start = torch.tensor([1.0, 2.0, -1.0, 0.3], dtype=torch.float64)
    result = teleport(quadratic, start)
    assert result.gradient_norm == pytest.approx(quadratic.largest_gradient_norm(start), rel=1e-6)


def test_float32() -> None:
    eigenvalues = torch.logspace(0, -3, 15)
    quadratic = Quadratic.random(eigenvalues, seed=10)
    start = torch.randn(15, generator=torch.Generator().manual_seed(11))
    result = teleport(quadratic, start)
    assert result.gradient_norm == pytest.approx(quadratic.largest_gradient_norm(start), rel=1e-4)
    assert result.value <= result.value_start


def test_a_small_curvature_is_not_taken_for_none() -> None:
    """Between the two flattest axes H n is 1e-9 of λ_max, and still no KKT point with λ = 0."""
    spectrum = torch.tensor([1.0, 2.0, 1e9], dtype=torch.float64)
    objective = Quadratic(spectrum, torch.eye(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64))
    point = objective.at(torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64))
    assert Certificate.at(point).curvature < 1e-8 * 1e9
    assert not is_kkt(point, TeleportProblem(objective, point), on_level=True, length=math.sqrt(2.0))
