"""Training a small network, with teleports and without.

The same network from the same start: SGD with the best of its step sizes, the same with a teleport every 40 steps and
with the default schedule, which teleports only while it pays, and Adam with the best of its step sizes. The loss is
drawn against cost, not against steps: a teleport costs as much as some tens of gradients, which others spend on steps.
One seed of one network: a picture, no proof.
"""

from __future__ import annotations

import warnings

import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from torch import nn

import levelport

BUDGET = 400.0  # gradient equivalents
SGD_STEP, ADAM_STEP = 2.0, 0.1  # the best of 0.2, 0.5, 1, 2, 4, 8 and of 0.001, 0.003, 0.01, 0.03, 0.1 (0.3 is worse)


def train(optimizer: torch.optim.Optimizer, model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> list[list[float]]:
    """Losses and what was spent before each of them."""
    bills: list[float] = []
    if isinstance(optimizer, levelport.Teleported):
        optimizer.register_teleport_hook(lambda result: bills.append(result.cost.gradient_equivalents))
    else:  # the same loop for everybody: a wrapper that never teleports
        optimizer = levelport.Teleported(optimizer, levelport.Never())
    costs: list[float] = []
    losses: list[float] = []
    while len(losses) + sum(bills) < BUDGET:
        costs.append(len(losses) + sum(bills))
        loss = optimizer.step(lambda: nn.functional.cross_entropy(model(x), y))
        assert loss is not None
        losses.append(float(loss))
    return [costs, losses]


def main() -> Figure:
    warnings.filterwarnings("ignore", "no teleport in")  # the adaptive schedule says when it has declined for long
    images, digits = load_digits(return_X_y=True)
    x, y = torch.tensor(images[:500] / 16.0, dtype=torch.float32), torch.tensor(digits[:500])
    picture = Figure(figsize=(7, 4), layout="constrained")
    axes = picture.subplots()
    for name in ("SGD", "SGD, teleport every 40 steps", "SGD, teleports while they pay", "Adam"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=SGD_STEP)
        if name == "Adam":
            optimizer = torch.optim.Adam(model.parameters(), lr=ADAM_STEP)
        elif "every" in name:
            optimizer = levelport.Teleported(optimizer, levelport.Every(40, start=20))
        elif "pay" in name:
            optimizer = levelport.Teleported(optimizer)
        costs, losses = train(optimizer, model, x, y)
        axes.semilogy(costs, losses, label=name)
        print(f"{name}: {losses[-1]:.2g}")
    axes.set(xlabel="gradient equivalents", ylabel="loss")
    axes.legend()
    return picture
