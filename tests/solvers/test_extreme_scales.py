"""Values, gradients and curvatures near the ends of the floating-point range never raise."""

from __future__ import annotations

import pytest
import torch

from levelport import TeleportStatus, teleport
from levelport.solvers import SOLVERS


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1.0, 1e20, 1e30])
def test_float32_quadratic_far_from_one(solver: str, scale: float) -> None:
    """‖∇f‖² and ∇²f ∇f leave the range of float32 here, although f, ∇f and ∇²f do not."""
    weights = torch.tensor([1.0, 4.0])
    result = teleport(lambda w: scale * (weights * w.square()).sum(), torch.tensor([1.0, 0.2]), solver)
    if solver == "auto":
        # f = scale (w1² + 4 w2²) has λ_max = 8 scale, so the largest gradient is sqrt(2 · 8 · 1.16) scale.
        assert result.status in (
            TeleportStatus.CONVERGED,
            TeleportStatus.STALLED,
        )  # 1e-6 is about the resolution of float32
        assert result.gradient_norm == pytest.approx(scale * (16 * 1.16) ** 0.5, rel=1e-4)
        assert result.curvature == pytest.approx(8 * scale, rel=1e-3)
    assert result.gain >= 1.0


@pytest.mark.parametrize("solver", SOLVERS)
def test_underflowing_second_derivative_is_no_missing_one(solver: str) -> None:
    """∇²f = 2e-50 is not a float32 number; nothing is wrong with the backward pass."""
    result = teleport(lambda w: (1e-25 * w).square().sum(), torch.tensor([1e25, 2e25]), solver)
    assert result.gain >= 1.0


@pytest.mark.bits
@pytest.mark.parametrize(
    ("solver", "level_set"),
    [(solver, mode) for solver in SOLVERS for mode in (False, True) if solver != "krylov" or not mode],
)
def test_linear_function(solver: str, level_set: bool) -> None:
    """The gradient is the same everywhere: every point is a KKT point with λ = 0. Krylov seeks none, and stays."""
    start = torch.tensor([1.0, -2.0], dtype=torch.float64)
    result = teleport(lambda w: 3 * w[0] - w[1], start, solver, level_set=level_set)
    expected = TeleportStatus.NO_FEASIBLE_GAIN if solver == "krylov" else TeleportStatus.CONVERGED
    assert result.status is expected
    assert result.gain == 1.0
    assert result.curvature == 0.0


@pytest.mark.parametrize("solver", [solver for solver in SOLVERS if solver != "krylov"])
def test_gradient_that_vanishes_on_the_way(solver: str) -> None:
    """A step that lands where ∇f = 0 is no iterate: the next update would divide by ‖∇f‖."""
    start = torch.tensor([0.1, 0.3], dtype=torch.float64)
    result = teleport(lambda w: torch.sin(1 / (1e25 * w)).sum(), start * 1e-25, solver, level_set=True)
    assert result.gain >= 1.0


def test_a_gradient_whose_inverse_is_no_number_of_the_dtype() -> None:
    """1/‖∇f‖ exceeds the largest float32 here, and torch refuses such a factor."""
    start = torch.tensor([-0.3, 1.0, -1.4, 1.4])
    gains = [
        teleport(lambda x, scale=scale: scale * torch.nn.functional.softplus(x).sum(), start).gain
        for scale in (1.0, 1e-39)
    ]
    assert gains[1] == pytest.approx(gains[0], rel=1e-2)
    assert gains[0] > 1.01


@pytest.mark.parametrize("start", [0.6952168604984715, 0.1, -1.0])
@pytest.mark.parametrize("factor", [1.0, 1e3, 1e20])
def test_trials_where_the_gradient_all_but_vanishes(factor: float, start: float) -> None:
    """Far out on a sigmoid ‖∇f‖ is less than 1e-300 of the start's: their ratio is 0, and has no logarithm."""
    result = teleport(lambda x: factor * torch.sigmoid(x).sum() ** 2, torch.tensor([start], dtype=torch.float64))
    assert result.gain >= 1.0
