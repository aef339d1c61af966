"""Module objectives: what moves, what must not, and chunks that add up."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from levelport import ModuleObjective, Objective, teleport
from levelport.solvers import Auto


def data(device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(23, 4, generator=generator, dtype=torch.float64)
    return X.to(device), (torch.arange(23) % 3).to(device)


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()


def by_hand(module: nn.Module, penalty: float = 0.0) -> tuple[float, Tensor, Tensor]:
    """Value, gradient and dense Hessian by torch's own transforms, with the parameters in one flat vector."""
    X, y = data()
    parameters = {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}
    sizes = [p.numel() for p in parameters.values()]

    def loss(flat: Tensor) -> Tensor:
        parts = flat.split(sizes)
        shaped = {name: part.view_as(p) for (name, p), part in zip(parameters.items(), parts, strict=True)}
        output = torch.func.functional_call(module, shaped, (X,))
        return F.cross_entropy(output, y) + penalty * flat.square().sum()

    flat = torch.cat([p.reshape(-1) for p in parameters.values()])
    return float(loss(flat)), torch.func.grad(loss)(flat), torch.autograd.functional.hessian(loss, flat)


def assert_equal_to(objective: Objective, x: Tensor, expected: tuple[float, Tensor, Tensor]) -> None:
    value, gradient, hessian = expected
    point = objective.at(x)
    assert point.value == pytest.approx(value, rel=1e-12)
    assert torch.allclose(point.gradient, gradient, rtol=1e-10, atol=1e-13)
    v = torch.linspace(-1, 1, x.numel(), dtype=torch.float64)
    assert torch.allclose(point.hvp(v), hessian @ v, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("chunk_size", [None, 1, 7, 22, 23, 100])
@pytest.mark.parametrize("penalty", [0.0, 0.1])
def test_whole_and_in_chunks(chunk_size: int | None, penalty: float) -> None:
    module = network()
    X, y = data()
    objective = ModuleObjective(module, F.cross_entropy, X, y, penalty=penalty, chunk_size=chunk_size)
    x = objective.initial_point()
    assert_equal_to(objective, x, by_hand(module, penalty))
    cost = objective.cost
    assert cost.hvps == 1
    assert cost.gradients == 1


def test_teleports_whole_and_in_chunks_alike(float64_device: torch.device) -> None:
    module = network().to(float64_device)
    X, y = data(float64_device)
    results = []
    for chunk_size in (None, 9):
        objective = ModuleObjective(module, F.cross_entropy, X, y, penalty=1e-2, chunk_size=chunk_size)
        results.append(teleport(objective, objective.initial_point(), Auto(max_hvps=15)))
    assert results[0].gradient_norm == pytest.approx(results[1].gradient_norm, rel=1e-6)
    assert results[0].gain > 1.0


class Tied(nn.Module):
    """The same matrix used twice, under two names."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Linear(4, 4, bias=False)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))


def test_tied_parameters_count_once() -> None:
    module = Tied().double()
    X, y = data()
    objective = ModuleObjective(module, F.cross_entropy, X, y)
    assert objective.dimension == 16 + 12 + 3
    x = objective.initial_point()

    def loss(flat: Tensor) -> Tensor:
        W, V, b = flat[:16].view(4, 4), flat[16:28].view(3, 4), flat[28:]
        return F.cross_entropy(torch.tanh(torch.tanh(X @ W.T) @ W.T) @ V.T + b, y)

    assert_equal_to(
        objective, x, (float(loss(x)), torch.func.grad(loss)(x), torch.autograd.functional.hessian(loss, x))
    )


def test_frozen_parameters_stay() -> None:
    module = network()
    module[0].weight.requires_grad_(False)
    X, y = data()
    objective = ModuleObjective(module, F.cross_entropy, X, y, penalty=0.1)
    assert objective.dimension == 6 + 18 + 3
    assert_equal_to(objective, objective.initial_point(), by_hand(module, 0.1))


def test_unused_parameters_have_no_gradient_but_a_penalty() -> None:
    module = network()
    module.spare = nn.Linear(2, 2).double()  # type: ignore[assignment]
    module.forward = lambda x: module[2](module[1](module[0](x)))  # type: ignore[method-assign]
    X, y = data()
    objective = ModuleObjective(module, F.cross_entropy, X, y, penalty=0.1)
    x = objective.initial_point()
    point = objective.at(x)
    assert torch.allclose(point.gradient[-6:], 0.2 * x[-6:])
    v = torch.ones_like(x)
    assert torch.allclose(point.hvp(v)[-6:], torch.full((6,), 0.2, dtype=torch.float64))


@pytest.mark.parametrize("chunk_size", [None, 8])
def test_nothing_of_the_module_is_touched(chunk_size: int | None) -> None:
    """Parameters, BatchNorm statistics (in training mode), gradients and mode are as before."""
    torch.manual_seed(2)
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3)).double().train()
    kept_gradient = torch.ones_like(module[0].weight)
    module[0].weight.grad = kept_gradient.clone()
    before = copy.deepcopy(module.state_dict())
    X, y = data()
    objective = ModuleObjective(module, F.cross_entropy, X, y, penalty=1e-2, chunk_size=chunk_size)
    result = teleport(objective, objective.initial_point(), Auto(max_hvps=10))
    assert result.gain > 1.0
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert torch.equal(module[0].weight.grad, kept_gradient)
    assert module[3].weight.grad is None
    assert module.training


def test_load_into_module() -> None:
    module = network()
    X, y = data()
    objective = ModuleObjective(module, F.cross_entropy, X, y)
    result = teleport(objective, objective.initial_point(), Auto(max_hvps=10))
    assert isinstance(result.x, Tensor)
    objective.load_into_module(result.x)
    assert torch.equal(objective.initial_point(), result.x)
    assert float(F.cross_entropy(module(X), y).detach()) == pytest.approx(result.value, rel=1e-12)
    assert torch.allclose(objective.predict(result.x, X), module(X).detach())


@pytest.mark.parametrize("chunk_size", [None, 9])
def test_an_objective_goes_to_another_process(chunk_size: int | None) -> None:
    X, y = data()
    objective = ModuleObjective(network(), F.cross_entropy, X, y, penalty=1e-2, chunk_size=chunk_size)
    x = objective.initial_point()
    gradient = objective.at(x).gradient
    there = pickle.loads(pickle.dumps(objective))
    assert torch.equal(there.initial_point(), x)
    torch.testing.assert_close(there.at(x).gradient, gradient)
