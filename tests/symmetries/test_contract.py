"""Symmetries as solvers: the verb, optimizers, budgets, bounds, and what they refuse."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from levelport import FunctionObjective, ModuleObjective, Teleported, Teleporter, TeleportStatus, teleport
from levelport.objectives import GradientDifferences
from levelport.optim import Every
from levelport.symmetries import Balance, Rescaling, SymmetrySolver

torch.manual_seed(0)


def pieces(dtype: torch.dtype = torch.float64) -> tuple[nn.Sequential, torch.Tensor, torch.Tensor, ModuleObjective]:
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(4, 30), nn.ReLU(), nn.Linear(30, 30), nn.ReLU(), nn.Linear(30, 8), nn.Linear(8, 2))
    module = module.to(dtype)
    x, y = torch.randn(20, 4, dtype=dtype), torch.randn(20, 2, dtype=dtype)
    return module, x, y, ModuleObjective(module, F.mse_loss, x, y)


def every_solver(module: nn.Module) -> list[SymmetrySolver]:
    return [Rescaling(module), Rescaling(module, box=1.5), Balance(module)]


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_moves_keep_value_and_budget(number: int, dtype: torch.dtype) -> None:
    module, _, _, objective = pieces(dtype)
    solver = every_solver(module)[number]
    result = teleport(objective, objective.initial_point(), replace(solver, max_hvps=12))
    assert result.value <= result.value_start + solver.slack(result.value_start, dtype)
    assert result.value == objective.at(result.x).value
    assert not torch.equal(result.x, objective.initial_point())
    assert result.cost.hvps <= 12
    if solver.keeps_guarantee:
        assert result.gain >= 1.0
    else:
        assert result.status is TeleportStatus.MOVED
    assert result.nit >= 1


def test_rescaling_costs_no_extra_pass() -> None:
    """A gradient and a product at either end, the second value of the check for noise: the move itself is free."""
    module, _, _, objective = pieces()
    cost = teleport(objective, objective.initial_point(), Rescaling(module)).cost
    assert (cost.values, cost.gradients, cost.hvps) == (1, 2, 2)


@pytest.mark.parametrize("number", range(3))
def test_radius_binds(number: int) -> None:
    module, _, _, objective = pieces()
    x = objective.initial_point()
    result = teleport(objective, x, replace(every_solver(module)[number], radius=0.3, max_hvps=12))
    assert 0.0 < float((result.x - x).norm()) <= 0.3


@pytest.mark.parametrize("number", range(3))
def test_teleporter_moves_as_the_verb_does(number: int) -> None:
    module, x, y, objective = pieces(torch.float32)
    expected = teleport(objective, objective.initial_point(), replace(every_solver(module)[number], max_hvps=12))
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
    solver = every_solver(module)[number]
    teleporter = Teleporter(optimizer, Every(2), solver=replace(solver, max_hvps=12), first_step="optimizer")
    result = teleporter.maybe(lambda: F.mse_loss(module(x), y))
    assert result is not None
    assert result.gain == pytest.approx(expected.gain, rel=1e-3)
    assert torch.allclose(torch.cat([p.detach().reshape(-1) for p in module.parameters()]), result.teleport.x)


def test_teleported_survives_a_deepcopy() -> None:
    module, x, y, _ = pieces()
    for solver in (Rescaling(module), Balance(module)):
        optimizer = Teleported(torch.optim.SGD(module.parameters(), lr=1e-3), Every(3), solver=solver)
        optimizer.step(lambda: F.mse_loss(module(x), y))
        module_copy, optimizer_copy = copy.deepcopy((module, optimizer))
        for m, o in ((module, optimizer), (module_copy, optimizer_copy)):
            for _ in range(4):
                loss = o.step(lambda m=m: F.mse_loss(m(x), y))
            assert torch.isfinite(torch.as_tensor(loss))
        assert all(torch.equal(a, b) for a, b in zip(module.parameters(), module_copy.parameters(), strict=True))


def test_wrappers_and_parameter_groups() -> None:
    module, x, y, objective = pieces()
    assert teleport(GradientDifferences(objective), objective.initial_point(), Rescaling(module)).gain > 1.0
    groups = [{"params": list(module[2].parameters())}, {"params": [*module[0].parameters(), *module[4:].parameters()]}]
    optimizer = torch.optim.SGD(groups, lr=1e-3)
    result = Teleporter(optimizer, solver=Rescaling(module)).teleport(lambda: F.mse_loss(module(x), y))
    assert result.teleport.value == result.teleport.value_start
    assert result.gain > 1.0


def test_moves_that_raise_a_penalty_are_refused() -> None:
    module, x, y, _ = pieces()
    objective = ModuleObjective(module, F.mse_loss, x, y, penalty=1.0)
    larger_weights = Rescaling(module, box=4.0)
    result = teleport(objective, objective.initial_point(), larger_weights)
    assert result.status is TeleportStatus.NO_FEASIBLE_GAIN
    assert "it would change f" in result.message
    balanced = teleport(objective, objective.initial_point(), Balance(module))
    assert balanced.value < balanced.value_start


def test_wrong_modules_and_settings_are_refused() -> None:
    module, _, _, objective = pieces()
    with pytest.raises(ValueError, match=r"parameter '0.weight' of Rescaling's module is none"):
        teleport(objective, objective.initial_point(), Rescaling(copy.deepcopy(module)))
    flat = torch.ones(3, dtype=torch.float64)
    with pytest.raises(ValueError, match="has none"):
        teleport(FunctionObjective(lambda w: (w**4).sum(), flat), flat, Rescaling(module))
    for make, words in [
        (lambda: Rescaling(module, box=1.0), "box must exceed 1"),
        (lambda: Rescaling(module, box=float("inf")), "box must be finite"),
        (lambda: Balance(module, box=float("inf")), "box must be finite"),
    ]:
        with pytest.raises(ValueError, match=words):
            make()


@pytest.mark.parametrize("number", range(3))
def test_moves_in_a_metric_keep_outputs(number: int) -> None:
    """Scaling units commutes with scaling weights."""
    module, x, _, objective = pieces()
    start, solver = objective.initial_point(), every_solver(module)[number]
    metric = 0.1 + torch.rand(len(start), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    result = teleport(objective, start, replace(solver, max_hvps=12), metric=metric)
    outputs = module(x)
    objective.load_into_module(result.x)
    torch.testing.assert_close(module(x), outputs)
    assert not torch.equal(result.x, start)


def test_one_product_makes_no_move() -> None:
    module, _, _, objective = pieces()
    for solver in every_solver(module):
        result = teleport(objective, objective.initial_point(), replace(solver, max_hvps=1))
        assert result.status is TeleportStatus.BUDGET_SPENT
        assert torch.equal(result.x, objective.initial_point())


def test_weights_frozen_later_keep_their_places() -> None:
    """The objective moves what was trainable when it was made."""
    module, _, _, objective = pieces()
    module[0].requires_grad_(False)
    result = teleport(objective, objective.initial_point(), Balance(module, layers=["2", "4"]))
    assert result.status is TeleportStatus.MOVED
    assert result.value == pytest.approx(result.value_start, rel=1e-12)


@pytest.mark.parametrize("layers", ["024", ["0", "2", "2"]])
def test_declared_layers_must_be_different_names(layers: object) -> None:
    module, _, _, _ = pieces()
    with pytest.raises(ValueError, match="different names"):
        Rescaling(module, layers=layers)  # type: ignore[arg-type]
