"""Balancing a badly scaled network.

The same function, computed by weights of very different scales: the first layer is multiplied by 100 and the second
divided by it. SGD then works with tiny steps only. `Balance` moves to the weights of smallest norm for the same
function; it needs no gradient. Each dot is a run of 300 steps; runs that ended at NaN are left out.
"""

from __future__ import annotations

import torch
from matplotlib.figure import Figure
from torch import nn

import levelport
from levelport.symmetries import Balance

torch.manual_seed(0)
x = torch.randn(256, 8)
y = torch.sin(x[:, :1]) + 0.5 * x[:, 1:2] * x[:, 2:3]


def network(factor: float) -> nn.Sequential:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    with torch.no_grad():
        for layer, by in ((0, factor), (2, 1.0 / factor)):
            module = model[layer]
            assert isinstance(module, nn.Linear)
            module.weight.mul_(by)
            if layer == 0:
                module.bias.mul_(by)
    return model


def train(lr: float, factor: float, *, balance: bool) -> float:
    model = network(factor)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    if balance:
        teleporter = levelport.Teleporter(optimizer, levelport.At(0), solver=Balance(model))
        teleporter.maybe(lambda: nn.functional.mse_loss(model(x), y))
    for _ in range(300):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    return nn.functional.mse_loss(model(x), y).item()


def main() -> Figure:
    steps = [10.0 ** (0.5 * k) for k in range(-10, -1)]
    picture = Figure(figsize=(7, 4), layout="constrained")
    axes = picture.subplots()
    runs = {"badly scaled": (100.0, False), "badly scaled, balanced": (100.0, True), "PyTorch's scale": (1.0, False)}
    for (name, (factor, balance)), marker in zip(runs.items(), "sov", strict=True):
        losses = [train(lr, factor, balance=balance) for lr in steps]
        axes.loglog(steps, losses, marker=marker, label=name)
        print(f"{name}: best loss {min(loss for loss in losses if loss == loss):.3f}")
    axes.set(xlabel="step size", ylabel="loss after 300 steps of SGD")
    axes.legend()
    return picture
