"""Symmetries as solvers: the verb, optimizers, budgets, bounds, and what they refuse."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from levelport import FunctionObjective, ModuleObjective, Teleported, Teleporter, TeleportStatus, teleport
from levelport.objectives import GradientDifferences
from levelport.objectives.distributed import DistributedObjective
from levelport.optim import Every
from levelport.symmetries import (
    ActivationGroup,
    Balance,
    LinearGroup,
    NullSpace,
    RandomBasis,
    Rescaling,
    SymmetrySolver,
)
from levelport.symmetries.binding import distributed

torch.manual_seed(0)


def pieces(dtype: torch.dtype = torch.float64) -> tuple[nn.Sequential, torch.Tensor, torch.Tensor, ModuleObjective]:
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(4, 30), nn.ReLU(), nn.Linear(30, 30), nn.ReLU(), nn.Linear(30, 8), nn.Linear(8, 2))
    module = module.to(dtype)
    x, y = torch.randn(20, 4, dtype=dtype), torch.randn(20, 2, dtype=dtype)
    return module, x, y, ModuleObjective(module, F.mse_loss, x, y)


def everyone(module: nn.Module) -> list[SymmetrySolver]:
    return [
        Rescaling(module),
        Rescaling(module, box=1.5, goal="decrease"),
        Balance(module),
        RandomBasis(module),
        LinearGroup(module),
        LinearGroup(module, goal="decrease"),
        NullSpace(module, steps=3),
        ActivationGroup(module, rise=0.05, steps=3),  # 20 samples meet a layer of 8 units
    ]


@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_verb_checks_every_move(number: int, dtype: torch.dtype) -> None:
    module, _, _, objective = pieces(dtype)
    solver = everyone(module)[number]
    result = teleport(objective, objective.initial_point(), replace(solver, max_hvps=12))
    assert result.value <= result.value_start + solver.slack(result.value_start, dtype)
    assert result.value == objective.at(result.x).value
    assert not torch.equal(result.x, objective.initial_point())
    assert result.cost.hvps <= 12
    if solver.keeps_guarantee:
        assert result.gain >= 1.0
    elif number in (1, 5):
        assert result.predicted_gain > 1.0
        assert result.status is TeleportStatus.MOVED
    assert result.nit >= 1


def test_the_bill_of_the_closed_form() -> None:
    """A gradient and a product at either end, the second value of the check for noise: the move itself is free."""
    module, _, _, objective = pieces()
    cost = teleport(objective, objective.initial_point(), Rescaling(module)).cost
    assert (cost.values, cost.gradients, cost.hvps) == (1, 2, 2)


@pytest.mark.parametrize("number", range(8))
def test_the_radius_binds(number: int) -> None:
    module, _, _, objective = pieces()
    x = objective.initial_point()
    result = teleport(objective, x, replace(everyone(module)[number], radius=0.3, max_hvps=12))
    assert 0.0 < float((result.x - x).norm()) <= 0.3


@pytest.mark.parametrize("number", range(8))
def test_optimizers_take_them(number: int) -> None:
    module, x, y, objective = pieces(torch.float32)
    expected = teleport(objective, objective.initial_point(), replace(everyone(module)[number], max_hvps=12))
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
    solver = everyone(module)[number]
    teleporter = Teleporter(optimizer, Every(2), solver=replace(solver, max_hvps=12), first_step="optimizer")
    result = teleporter.maybe(lambda: F.mse_loss(module(x), y))
    assert result is not None
    assert result.gain == pytest.approx(expected.gain, rel=1e-3)
    assert torch.allclose(torch.cat([p.detach().reshape(-1) for p in module.parameters()]), result.teleport.x)


def test_teleported_trains_and_survives_a_copy() -> None:
    module, x, y, _ = pieces()
    for solver in (Rescaling(module), RandomBasis(module)):
        optimizer = Teleported(torch.optim.SGD(module.parameters(), lr=1e-3), Every(3), solver=solver)
        optimizer.step(lambda: F.mse_loss(module(x), y))
        module_copy, optimizer_copy = copy.deepcopy((module, optimizer))
        for m, o in ((module, optimizer), (module_copy, optimizer_copy)):
            for _ in range(4):
                loss = o.step(lambda m=m: F.mse_loss(m(x), y))
            assert torch.isfinite(torch.as_tensor(loss))
        assert all(torch.equal(a, b) for a, b in zip(module.parameters(), module_copy.parameters(), strict=True))


def test_it_works_through_wrappers_and_parameter_groups() -> None:
    module, x, y, objective = pieces()
    assert teleport(GradientDifferences(objective), objective.initial_point(), Rescaling(module)).gain > 1.0
    groups = [{"params": list(module[2].parameters())}, {"params": [*module[0].parameters(), *module[4:].parameters()]}]
    optimizer = torch.optim.SGD(groups, lr=1e-3)
    result = Teleporter(optimizer, solver=Rescaling(module)).teleport(lambda: F.mse_loss(module(x), y))
    assert result.teleport.value == result.teleport.value_start
    assert result.gain > 1.0


def test_a_penalty_is_part_of_f_and_keeps_a_move_from_raising_it() -> None:
    module, x, y, _ = pieces()
    objective = ModuleObjective(module, F.mse_loss, x, y, penalty=1.0)
    result = teleport(objective, objective.initial_point(), RandomBasis(module))
    assert result.status is TeleportStatus.NO_FEASIBLE_GAIN
    assert "it would change f" in result.message
    balanced = teleport(objective, objective.initial_point(), Balance(module))
    assert balanced.value < balanced.value_start


def test_strangers_are_refused_by_a_sentence() -> None:
    module, _, _, objective = pieces()
    with pytest.raises(ValueError, match=r"parameter '0.weight' of Rescaling's module is none"):
        teleport(objective, objective.initial_point(), Rescaling(copy.deepcopy(module)))
    flat = torch.ones(3, dtype=torch.float64)
    with pytest.raises(ValueError, match="has none"):
        teleport(FunctionObjective(lambda w: (w**4).sum(), flat), flat, Rescaling(module))
    for make, words in [
        (lambda: Rescaling(module, box=1.0), "box must exceed 1"),
        (lambda: Rescaling(module, box=float("inf")), "box must be finite"),
        (lambda: Rescaling(module, goal="balance"), "goal must be"),  # type: ignore[arg-type]
        (lambda: RandomBasis(module, spread=1.0), "spread must lie between"),
        (lambda: NullSpace(module, tau=-1.0), "tau must"),
        (lambda: NullSpace(module, reach=float("inf")), "reach must be finite"),
        (lambda: ActivationGroup(module, reach=1.0), "reach must"),
    ]:
        with pytest.raises(ValueError, match=words):
            make()


@pytest.mark.parametrize("number", range(8))
def test_in_a_metric_moves_are_symmetries_or_are_refused(number: int) -> None:
    """Scaling units commutes with scaling weights; mixing them does not, and would change f without a word."""
    module, x, _, objective = pieces()
    start, solver = objective.initial_point(), everyone(module)[number]
    metric = 0.1 + torch.rand(len(start), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    if isinstance(solver, Rescaling | Balance | RandomBasis):
        result = teleport(objective, start, replace(solver, max_hvps=12), metric=metric)
        outputs = module(x)
        objective.load_into_module(result.x)
        torch.testing.assert_close(module(x), outputs)
        assert not torch.equal(result.x, start)
    else:
        with pytest.raises(ValueError, match="mixes weights"):
            teleport(objective, start, replace(solver, max_hvps=12), metric=metric)


def test_each_says_on_what_it_is_exact() -> None:
    module, *_ = pieces()
    said = {type(s).__name__: s.exact_on for s in everyone(module)}
    assert said.pop("NullSpace") == "these inputs"
    assert said.pop("ActivationGroup") == "approximately"
    assert ActivationGroup(module).exact_on == "these inputs"
    assert set(said.values()) == {"all inputs"}
    assert NullSpace(module, tau=1e-3).exact_on == "approximately"


def test_one_product_buys_nothing_but_the_certificate() -> None:
    module, _, _, objective = pieces()
    for solver in itertools.islice(everyone(module), 8):
        result = teleport(objective, objective.initial_point(), replace(solver, max_hvps=1))
        assert result.status is TeleportStatus.BUDGET_SPENT
        assert torch.equal(result.x, objective.initial_point())


def test_a_move_that_leads_nowhere_is_none() -> None:
    """Where f bends down along the gradient no decrease can be predicted, and with two products none is looked for."""
    module, x, y, objective = pieces()
    concave = ModuleObjective(module, lambda output, target: -F.mse_loss(output, target), x, y)
    for f, products, status in ((concave, 50, TeleportStatus.STALLED), (objective, 2, TeleportStatus.BUDGET_SPENT)):
        result = teleport(f, f.initial_point(), replace(Rescaling(module, goal="decrease"), max_hvps=products))
        assert torch.equal(result.x, f.initial_point())
        assert result.status is status
        assert not result.success
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3, momentum=0.9)
    teleporter = Teleporter(
        optimizer,
        Every(1),
        solver=replace(Rescaling(module, goal="decrease"), max_hvps=2),
        momentum="reset",
    )
    F.mse_loss(module(x), y).backward()
    optimizer.step()
    teleporter.maybe(lambda: F.mse_loss(module(x), y))
    assert teleporter.teleports == 0
    assert all("momentum_buffer" in optimizer.state[p] for p in module.parameters())


def test_the_trace_ends_at_the_point_returned_and_the_message_says_why() -> None:
    module, _, _, objective = pieces()
    for solver in (NullSpace(module, steps=3), ActivationGroup(module, rise=0.05, steps=3)):
        result = teleport(objective, objective.initial_point(), replace(solver, max_hvps=200))
        assert result.trace[-1].gradient_norm == result.gradient_norm
        assert result.status is TeleportStatus.BUDGET_SPENT
        assert "by the 3 steps that were asked for" in result.message


def test_weights_frozen_later_stay_in_their_places() -> None:
    """The objective moves what was trainable when it was made."""
    module, _, _, objective = pieces()
    module[0].requires_grad_(False)
    result = teleport(objective, objective.initial_point(), RandomBasis(module, layers=["2", "4"]))
    assert result.status is TeleportStatus.MOVED
    assert result.value == pytest.approx(result.value_start, rel=1e-12)


def test_ranks_are_seen_under_wrappers() -> None:
    """NullSpace and ActivationGroup refuse them: every rank would project by its own inputs."""
    _, _, _, objective = pieces()
    ranks = object.__new__(DistributedObjective)  # without a process group
    vars(ranks).update(vars(objective), local=objective, deterministic=True)
    assert distributed(ranks)
    assert distributed(GradientDifferences(ranks))
    assert not distributed(GradientDifferences(objective))


@pytest.mark.parametrize("layers", ["024", ["0", "2", "2"]])
def test_declared_layers_are_names(layers: object) -> None:
    module, _, _, _ = pieces()
    with pytest.raises(ValueError, match="different names"):
        Rescaling(module, layers=layers)  # type: ignore[arg-type]


def test_inputs_that_are_passed_by_name() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden, self.last = nn.Linear(6, 9, dtype=torch.float64), nn.Linear(9, 1, dtype=torch.float64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(torch.tanh(self.hidden(input=x)))

    module = Named()
    x, y = torch.randn(4, 6, dtype=torch.float64), torch.randn(4, 1, dtype=torch.float64)
    objective = ModuleObjective(module, F.mse_loss, x, y)
    assert teleport(objective, objective.initial_point(), NullSpace(module, steps=2)).gain > 1.0
