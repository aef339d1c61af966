"""The pictures of the report, in the look of all pictures of the project."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from levelport_lab.bench import tables
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
from levelport_lab.paper.profiles import Profile
from levelport_lab.pictures import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, legend_below, new_figure

DASHED = (0, (3, 1.5))
DOTTED = (0, (1, 1))

LOOKS: dict[str, dict[str, Any]] = {
    OURS: {"color": ORANGE},
    NO_CLIMB: {"color": ORANGE, "linestyle": DASHED},
    ALONE: {"color": BLUE},
    PUBLISHED: {"color": BLUE, "linestyle": DASHED},
    LBFGS: {"color": BLACK},
    LBFGS_60: {"color": BLACK, "linestyle": DASHED},
    "torch LBFGS": {"color": GREY},
    NEWTON_CG: {"color": GREEN},
    NEWTON_CG_DIFFERENCES: {"color": GREEN, "linestyle": DASHED},
    "SciPy trust-krylov": {"color": GREEN, "linestyle": DOTTED},
    "momentum": {"color": RED},
    "Polyak": {"color": PURPLE},
}


def profiles(races: pd.DataFrame, axis: str = "cost", taus: tuple[float, ...] = (1e-4, 1e-6, 1e-10)) -> Figure:
    """The share of problems solved against what was spent, one panel per accuracy."""
    figure, panels = new_figure(1, len(taus), width=3.3, height=2.7)
    shown = [name for name in LOOKS if name in set(races["competitor"])]
    for panel, tau in zip(panels[0], taus, strict=True):
        for name in shown:
            costs = races[races["competitor"] == name][f"{axis}_{tau:g}"].tolist()
            profile = Profile.of(costs)
            panel.step(profile.spent, profile.shares, where="post", **LOOKS[name])
        panel.set_xscale("log")
        panel.set_ylim(0.0, 1.02)
        panel.set_title(f"(f - f*)/(f0 - f*) ≤ {accuracy(tau)}")
        panel.set_xlabel("gradient equivalents" if axis == "cost" else "seconds, median of interleaved rounds")
    panels[0][0].set_ylabel("share of problems solved")
    legend_below(figure, [(name, LOOKS[name]) for name in shown])
    return figure


def networks(pairs: pd.DataFrame) -> Figure:
    """Loss with teleports over loss without, per network, at each budget; one panel per penalty."""
    regs = sorted(pairs["reg"].unique(), reverse=True)
    figure, panels = new_figure(1, len(regs), width=3.0, height=2.7)
    for panel, reg in zip(panels[0], regs, strict=True):
        rows = pairs[pairs["reg"] == reg].sort_values("budget").drop_duplicates(tables.PROBLEM, keep="last")
        for _, row in rows.iterrows():
            softplus = "softplus" in str(row["problem"])
            known = [b for b in tables.LOSS_BUDGETS if f"ratio_{b}" in row and np.isfinite(row[f"ratio_{b}"])]
            ratios = [row[f"ratio_{b}"] for b in known]
            panel.plot(known, ratios, color=BLUE if softplus else ORANGE, marker="o", markersize=2.5, linewidth=0.8)
        _unit_line(panel)
        panel.set_title(f"reg {accuracy(reg)}, {len(rows)} networks")
        panel.set_xlabel("gradient equivalents")
    panels[0][0].set_ylabel("loss with / without teleports")
    legend_below(figure, [("ReLU", {"color": ORANGE}), ("softplus", {"color": BLUE})])
    return figure


def _unit_line(panel: Axes) -> None:
    panel.axhline(1.0, color=BLACK, linewidth=0.8)
    panel.set_xscale("log")
    panel.set_yscale("log")


def growth(frame: pd.DataFrame) -> Figure:
    """Evaluations until 1e-6 against condition number, features and samples."""
    figure, panels = new_figure(1, 3, width=3.0, height=2.7)
    shown = [name for name in LOOKS if name in set(frame["competitor"])]
    for panel, (column, label) in zip(panels[0], GROWTH_AXES.items(), strict=True):
        for name in shown:
            rows = tables.varying(frame[frame["competitor"] == name], column)
            values = rows["gradient_equivalents"].replace(np.inf, np.nan)
            panel.plot(rows[column], values, marker="o", markersize=3, **LOOKS[name])
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlabel(label)
    panels[0][0].set_ylabel("gradient equivalents to 1e-6")
    legend_below(figure, [(name, LOOKS[name]) for name in shown])
    return figure


GROWTH_AXES = {"condition": "condition number", "features": "features d", "samples": "samples n"}
