"""What the theory of symmetries says, against brute force and finite numbers."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from levelport import ModuleObjective
from levelport.solvers.problem import TeleportProblem
from levelport.symmetries import Balance, Rescaling
from levelport.symmetries.scales import ScaleGroup


def network(*widths: int, seed: int = 0, samples: int = 12) -> tuple[nn.Sequential, ModuleObjective]:
    torch.manual_seed(seed)
    parts: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(widths):
        parts += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    module = nn.Sequential(*parts[:-1]).double()
    inputs, targets = torch.randn(samples, widths[0]).double(), torch.randn(samples, widths[-1]).double()
    return module, ModuleObjective(module, F.mse_loss, inputs, targets)


def start_of(objective: ModuleObjective) -> TeleportProblem:
    start = objective.at(objective.initial_point(), curvature=True)
    _ = start.value, start.gradient
    return TeleportProblem(objective, start)


def test_move_then_step_is_a_preconditioned_step() -> None:
    """D⁻¹ (D w - η D⁻ᵀ g) = w - η (DᵀD)⁻¹ g, so both points have the same f."""
    module, objective = network(4, 6, 5, 2)
    problem = start_of(objective)
    group = ScaleGroup.of(Rescaling(module).chain, objective, "test")
    scales = torch.linspace(0.3, 3.0, group.units).double()
    x, g, eta = problem.start.x, problem.start.gradient, 0.05
    moved = group.move(x, scales)
    after = moved - eta * objective.at(moved).gradient
    preconditioned = x - eta * g / group.stretch(scales).square()
    assert torch.allclose(group.move(preconditioned, scales), after, atol=1e-12)
    assert objective.at(after).value == pytest.approx(objective.at(preconditioned).value, rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_two_units_by_brute_force(seed: int) -> None:
    module, objective = network(3, 2, 1, seed=seed)
    problem = start_of(objective)
    group = ScaleGroup.of(Rescaling(module).chain, objective, "test")
    grid = torch.logspace(-1, 1, 21, base=3.0).double()
    best = max(
        objective.at(group.move(problem.start.x, torch.stack([a, b]))).gradient_norm
        for a, b in itertools.product(grid, grid)
    )
    found = objective.at(Rescaling(module, box=3.0).propose(problem)).gradient_norm
    assert found == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_deeper_networks_against_all_vertices(seed: int) -> None:
    """No change of one layer improves the vertex; the global maximum is near."""
    module, objective = network(3, 3, 3, 3, 1, seed=seed)
    problem = start_of(objective)
    group = ScaleGroup.of(Rescaling(module).chain, objective, "test")
    squares = problem.start.gradient.square()
    vertices = torch.tensor(list(itertools.product([0.5, 2.0], repeat=9))).double()
    best = max(float((squares / group.stretch(v).square()).sum()) for v in vertices) ** 0.5
    found = objective.at(Rescaling(module).propose(problem)).gradient_norm
    assert 0.9 * best <= found <= best * (1 + 1e-9)


def test_balance_has_least_norm_and_even_units() -> None:
    module, objective = network(4, 5, 6, 2)
    problem = start_of(objective)
    group = ScaleGroup.of(Rescaling(module).chain, objective, "test")
    x = Balance(module).propose(problem)
    into, out_of = group.sums(x.square())
    assert torch.allclose(into, out_of, rtol=1e-9)
    torch.manual_seed(1)
    for _ in range(50):
        other = group.move(x, torch.exp(0.2 * torch.randn(group.units)).double())
        assert float(other.norm()) > float(x.norm())
