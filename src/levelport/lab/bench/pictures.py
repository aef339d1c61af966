"""The pictures of the report, in the look of all pictures of the project."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from levelport.lab.bench import tables
from levelport.lab.bench.parts import ALONE, LBFGS, LBFGS_60, NEWTON_CG, NO_CLIMB, OURS
from levelport.lab.bench.specs import accuracy
from levelport.lab.paper.profiles import Profile
from levelport.lab.pictures import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, legend_below, new_figure


@dataclass(frozen=True)
class Look:
    """Colour and line of a competitor, the same in all pictures."""

    color: str
    linestyle: str | tuple[int, tuple[float, ...]] = "solid"


LOOKS = {
    OURS: Look(ORANGE),
    NO_CLIMB: Look(ORANGE, (0, (3, 1.5))),
    ALONE: Look(BLUE),
    "GD-Armijo + published teleports": Look(BLUE, (0, (3, 1.5))),
    LBFGS: Look(BLACK),
    LBFGS_60: Look(BLACK, (0, (3, 1.5))),
    "torch LBFGS": Look(GREY),
    NEWTON_CG: Look(GREEN),
    "SciPy trust-krylov": Look(GREEN, (0, (3, 1.5))),
    "momentum": Look(RED),
    "Polyak": Look(PURPLE),
}


def profiles(races: pd.DataFrame, axis: str = "cost", taus: tuple[float, ...] = (1e-4, 1e-6, 1e-10)) -> Figure:
    """The share of problems solved against what was spent, one panel per accuracy."""
    figure, panels = new_figure(1, len(taus), width=3.3, height=2.7)
    shown = [name for name in LOOKS if name in set(races["competitor"])]
    for panel, tau in zip(panels[0], taus, strict=True):
        for name in shown:
            costs = races[races["competitor"] == name][f"{axis}_{tau:g}"].tolist()
            profile = Profile.of(costs)
            look = LOOKS[name]
            panel.step(profile.spent, profile.shares, where="post", color=look.color, linestyle=look.linestyle)
        panel.set_xscale("log")
        panel.set_ylim(0.0, 1.02)
        panel.set_title(f"(f - f*)/(f0 - f*) ≤ {accuracy(tau)}")
        panel.set_xlabel("gradient equivalents" if axis == "cost" else "seconds, median of interleaved rounds")
    panels[0][0].set_ylabel("share of problems solved")
    legend_below(figure, [(name, {"color": LOOKS[name].color, "linestyle": LOOKS[name].linestyle}) for name in shown])
    return figure


def networks(pairs: pd.DataFrame) -> Figure:
    """Loss with teleports over loss without, per network, at each budget; one panel per penalty."""
    regs = sorted(pairs["reg"].unique(), reverse=True)
    figure, panels = new_figure(1, len(regs), width=3.0, height=2.7)
    for panel, reg in zip(panels[0], regs, strict=True):
        rows = pairs[pairs["reg"] == reg].sort_values("budget").drop_duplicates(tables.PROBLEM, keep="last")
        for _, row in rows.iterrows():
            softplus = "softplus" in str(row["problem"])
            known = [b for b in tables.BUDGETS if f"ratio_{b}" in row and np.isfinite(row[f"ratio_{b}"])]
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
            rows = varying(frame[frame["competitor"] == name], column)
            look = LOOKS[name]
            values = rows["gradient_equivalents"].replace(np.inf, np.nan)
            panel.plot(rows[column], values, color=look.color, linestyle=look.linestyle, marker="o", markersize=3)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlabel(label)
    panels[0][0].set_ylabel("gradient equivalents to 1e-6")
    legend_below(figure, [(name, {"color": LOOKS[name].color, "linestyle": LOOKS[name].linestyle}) for name in shown])
    return figure


GROWTH_AXES = {"condition": "condition number", "features": "features d", "samples": "samples n"}
_FIXED: dict[str, dict[str, float]] = {
    "condition": {"samples": 2000, "features": 50},
    "features": {"samples": 4000, "condition": 1e3},
    "samples": {"features": 30, "condition": 1e3},
}


def varying(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """The rows of the series in which only ``column`` varies."""
    for name, value in _FIXED[column].items():
        frame = frame[frame[name] == value]
    if column == "samples":  # 4000 belongs to the series of features
        frame = frame[frame["samples"] != 4000]
    return frame.sort_values(column)
