"""Fairness at one percent of the loss.

A classifier whose predictions differ between two groups, because its labels do. How small can that difference become
if the loss may rise by 0, 0.1, … 2 %? Each point is feasible, and certified: no direction improves the goal at this
loss. Right, the mean predicted probability of either group.
"""

from __future__ import annotations

import torch
from matplotlib.figure import Figure
from torch import Tensor

import levelport

torch.manual_seed(0)
group = torch.randint(0, 2, (400,)).double()
features = torch.randn(400, 6, dtype=torch.float64) + group[:, None] * torch.tensor([1.0, 0.5, 0, 0, 0, 0])
features = torch.cat([features, torch.ones(400, 1)], 1)
labels = (features[:, 2] + features[:, 3] + 0.5 * group + torch.randn(400) > 0.25).double()


def loss(w: Tensor) -> Tensor:
    return torch.nn.functional.binary_cross_entropy_with_logits(features @ w, labels)


def means(w: Tensor) -> tuple[Tensor, Tensor]:
    p = torch.sigmoid(features @ w)
    return p[group == 0].mean(), p[group == 1].mean()


def gap(w: Tensor) -> Tensor:
    first, second = means(w)
    return (second - first) ** 2


def main() -> Figure:
    best = levelport.minimize(loss, torch.zeros(7, dtype=torch.float64))
    percents = [0.0, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0]
    gaps, groups = [], []
    for percent in percents:
        x = best.x
        if percent:
            result = levelport.improve(loss, best.x, gap, rise=0.01 * percent * best.value)
            x = result.x
            print(f"{percent:g} % of the loss: gap {float(gap(x)) ** 0.5:.3f}, {result.status.name.lower()}")
        gaps.append(float(gap(x)) ** 0.5)
        groups.append([float(mean) for mean in means(x)])
    picture = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = picture.subplots(1, 2)
    left.plot(percents, gaps, "o-", color="tab:blue")
    left.set(xlabel="rise of the loss in %", ylabel="difference between the groups", ylim=(0.0, None))
    for name, values, colour in zip(
        ("group 0", "group 1"), zip(*groups, strict=True), ("tab:green", "tab:purple"), strict=True
    ):
        right.plot(percents, values, "o-", color=colour, label=name)
    right.set(xlabel="rise of the loss in %", ylabel="mean predicted probability")
    right.legend()
    return picture
