"""The pictures of the benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from levelport_lab.bench.competitors import (
    ALONE,
    LBFGS,
    LBFGS_60,
    NEWTON_CG,
    NEWTON_CG_DIFFERENCES,
    NO_CLIMB,
    OURS,
    PUBLISHED,
)
from levelport_lab.bench.races import accuracy
from levelport_lab.bench.tables import LOSS_BUDGETS, pivot
from levelport_lab.paper.profiles import Profile
from levelport_lab.pictures import BLACK, BLUE, GREEN, ORANGE, PURPLE, legend_below, new_figure

DASHED = (0, (3, 1.5))

LOOKS: dict[str, dict[str, Any]] = {
    OURS: {"color": ORANGE},
    NO_CLIMB: {"color": ORANGE, "linestyle": DASHED},
    ALONE: {"color": BLUE},
    PUBLISHED: {"color": BLUE, "linestyle": DASHED},
    LBFGS: {"color": BLACK},
    LBFGS_60: {"color": BLACK, "linestyle": DASHED},
    NEWTON_CG: {"color": GREEN},
    NEWTON_CG_DIFFERENCES: {"color": GREEN, "linestyle": DASHED},
    "Polyak": {"color": PURPLE},
}


def profiles(rows: pd.DataFrame) -> Figure:
    """Draw the share of logistic problems of the first split solved against the cost, one panel per accuracy."""
    rows = rows[(rows["family"] == "logistic") & (rows["seed"] == 0)]
    return performance_profiles(rows, "competitor", (1e-4, 1e-6, 1e-10), LOOKS)


def performance_profiles(
    rows: pd.DataFrame,
    column: str,
    taus: tuple[float, ...],
    looks: Mapping[str, dict[str, Any]],
    titles: Mapping[str, str] | None = None,
) -> Figure:
    """Draw the share of problems that each method in ``column`` solved against its cost, one panel per accuracy.

    Args:
        rows: a row per problem and method with columns ``cost_1e-06`` and the like.
        column: where the names of the methods are.
        taus: the accuracies.
        looks: how the lines of the methods that are shown look.
        titles: other names of methods for the legend.
    """
    figure, panels = new_figure(1, len(taus), width=3.3, height=2.7)
    shown = [name for name in looks if name in set(rows[column])]
    for panel, tau in zip(panels[0], taus, strict=True):
        for name in shown:
            profile = Profile.of(rows[rows[column] == name][f"cost_{tau:g}"].tolist())
            panel.step(profile.spent, profile.shares, where="post", **looks[name])
        panel.set_xscale("log")
        panel.set_ylim(0.0, 1.02)
        panel.set_title(f"(f - f*)/(f0 - f*) ≤ {accuracy(tau)}")
        panel.set_xlabel("gradient equivalents")
    panels[0][0].set_ylabel("share of problems solved")
    if shown:
        legend_below(figure, [((titles or {}).get(name, name), looks[name]) for name in shown])
    return figure


def networks(rows: pd.DataFrame) -> Figure:
    """Draw the loss with teleports over the loss without, per network, at each budget; one panel per penalty."""
    regs = sorted(rows["reg"].unique(), reverse=True)
    figure, panels = new_figure(1, len(regs), width=4.0, height=2.7)
    for panel, reg in zip(panels[0], regs, strict=True):
        losses = [pivot(rows[rows["reg"] == reg], f"loss_{budget}") for budget in LOSS_BUDGETS]
        known = losses[0].dropna(subset=[OURS, ALONE]) if {OURS, ALONE} <= set(losses[0]) else losses[0].head(0)
        problems: list[Any] = known.index.tolist()
        for problem in problems:
            ratios = [each.loc[problem, OURS] / each.loc[problem, ALONE] for each in losses]
            color = BLUE if "softplus" in problem[1] else ORANGE
            panel.plot(LOSS_BUDGETS, ratios, color=color, marker="o", markersize=2.5, linewidth=0.8)
        panel.axhline(1.0, color=BLACK, linewidth=0.8)
        if problems:
            panel.set_xscale("log")
            panel.set_yscale("log")
        panel.set_title(f"reg {accuracy(reg)}, {len(problems)} networks")
        panel.set_xlabel("gradient equivalents")
    panels[0][0].set_ylabel("loss with / without teleports")
    legend_below(figure, [("ReLU", {"color": ORANGE}), ("softplus", {"color": BLUE})])
    return figure
