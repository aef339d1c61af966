"""Damage of O-rings in 23 flights of the space shuttle: a small logistic regression for demonstrations.

Temperatures at launch and whether O-rings were damaged (Dalal, Fowlkes and Hoadley, 1989). With w₀ the log-odds at
70 °F and w₁ their slope per degree,

    f(w) = Σ log(1 + exp(z_i)) - y_i z_i,      z_i = w₀ + w₁ (t_i - 70).
"""

from __future__ import annotations

from typing import Any

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

import levelport
from levelport.goals import IntervalResult
from levelport_lab.pictures import BLACK, BLUE

TEMPERATURE = (66, 70, 69, 68, 67, 72, 73, 70, 57, 63, 70, 78, 67, 53, 67, 75, 70, 81, 76, 79, 75, 76, 58)
DAMAGED = (0, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1)


def negative_log_likelihood(w: Tensor) -> Tensor:
    """Return f(w), summed over the flights."""
    logits = w[0] + w[1] * (torch.tensor(TEMPERATURE, dtype=w.dtype) - 70)
    return torch.nn.functional.binary_cross_entropy_with_logits(
        logits, torch.tensor(DAMAGED, dtype=w.dtype), reduction="sum"
    )


def probabilities(degrees: tuple[int, ...] = (31, 40, 50, 60, 70, 80)) -> IntervalResult[Any]:
    """Return 95 % likelihood intervals of the probability of damage at these temperatures in °F."""
    return levelport.interval(
        negative_log_likelihood,
        torch.zeros(2, dtype=torch.float64),
        lambda w: torch.sigmoid(w[0] + w[1] * (torch.tensor(degrees, dtype=w.dtype) - 70)),
        confidence=0.95,
        refine=True,
        names=[f"{degree} °F" for degree in degrees],
    )


def forest(result: IntervalResult[Any]) -> Figure:
    """Draw the intervals with the Wald intervals beside them; what no probability can be is shaded."""
    figure = Figure(figsize=(7.4, 3.0), dpi=90, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for i, row in enumerate(result.rows()):
        wald, ours = ("Wald", "likelihood") if i == 0 else ("", "")
        axes.hlines([i + 0.18], row["wald_lower"], row["wald_upper"], color="0.6", lw=2, label=wald)
        axes.hlines([i - 0.05], row["lower"], row["upper"], color=BLUE, lw=3, label=ours)
        axes.plot([row["estimate"]], [i - 0.05], "o", color=BLACK, ms=5)
    axes.axvspan(-0.2, 0.0, color="0.9")
    axes.axvspan(1.0, 1.2, color="0.9")
    axes.set_yticks(range(len(result.names)), result.names)
    axes.set(xlim=(-0.1, 1.2), xlabel="probability of damage, 95 % intervals")
    axes.set_title("O-rings of the space shuttle, 23 flights")
    axes.invert_yaxis()
    axes.legend(loc="upper left", fontsize="small")
    return figure
