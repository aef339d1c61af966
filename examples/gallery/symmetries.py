"""Symmetries of a network.

Scaling a hidden ReLU unit up and what leaves it down changes no output, so the loss stays as it is, to the last bit for
powers of two; but the gradient changes. Left: the gradient norm of every parameter before and after two such moves, the
longest gradient in a box and the move that promises the best step. Right: training from there and without a move, at
equal cost, with the same step size. One seed and one step size: a picture, no proof. Over seeds and with tuned step
sizes no such move paid.
"""

from __future__ import annotations

import copy
from typing import Literal

import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from torch import nn

import levelport
from levelport.symmetries import Rescaling

BUDGET = 200.0  # gradient equivalents
STEP = 0.2


def gradient_norms(model: nn.Module, loss: torch.Tensor) -> list[float]:
    """One for every parameter of the model."""
    return [float(g.norm()) for g in torch.autograd.grad(loss, list(model.parameters()))]


def main() -> Figure:
    images, digits = load_digits(return_X_y=True)
    x, y = torch.tensor(images[:400] / 16.0, dtype=torch.float32), torch.tensor(digits[:400])
    torch.manual_seed(0)
    start = nn.Sequential(nn.Linear(64, 40), nn.ReLU(), nn.Linear(40, 20), nn.ReLU(), nn.Linear(20, 10))
    names = [f"{kind} {layer}" for layer in (1, 2, 3) for kind in ("weights", "biases")]
    picture = Figure(figsize=(10, 4), layout="constrained")
    bars, curves = picture.subplots(1, 2)
    for number, arm in enumerate(("no move", "longest gradient", "best step")):
        model = copy.deepcopy(start)
        optimizer = torch.optim.SGD(model.parameters(), lr=STEP)
        goal: Literal["gradient", "decrease"] = "decrease" if arm == "best step" else "gradient"
        teleporter = levelport.Teleporter(
            optimizer, levelport.At(0), solver=Rescaling(model, goal=goal), first_step="optimizer"
        )
        costs: list[float] = []
        losses: list[float] = []
        spent = 0.0
        if arm != "no move":
            result = teleporter.maybe(lambda: nn.functional.cross_entropy(model(x), y))  # noqa: B023
            assert result is not None
            spent = result.cost.gradient_equivalents
            print(
                f"{arm}: f changes by {result.value_after - result.value_start:.0e}, "
                f"‖∇f‖ × {result.gain:.2f}, for {spent:g}"
            )
        while spent < BUDGET:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            if not losses:
                norms = gradient_norms(model, nn.functional.cross_entropy(model(x), y))
                bars.bar([i + 0.27 * (number - 1) for i in range(len(norms))], norms, width=0.25, label=arm)
            costs.append(spent)
            losses.append(float(loss.detach()))
            loss.backward()
            optimizer.step()
            spent += 1.0
        curves.semilogy(costs, losses, label=arm)
        print(f"{arm}: loss {losses[-1]:.2g} after {BUDGET:g} gradient equivalents")
    bars.set_xticks(range(len(names)), labels=names, rotation=30)
    bars.set(ylabel="norm of its gradient", yscale="log", title="the same function, other gradients")
    curves.set(xlabel="gradient equivalents", ylabel="loss", title=f"SGD, step {STEP:g}")
    curves.legend()
    return picture
