"""What the theory of symmetries says, against brute force and finite numbers."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from levelport import ModuleObjective, teleport
from levelport.solvers.contract import Monitor, TeleportProblem
from levelport.symmetries import Balance, LinearGroup, NullSpace, RandomBasis, Rescaling
from levelport.symmetries.activation_group import _Chart
from levelport.symmetries.decrease import ascend_decrease
from levelport.symmetries.null_space import null_basis
from levelport.symmetries.scales import ScaleGroup


def network(
    *widths: int, seed: int = 0, samples: int = 12, linear: bool = False
) -> tuple[nn.Sequential, ModuleObjective]:
    torch.manual_seed(seed)
    parts: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(widths):
        parts += [nn.Linear(fan_in, fan_out), nn.Identity() if linear else nn.ReLU()]
    module = nn.Sequential(*parts[:-1]).double()
    inputs, targets = torch.randn(samples, widths[0]).double(), torch.randn(samples, widths[-1]).double()
    return module, ModuleObjective(module, F.mse_loss, inputs, targets)


def start_of(objective: ModuleObjective) -> TeleportProblem:
    start = objective.at(objective.initial_point(), curvature=True)
    _ = start.value, start.gradient
    return TeleportProblem(objective, start)


def predicted(objective: ModuleObjective, x: Tensor) -> float:
    point = objective.at(x)
    return point.gradient_norm**4 / (2.0 * float(torch.dot(point.gradient, point.hvp(point.gradient))))


def test_a_symmetry_then_a_gradient_step_is_a_preconditioned_step() -> None:
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


def test_the_same_for_a_dense_linear_symmetry() -> None:
    _, objective = network(3, 4, 2, linear=True)
    x, eta = objective.initial_point(), 0.03
    torch.manual_seed(5)
    G = torch.eye(4).double() + 0.3 * torch.randn(4, 4).double()

    def transform(x: Tensor, left: Tensor, right: Tensor) -> Tensor:
        W1, b1, W2, b2 = objective.structure.leaves(x)
        return torch.cat([(left @ W1).reshape(-1), left @ b1, (W2 @ right).reshape(-1), b2])

    moved = transform(x, G, torch.linalg.inv(G))
    after = moved - eta * objective.at(moved).gradient
    P = G.T @ G
    preconditioned = x - eta * transform(objective.at(x).gradient, torch.linalg.inv(P), P)
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


def test_balance_is_the_smallest_norm_and_evens_out_every_unit() -> None:
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


def test_linear_group_closed_form_beats_random_search_and_is_attained() -> None:
    module, objective = network(3, 2, 2, linear=True, seed=3)
    problem = start_of(objective)
    found = objective.at(LinearGroup(module, box=2.0).propose(problem)).gradient_norm
    W1, b1, W2, b2 = objective.structure.leaves(problem.start.x)
    best = 0.0
    for angle in torch.linspace(0, math.pi, 37).double():
        U = torch.stack([torch.stack([angle.cos(), -angle.sin()]), torch.stack([angle.sin(), angle.cos()])])
        for a, b in itertools.product([0.5, 1.0, 2.0], repeat=2):
            G = U @ torch.diag(torch.tensor([a, b]).double()) @ U.T
            x = torch.cat([(G @ W1).reshape(-1), G @ b1, (W2 @ torch.linalg.inv(G)).reshape(-1), b2])
            best = max(best, objective.at(x).gradient_norm)
    assert best <= found * (1 + 1e-12)
    assert found <= best * 1.01


@pytest.mark.parametrize("family", [Rescaling, LinearGroup])
def test_the_decrease_along_an_orbit_is_what_it_is_there(family: type[Rescaling] | type[LinearGroup]) -> None:
    """⟨g, u⟩²/(2⟨u, Hu⟩) at the start is ‖g‖⁴/(2gᵀHg) at the end; and the ascent raises it."""
    module, objective = network(4, 5, 3, 2, linear=family is LinearGroup, seed=2, samples=30)
    problem = start_of(objective)
    before = predicted(objective, problem.start.x)
    products = objective.cost.hvps
    x = family(module, goal="decrease").propose(problem)
    assert objective.cost.hvps - products <= problem.max_hvps
    assert predicted(objective, x) > 1.05 * before
    if family is Rescaling:
        u = problem.start.gradient / (x / problem.start.x).square()
        along = float(torch.dot(problem.start.gradient, u))
        foretold = along**2 / (2.0 * float(torch.dot(u, problem.start.hvp(u))))
        assert foretold == pytest.approx(predicted(objective, x), rel=1e-9)


def test_the_decrease_on_two_units_by_brute_force() -> None:
    module, objective = network(3, 2, 1, seed=1, samples=40)
    problem = start_of(objective)
    group = ScaleGroup.of(Rescaling(module).chain, objective, "test")
    grid = torch.linspace(-math.log(2), math.log(2), 13).double().exp()
    best = max(
        predicted(objective, group.move(problem.start.x, torch.stack([a, b]))) for a, b in itertools.product(grid, grid)
    )
    start, edge = problem.start, math.log(2)
    found = ascend_decrease(
        start,
        lambda s: start.gradient / group.stretch(s.exp()).square(),
        lambda s: s.clamp(-edge, edge),
        torch.zeros(2).double(),
        reach=edge,
        products=60,
    )
    assert predicted(objective, group.move(start.x, found.exp())) >= 0.99 * best


def test_null_space_is_empty_once_samples_exceed_the_width() -> None:
    torch.manual_seed(0)
    for samples in range(1, 15):
        data = torch.cat([torch.randn(samples, 9), torch.ones(samples, 1)], dim=1)
        assert null_basis(data, 0.0).shape == (10, max(0, 10 - samples))
    module, objective = network(4, 6, 5, 2, samples=50)
    result = teleport(objective, objective.initial_point(), NullSpace(module))
    # ReLU units that are off on all samples leave a null space at any number of them; the gradient does not see it.
    assert result.gain == pytest.approx(1.0, abs=1e-9)
    few, objective = network(4, 30, 30, 2, samples=10)
    assert teleport(objective, objective.initial_point(), NullSpace(few)).gain > 1.5


def test_a_tolerance_makes_room_and_the_rise_is_kept() -> None:
    module, objective = network(4, 20, 20, 2, samples=60)
    result = teleport(objective, objective.initial_point(), NullSpace(module, tau=0.05, rise=0.01))
    assert result.gain > 1.02
    assert result.value <= 1.01 * result.value_start


def test_the_group_around_an_activation_is_the_published_formula_once_samples_fill_the_layer() -> None:
    """U σ(Z) σ(GZ)⁺ by NumPy's pseudo-inverse, for a T of our own; with fewer samples G = I stays the identity."""
    module, objective = network(3, 4, 2, samples=40)
    chart = _Chart.of(module, start_of(objective))
    W, b, U, c = (p.detach().numpy() for p in module.parameters())
    rng = np.random.default_rng(0)
    T = 0.2 * rng.standard_normal((4, 4))
    Z = W @ objective.inputs.numpy().T + b[:, None]
    G = np.eye(4) + T
    expected = [G @ W, G @ b, U @ np.maximum(Z, 0) @ np.linalg.pinv(np.maximum(G @ Z, 0)), c]
    moved = chart.moved(torch.tensor(T).reshape(-1))
    assert np.allclose(moved.numpy(), np.concatenate([part.ravel() for part in expected]), atol=1e-12)
    module, objective = network(3, 12, 2, samples=5)
    problem = start_of(objective)
    chart = _Chart.of(module, problem)
    assert torch.equal(chart.moved(chart.zero), problem.start.x)


def test_the_slope_of_the_ascent_around_an_activation_against_differences() -> None:
    module, objective = network(3, 6, 5, 2, samples=4)
    problem = start_of(objective)
    chart = _Chart.of(module, problem)
    torch.manual_seed(2)
    T, D = (0.1 * torch.randn_like(chart.zero) for _ in range(2))
    point = objective.at(chart.moved(T), curvature=True)
    with torch.enable_grad():
        leaf = T.clone().requires_grad_()
        (slope,) = torch.autograd.grad(torch.dot(chart.moved(leaf), point.hessian_normal), leaf)
    there, back = (objective.at(chart.moved(T + h * D)).gradient_norm for h in (1e-6, -1e-6))
    assert float(torch.dot(slope, D)) == pytest.approx((there - back) / 2e-6, rel=1e-5)


def test_random_bases_draw_anew_and_repeat_with_the_seed() -> None:
    module, objective = network(3, 4, 1)
    problem = start_of(objective)
    solver = RandomBasis(module, seed=4)
    first = solver.propose(problem)
    assert torch.equal(first, solver.propose(problem))
    state = solver.solve(problem, Monitor(problem)).state
    assert not torch.equal(first, solver.propose(replace(problem, state=state)))
