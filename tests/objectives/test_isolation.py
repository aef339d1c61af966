"""Evaluations leave no trace: in buffers of modules, in copies that autocast keeps, or in hooks of gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from levelport import Every, Never, ObjectiveError, Teleported, Teleporter, teleport
from levelport.objective import NotDeterministicError
from levelport.objectives import FunctionObjective, ModuleObjective
from levelport.objectives.isolation import isolated
from levelport.objectives.parameters import ParametersObjective
from levelport.optim import ArmijoSGD
from levelport.optim.closures import StepLoss
from levelport.optim.torch_optimizer import OptimizerSnapshot
from levelport.solvers import Auto

X = torch.linspace(-1.0, 1.0, 32).reshape(8, 4)
Y = X.square().sum(dim=1, keepdim=True)
CPU = torch.device("cpu")


def normed() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Tanh(), nn.Linear(3, 1))


def loss_of(network: Callable[[Tensor], Tensor]) -> Callable[[], Tensor]:
    return lambda: (network(X) - Y).square().mean()


class Unchanged:
    """Compares the buffers of a module with what they were: the same tensors, with the same numbers."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._buffers = dict(module.named_buffers(remove_duplicate=False))
        self._numbers = copy.deepcopy(self._buffers)

    def check(self) -> None:
        now = dict(self._module.named_buffers(remove_duplicate=False))
        assert now.keys() == self._buffers.keys()
        for name, buffer in now.items():
            assert buffer is self._buffers[name], name
            assert torch.equal(buffer, self._numbers[name]), name


def evaluate(network: nn.Module, loss: Callable[[], Tensor]) -> None:
    """A value, a gradient and a product, and what line searches do."""
    parameters = list(network.parameters())
    point = ParametersObjective(parameters, loss).at(torch.cat([p.detach().reshape(-1) for p in parameters]))
    point.hvp(point.gradient)
    StepLoss(loss, parameters).value()


# Buffers


def test_substituted_buffers_do_not_stay() -> None:
    network = normed()
    average = {"1.running_mean": torch.full((3,), 7.0)}
    unchanged = Unchanged(network)
    evaluate(network, lambda: (functional_call(network, dict(average), (X,)) - Y).square().mean())
    unchanged.check()
    assert torch.equal(average["1.running_mean"], torch.full((3,), 7.0))


def test_substituted_buffers_inside_of_a_call() -> None:
    """The module around lends, too: what comes back after the substitution is a copy that it lent."""

    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = normed()

        def forward(self, x: Tensor) -> Tensor:
            substitute = {"1.running_mean": torch.full((3,), 7.0)}
            return self.inner(x) + functional_call(self.inner, substitute, (x,)) + self.inner(x)

    network = Around()
    unchanged = Unchanged(network)
    evaluate(network, loss_of(network))
    unchanged.check()


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 1)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.scale


def test_an_ensemble_by_vmap() -> None:
    torch.manual_seed(0)
    stacked, buffers = stack_module_state([Scaled() for _ in range(3)])  # type: ignore[arg-type]
    parameters = {name: nn.Parameter(p.detach()) for name, p in stacked.items()}
    base = Scaled()
    unchanged = Unchanged(base)

    def loss() -> Tensor:
        outputs = vmap(lambda p, b: functional_call(base, (p, b), (X,)))(parameters, buffers)
        return (outputs - Y).square().mean()

    before = float(loss().detach())
    result = Teleported(torch.optim.SGD(parameters.values(), lr=0.1), Never()).teleport(loss)
    assert result.value_start == pytest.approx(before, rel=1e-3)
    unchanged.check()


