"""Optimizers of other packages: those that take teleports as they are, and those that are refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from levelport import Every, Never, Teleported, Teleporter
from levelport.solvers import Krylov

DATA = torch.randn(16, 4, generator=torch.Generator().manual_seed(1))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def loss_of(net: nn.Module) -> Tensor:
    return (net(DATA) - DATA.square().sum(dim=1, keepdim=True)).square().mean()


def flat(net: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()])


@pytest.mark.parametrize("name", ["Lion", "AdaBelief", "Prodigy", "SOAP", "Adan", "Ranger21"])
def test_first_order_optimizers_step_as_ever_and_teleport(name: str) -> None:
    package = pytest.importorskip("pytorch_optimizer", reason="pytorch_optimizer is not installed: make integrations")
    options: dict[str, Any] = {"num_iterations": 100} if name == "Ranger21" else {}
    ends = []
    for wrap in (False, True):
        net = network()
        bare = getattr(package, name)(net.parameters(), lr=1e-3, **options)
        optimizer = Teleported(bare, Never()) if wrap else bare

        def usual(net: nn.Module = net, optimizer: Any = optimizer) -> Tensor:
            optimizer.zero_grad()
            loss = loss_of(net)
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(usual)
        ends.append(flat(net))
        if wrap:
            result = optimizer.teleport(lambda net=net: loss_of(net))
            assert result.teleport.violation == 0.0
            optimizer.step(lambda net=net: loss_of(net))
    assert torch.equal(*ends)


def test_sharpness_aware_steps_are_what_they_were() -> None:
    package = pytest.importorskip("pytorch_optimizer", reason="pytorch_optimizer is not installed: make integrations")
    ends = []
    for wrap in (False, True):
        net = network()
        sam = package.SAM(net.parameters(), torch.optim.SGD, rho=0.1, lr=0.05)
        if wrap:
            optimizer = Teleported(sam, Never())
            for _ in range(3):
                optimizer.step(lambda net=net: loss_of(net))
            assert optimizer.teleport(lambda net=net: loss_of(net)).teleport.violation == 0.0
            optimizer.load_state_dict(optimizer.state_dict())
        else:
            for _ in range(3):
                sam.zero_grad()
                loss_of(net).backward()
                sam.first_step(zero_grad=True)
                loss_of(net).backward()
                sam.second_step(zero_grad=True)
            ends.append(flat(net))
            continue
        net = network()
        sam = package.SAM(net.parameters(), torch.optim.SGD, rho=0.1, lr=0.05)
        optimizer = Teleported(sam, Never())
        for _ in range(3):
            optimizer.step(lambda net=net: loss_of(net))
        ends.append(flat(net))
    torch.testing.assert_close(*ends)


@pytest.mark.parametrize("name", ["AdaHessian", "SophiaH"])
def test_differentiating_optimizers_are_refused_by_name(name: str) -> None:
    package = pytest.importorskip("pytorch_optimizer", reason="pytorch_optimizer is not installed: make integrations")
    net = network()
    optimizer = getattr(package, name)(net.parameters(), lr=0.01)
    with pytest.raises(TypeError, match=rf"{name} differentiates gradients itself.*levelport\.Teleporter"):
        Teleported(optimizer, Never())
    teleporter = Teleporter(optimizer, Every(2), solver=Krylov(max_hvps=4))
    results = []
    for _ in range(3):
        results.append(teleporter.maybe(lambda: loss_of(net)))
        optimizer.zero_grad()
        loss_of(net).backward(create_graph=True)
        optimizer.step()
    assert [result is not None for result in results] == [True, False, True]


def test_lookahead_is_refused_by_name() -> None:
    package = pytest.importorskip("pytorch_optimizer", reason="pytorch_optimizer is not installed: make integrations")
    net = network()
    optimizer = package.Lookahead(torch.optim.SGD(net.parameters(), lr=0.1))
    for wrapper in (Teleported, Teleporter):
        with pytest.raises(TypeError, match="slow copy"):
            wrapper(optimizer, Never())


@pytest.mark.parametrize("momentum", ["keep", "reset"])
def test_schedule_free_optimizers_keep_their_modes(momentum: Any) -> None:
    schedulefree = pytest.importorskip("schedulefree", reason="schedulefree is not installed: make integrations")
    net = network()
    optimizer = Teleported(
        schedulefree.AdamWScheduleFree(net.parameters(), lr=0.01),
        Every(3, start=2),
        solver=Krylov(max_hvps=4),
        momentum=momentum,
    )
    optimizer.train()
    first = float(loss_of(net))
    for _ in range(8):
        optimizer.step(lambda: loss_of(net))
    training = flat(net)
    optimizer.eval()
    assert not torch.equal(training, flat(net))
    assert float(loss_of(net)) < first
    optimizer.train()
    torch.testing.assert_close(training, flat(net))
