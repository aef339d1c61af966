"""Training a small network, with teleports and without.

The same network from the same start: SGD with the best of its step sizes, alone, with a teleport every 40 steps, and
with the default schedule; and Adam with the best of its step sizes. The loss is drawn against cost, teleports included.
With a tuned step size the default schedule makes no teleport here, so its curve is that of SGD. This is one seed of one
network.
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
    teleports: list[float] = []
    if isinstance(optimizer, levelport.Teleported):
        optimizer.register_teleport_hook(lambda result: teleports.append(result.cost.gradient_equivalents))
    else:  # the same loop: a wrapper that never teleports
        optimizer = levelport.Teleported(optimizer, levelport.Never())
    costs: list[float] = []
    losses: list[float] = []
    while len(losses) + sum(teleports) < BUDGET:
        costs.append(len(losses) + sum(teleports))
        loss = optimizer.step(lambda: nn.functional.cross_entropy(model(x), y))
        assert loss is not None
        losses.append(float(loss))
    return [costs, losses]


def main() -> Figure:
    warnings.filterwarnings("ignore", "no teleport in")  # the default schedule warns after 200 steps without one
    images, digits = load_digits(return_X_y=True)
    x, y = torch.tensor(images[:500] / 16.0, dtype=torch.float32), torch.tensor(digits[:500])
    picture = Figure(figsize=(7, 4), layout="constrained")
    axes = picture.subplots()
    for name in ("SGD", "SGD, teleport every 40 steps", "SGD, default schedule", "Adam"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=SGD_STEP)
        if name == "Adam":
            optimizer = torch.optim.Adam(model.parameters(), lr=ADAM_STEP)
        elif "every" in name:
            optimizer = levelport.Teleported(optimizer, levelport.Every(40, start=20))
        elif "default" in name:
            optimizer = levelport.Teleported(optimizer)
        costs, losses = train(optimizer, model, x, y)
        axes.semilogy(costs, losses, "k:" if "default" in name else "-", lw=2, label=name)
        print(f"{name}: {losses[-1]:.2g}")
    axes.set(xlabel="gradient equivalents", ylabel="loss")
    axes.legend()
    return picture