class WithoutCall(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 1), nn.BatchNorm1d(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm.forward(self.linear(x))


def scripted() -> nn.Module:
    module: nn.Module = torch.jit.script(normed())
    return module


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize("make", [WithoutCall, scripted])
def test_modules_inside_that_are_not_called(make: Callable[[], nn.Module]) -> None:
    network = make()
    unchanged = Unchanged(network)
    evaluate(network, loss_of(network))
    unchanged.check()


class Remembering(nn.Module):
    """Puts new tensors in the place of its buffers, one in the place of another, and fills and empties places."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 1)
        self.register_buffer("now", torch.zeros(()))
        self.register_buffer("before", torch.ones(()))
        self.register_buffer("unset", None)
        self.register_buffer("emptied", torch.ones(()))
        self.fails = False

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x)
        self.before, self.now = self.now, out.mean().detach()
        self.unset, self.emptied = self.now.clone(), None
        if self.fails:
            raise ZeroDivisionError
        return out


def test_tensors_that_a_module_puts_in_the_place_of_its_buffers() -> None:
    network = Remembering()
    unchanged = Unchanged(network)

    def twice() -> Tensor:
        network(X)
        first = network.now
        network(X + 1.0)
        assert network.before is first  # within one loss it goes on where it was
        return (network(X) - Y).square().mean()

    evaluate(network, twice)
    unchanged.check()
    assert network.unset is None
    network.fails = True
    with pytest.raises(ZeroDivisionError):
        evaluate(network, loss_of(network))
    unchanged.check()


def test_modules_that_share_a_buffer_share_its_copy() -> None:
    network = nn.Sequential(Scaled(), Scaled())
    network[1].scale = network[0].scale
    network[1].linear = nn.Linear(1, 1)
    unchanged = Unchanged(network)
    with isolated(CPU):
        network(X)
        assert network[0].scale is network[1].scale
    unchanged.check()
    assert network[0].scale is network[1].scale


@pytest.mark.parametrize("call", [lambda net, p: functional_call(net, p, (X,)), lambda net, p: net(X) + p["3.bias"]])
def test_modules_in_a_function_of_x(call: Callable[[nn.Module, dict[str, Tensor]], Tensor]) -> None:
    network = normed()
    start = {name: p.detach().clone() for name, p in network.named_parameters()}
    unchanged = Unchanged(network)
    teleport(lambda p: (call(network, p) - Y).square().mean(), start, Auto(max_hvps=5))
    unchanged.check()


def test_a_function_without_modules_is_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Watching takes as long as a function of two variables itself."""
    x = torch.ones(2)
    objective = FunctionObjective(lambda x: (x**4).sum(), like=x)
    first = objective.at(x).value
    monkeypatch.setattr("levelport.objectives.function.isolated", None)
    assert objective.at(x).value == first


# Autocast. The networks are small: some processors have no kernels for larger products in half precision.


def autocast() -> AbstractContextManager[object]:
    return torch.autocast("cpu", dtype=torch.bfloat16)


def small() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(4, 1)


def half_loss(network: nn.Module) -> Callable[[], Tensor]:
    return lambda: (network(X).float() - Y).square().mean()


def fresh(loss: Callable[[], Tensor]) -> float:
    """The loss in an autocast block of its own, which has no copies yet."""
    with autocast(), torch.no_grad():
        return float(loss())


@pytest.mark.parametrize("whole", [False, True], ids=["block-per-step", "one-block"])
def test_searches_inside_autocast_see_the_current_weights(whole: bool) -> None:
    network = small()
    loss = half_loss(network)
    optimizer = ArmijoSGD(network.parameters())
    with autocast() if whole else nullcontext():
        for _ in range(3):
            with nullcontext() if whole else autocast():
                before = optimizer.step(loss).item()
            torch.clear_autocast_cache()
            after = float(loss().detach()) if whole else fresh(loss)
            assert after < before


@pytest.mark.parametrize("first_step", ["included", "optimizer"])
def test_autocast_gradients_after_teleports_are_the_new_ones(first_step: str) -> None:
    network = small()
    loss = half_loss(network)
    optimizer = Teleported(torch.optim.SGD(network.parameters(), lr=0.0), Every(1), first_step=first_step)  # type: ignore[arg-type]
    before = network.weight.detach().clone()
    with autocast():
        optimizer.step(loss)
    assert not torch.equal(network.weight, before)
    assert network.weight.grad is not None
    with autocast():
        (expected,) = torch.autograd.grad(loss(), [network.weight])
    torch.testing.assert_close(network.weight.grad, expected)


def by_teleport(network: nn.Linear, loss: Callable[[], Tensor]) -> None:
    Teleporter(torch.optim.SGD(network.parameters(), lr=0.1), Never()).teleport(loss)


def by_undoing(network: nn.Linear, loss: Callable[[], Tensor]) -> None:
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    OptimizerSnapshot(list(network.parameters()), torch.ones(5), {}).restore(optimizer)


def by_module(network: nn.Linear, loss: Callable[[], Tensor]) -> None:
    ModuleObjective(network, nn.functional.mse_loss, X, Y).load_into_module(torch.ones(5))


@pytest.mark.parametrize("write", [by_teleport, by_undoing, by_module])
def test_a_loop_of_ones_own_inside_autocast_sees_the_new_weights(
    write: Callable[[nn.Linear, Callable[[], Tensor]], None],
) -> None:
    network = small()
    loss = half_loss(network)
    with autocast():
        old = float(loss().detach())
        write(network, loss)
        new = loss()
        new.backward()
    assert float(new.detach()) != old
    assert float(new.detach()) == fresh(loss)


def test_loss_inside_autocast_leaves_no_copies_without_graph() -> None:
    """Newer versions of torch make none, the oldest that is supported does."""
    network = small()
    loss = half_loss(network)
    with autocast():
        StepLoss(loss, network.parameters()).value()
        loss().backward()
    assert network.weight.grad is not None


# Hooks of gradients


def test_gradient_hooks_act_in_steps_and_not_in_teleports() -> None:
    network = normed()
    start = torch.cat([p.detach().reshape(-1) for p in network.parameters()])
    true = ParametersObjective(network.parameters(), loss_of(network)).at(start)
    gradient, product = true.gradient, true.hvp(torch.ones_like(start))
    handles = [p.register_hook(lambda g: g.clamp(-1e-3, 1e-3)) for p in network.parameters()]
    ours = ParametersObjective(network.parameters(), loss_of(network)).at(start)
    torch.testing.assert_close(ours.gradient, gradient)
    torch.testing.assert_close(ours.hvp(torch.ones_like(start)), product)
    loss_of(network)().backward()
    assert all(p.grad is not None and float(p.grad.abs().max()) < 2e-3 for p in network.parameters())
    for handle in handles:
        handle.remove()
    network.zero_grad()
    loss_of(network)().backward()
    steps = torch.cat([p.grad.reshape(-1) for p in network.parameters() if p.grad is not None])
    torch.testing.assert_close(steps, gradient)


def test_hooks_are_put_back_after_an_error() -> None:
    weight = nn.Parameter(torch.ones(2, 1))
    calls: list[Tensor] = []
    weight.register_hook(calls.append)  # type: ignore[arg-type]

    def loss() -> Tensor:
        return nn.functional.embedding(torch.tensor([0]), weight, sparse=True).sum()

    with pytest.raises(ObjectiveError):
        _ = ParametersObjective([weight], loss).at(torch.ones(2)).gradient
    assert not calls
    weight.sum().backward()
    assert len(calls) == 1


# What is wrong with a loss


class WithSpare(nn.Module):
    """Dropout, and a layer that no loss uses."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        self.spare = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out


def test_noise_is_not_taken_for_a_loss_that_is_cut() -> None:
    network = WithSpare()
    optimizer = Teleported(torch.optim.SGD(network.parameters(), lr=0.01), Never())
    with pytest.raises(NotDeterministicError, match="dropout"):
        optimizer.teleport(loss_of(network))
    objective = ModuleObjective(network, nn.functional.mse_loss, X, Y)
    with pytest.raises(NotDeterministicError, match="dropout"):
        teleport(objective, objective.initial_point())


@pytest.mark.parametrize("schedule", [None, Every(1)])
def test_sparse_gradients_are_refused_alike_in_every_schedule(schedule: Every | None) -> None:
    embedding = nn.Embedding(10, 3, sparse=True)
    optimizer = Teleported(torch.optim.SGD(embedding.parameters(), lr=0.01), schedule)
    with pytest.raises(ObjectiveError, match=r"sparse gradient.*sparse=False"):
        optimizer.step(lambda: embedding(torch.arange(5)).square().sum())
