"""What a training loop of torch alone has in it: recurrent and convolutional networks, averages of weights, vmap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from levelport import Every, Never, Teleported, Teleporter
from levelport.solvers import Auto

GENERATOR_SEED = 1


class Recurrent(nn.Module):
    """A recurrent layer and a head on its last output."""

    def __init__(self, layer: type[nn.LSTM] | type[nn.GRU]) -> None:
        super().__init__()
        self.layer, self.head = layer(3, 5, batch_first=True), nn.Linear(5, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.layer(x)[0][:, -1])
        return out


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 1)
    )


def per_sample(net: nn.Module) -> Callable[[Tensor], Tensor]:
    """The same network through vmap, one sample at a time."""

    def call(x: Tensor) -> Tensor:
        parameters = dict(net.named_parameters())
        out: Tensor = torch.func.vmap(lambda row: torch.func.functional_call(net, parameters, (row,)))(x)
        return out

    return call


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "LSTM": (lambda: Recurrent(nn.LSTM), (4, 3)),
    "GRU": (lambda: Recurrent(nn.GRU), (4, 3)),
    "CNN with BatchNorm": (convolutional, (1, 6, 6)),
    "vmap": (lambda: nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1)), (3,)),
}


@pytest.mark.parametrize("case", CASES)
def test_networks_of_all_kinds_train_with_teleports(case: str) -> None:
    make, shape = CASES[case]
    torch.manual_seed(0)
    net = make()
    generator = torch.Generator().manual_seed(GENERATOR_SEED)
    x, y = torch.randn(12, *shape, generator=generator), torch.randn(12, 1, generator=generator)
    call = per_sample(net) if case == "vmap" else net
    optimizer = Teleported(torch.optim.SGD(net.parameters(), lr=0.02), Every(3), solver=Auto(max_hvps=6))
    gains: list[float] = []
    optimizer.register_teleport_hook(lambda result: gains.append(result.gain))
    losses = [float(optimizer.step(lambda: nn.functional.mse_loss(call(x), y))) for _ in range(7)]  # type: ignore[arg-type]
    assert losses[-1] < losses[0]
    assert max(gains) > 1.0
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert int(module.num_batches_tracked) == 7  # what teleports evaluate leaves no trace


@pytest.mark.parametrize("average", [None, get_ema_multi_avg_fn(0.9)], ids=["SWA", "EMA"])
def test_averages_of_weights_see_steps_and_no_trial_points(average: Any) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1))
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(GENERATOR_SEED))
    averaged = AveragedModel(net, multi_avg_fn=average)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
    teleporter = Teleporter(optimizer, Every(3), solver=Auto(max_hvps=6))
    seen: list[Tensor] = []
    for _ in range(7):
        teleporter.maybe(lambda: net(x).square().mean())
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        averaged.update_parameters(net)
        seen.append(net[0].weight.detach().clone())
    assert teleporter.teleports > 0
    expected = seen[0]
    for number, weight in enumerate(seen[1:], start=1):
        share = 1.0 / (number + 1) if average is None else 0.1
        expected = expected + share * (weight - expected)
    torch.testing.assert_close(averaged.module[0].weight.detach(), expected)


OPTIMIZERS: dict[str, dict[str, Any]] = {
    "Adadelta": {},
    "Adafactor": {},
    "Adagrad": {},
    "Adam": {"amsgrad": True},
    "AdamW": {},
    "Adamax": {},
    "ASGD": {},
    "NAdam": {},
    "RAdam": {},
    "RMSprop": {"centered": True},
    "Rprop": {},
    "SGD": {"momentum": 0.9, "nesterov": True},
}
SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "StepLR": lambda o: torch.optim.lr_scheduler.StepLR(o, 2),
    "ExponentialLR": lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9),
    "CosineAnnealingLR": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 8),
    "LinearLR": lambda o: torch.optim.lr_scheduler.LinearLR(o, total_iters=5),
    "LambdaLR": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 1.0 / (1 + step)),
    "OneCycleLR": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.05, total_steps=8),
    "CyclicLR": lambda o: torch.optim.lr_scheduler.CyclicLR(o, 0.01, 0.05, cycle_momentum=False),
}


def run(name: str, scheduler: str, *, wrapped: bool) -> tuple[Tensor, float]:
    """Six steps; the parameters and the step size at the end."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1))
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(GENERATOR_SEED))
    optimizer: torch.optim.Optimizer = getattr(torch.optim, name)(net.parameters(), lr=0.01, **OPTIMIZERS[name])
    if wrapped:
        optimizer = Teleported(optimizer, Never())
    rates = SCHEDULERS[scheduler](optimizer)
    for _ in range(6):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        rates.step()
    end = torch.cat([p.detach().reshape(-1) for p in net.parameters()]), optimizer.param_groups[0]["lr"]
    if isinstance(optimizer, Teleported):
        result = optimizer.teleport(lambda: net(x).square().mean())
        assert result.teleport.violation == 0.0
        optimizer.step(lambda: net(x).square().mean())
        assert bool(torch.isfinite(net[0].weight).all())
    return end


@pytest.mark.parametrize(
    ("name", "scheduler"),
    [*((name, "StepLR") for name in OPTIMIZERS if hasattr(torch.optim, name)), *(("SGD", name) for name in SCHEDULERS)],
)
def test_optimizers_and_schedulers_of_torch_do_what_they_did(name: str, scheduler: str) -> None:
    (bare, rate), (wrapped, same) = (run(name, scheduler, wrapped=flag) for flag in (False, True))
    assert torch.equal(bare, wrapped)
    assert rate == same
