"""Likelihood intervals of a logistic regression.

Onset of diabetes in 614 Pima women, eight features. Blue: 95 % likelihood intervals of the coefficients; grey: Wald
intervals. Right, the probability for six women that the model has not seen. With this many samples both kinds nearly
agree. The home page shows 23 samples, where they do not.
"""

from __future__ import annotations

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import levelport
from levelport.goals import IntervalResult
from levelport_lab.problems import load_data

data = load_data("pima")
X = torch.cat([torch.tensor(data.X), torch.ones(len(data.X), 1)], 1).double()
y = torch.tensor(data.y == 1).double()
known, unseen = slice(0, 614), slice(614, 620)


def negative_log_likelihood(w: Tensor) -> Tensor:
    return torch.nn.functional.binary_cross_entropy_with_logits(X[known] @ w, y[known], reduction="sum")


def draw(axes: Axes, result: IntervalResult[Tensor], quantity: str) -> None:
    for i, row in enumerate(result.rows()):
        axes.plot([row["wald_lower"], row["wald_upper"]], [i + 0.2] * 2, color="0.6", lw=2, label=None if i else "Wald")
        axes.plot([row["lower"], row["upper"]], [i, i], color="tab:blue", lw=3, label=None if i else "likelihood")
        axes.plot([row["estimate"]], [i], "o", color="black", ms=4)
    axes.legend(loc="lower right", fontsize="small")
    axes.set_yticks(range(len(result.names)), result.names)
    axes.invert_yaxis()
    axes.set_xlabel(f"{quantity}, 95 % intervals")


def main() -> Figure:
    names = [f"feature {i}" for i in range(8)] + ["intercept"]
    start = torch.zeros(9, dtype=torch.float64)
    coefficients = levelport.interval(negative_log_likelihood, start, confidence=0.95, refine=True, names=names)
    print(coefficients)
    women = [f"woman {i}" for i in range(6)]
    predictions = levelport.interval(
        negative_log_likelihood, coefficients.x, lambda w: torch.sigmoid(X[unseen] @ w), confidence=0.95, names=women
    )
    print(predictions)
    picture = Figure(figsize=(10, 3.8), layout="constrained")
    left, right = picture.subplots(1, 2)
    draw(left, coefficients, "coefficient (standardized features)")
    draw(right, predictions, "probability of diabetes")
    right.set_xlim(0.0, 1.0)
    return picture
