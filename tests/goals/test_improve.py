"""``improve`` against closed forms, with modules and live parameters."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import levelport
from levelport import ModuleObjective, ObjectiveError
from levelport.goals import Distance, ImproveStatus, Norm


def product(w: Tensor) -> Tensor:
    return (w[0] * w[1] - 1.0) ** 2


def test_smallest_norm_on_a_hyperbola() -> None:
    """w₀w₁ ≥ 1 - √rise has its smallest norm at equal entries: 2 (1 - √rise)."""
    result = levelport.improve(product, torch.tensor([4.0, 0.25], dtype=torch.float64), Norm(), rise=1e-4)
    assert result.status is ImproveStatus.CERTIFIED
    assert result.goal == pytest.approx(1.98, rel=1e-6)
    assert result.price == pytest.approx(1.0 / 1e-2, rel=1e-3)
    assert all(row.value <= result.level for row in result.trace)
    goals = [row.goal for row in result.trace]
    assert goals == sorted(goals, reverse=True)


def test_maximize_on_a_ball() -> None:
    x = torch.tensor([4.0, 0.25])
    result = levelport.improve(lambda v: (v**2).sum(), x, lambda v: v.sum(), maximize=True)
    assert result.success
    assert result.goal == pytest.approx((2.0 * 16.0625) ** 0.5, rel=1e-5)


def test_interior_stationary_point() -> None:
    result = levelport.improve(lambda v: (v**2).sum(), torch.tensor([4.0, 0.25]), Distance(torch.ones(2)))
    assert result.status is ImproveStatus.INTERIOR
    assert result.price == 0.0


def test_nothing_to_gain_returns_the_start() -> None:
    x = torch.tensor([4.0, 0.25])
    result = levelport.improve(lambda v: (v**2).sum(), x, lambda v: (v**2).sum(), maximize=True)
    assert torch.equal(result.x, x)
    assert result.value <= result.level


def test_module_objective_leaves_the_module_alone() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
    inputs, targets = torch.randn(40, 3), torch.randn(40, 1)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    objective = ModuleObjective(module, nn.functional.mse_loss, inputs, targets)
    result = levelport.improve(objective, objective.initial_point(), Norm(), rise=0.01, max_cost=100)
    assert result.goal < result.goal_start
    assert result.value <= result.level
    assert objective.at(result.x).value == result.value
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())


def test_bad_arguments_are_named() -> None:
    x = torch.ones(2)
    with pytest.raises(ValueError, match="rise must not be negative"):
        levelport.improve(product, x, Norm(), rise=-1.0)
    with pytest.raises(ValueError, match="goal must be a function"):
        levelport.improve(product, x, 3.0)  # type: ignore[arg-type]
    with pytest.raises(ObjectiveError, match="pass the module itself"):
        levelport.improve(levelport.Batches(lambda a: a.sum(), [(x,)]), x, Norm())


def test_non_finite_start_is_a_status() -> None:
    result = levelport.improve(lambda v: v.log().sum(), -torch.ones(2), Norm())
    assert result.status is ImproveStatus.NON_FINITE_START
