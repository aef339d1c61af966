"""The sections of the report, each from its table."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from levelport_lab.bench import tables
from levelport_lab.bench.competitors import ADAMW, ALONE, LBFGS, LBFGS_60, NEWTON_CG, NO_CLIMB, OURS
from levelport_lab.bench.findings import HARD
from levelport_lab.bench.growth import slope
from levelport_lab.bench.markdown import number, table
from levelport_lab.bench.optimality import TRIED_HVPS
from levelport_lab.bench.pictures import GROWTH_AXES
from levelport_lab.bench.races import ACCURACIES, accuracy
from levelport_lab.bench.suites import VISITS
from levelport_lab.bench.tables import pivot, varying
from levelport_lab.claims import Claim

RESOLVED = 1e-7
"""Gradient norms below this belong to points whose level float64 hardly resolves."""


def goals(found: list[Claim]) -> str:
    """Every goal with its figures."""
    words = {True: "met", False: "**missed**", None: "not measured"}
    rows = [[goal.statement, words[goal.holds], goal.measured] for goal in found]
    lines = ["| goal | | figures |", "| --- | --- | --- |", *("| " + " | ".join(row) + " |" for row in rows)]
    return "\n".join(lines) + "\n"


def optimality_misses(frame: pd.DataFrame) -> str:
    """Where the default misses the best known gradient norm by more than 1 %, however many HVPs it gets."""
    norms = frame[[f"auto_{budget}_norm" for budget in TRIED_HVPS]].max(axis=1)
    missed = frame[norms < 0.99 * frame["best_norm"]]
    tiny = int((missed["best_norm"] < RESOLVED).sum())
    sets = sorted({str(name).partition("/")[2] for name in missed[missed["best_norm"] >= RESOLVED]["problem"]})
    return (
        f"Of the {len(missed)} teleports that miss the best known norm by more than 1 % with every budget, {tiny} "
        f"start so near the minimum that the best known norm is below {RESOLVED:g} and f hardly resolves the level. "
        f"The others are on {', '.join(sets) or 'none'}.\n"
    )


def standings(races: pd.DataFrame, order: list[str]) -> str:
    """Solved, median cost and our cost relative to each competitor, at every accuracy."""
    header = ["method"]
    for tau in ACCURACIES:
        header += [f"solved at {accuracy(tau)}", "median cost", "ours/this, median (quartiles)"]
    costs = {tau: pivot(races, f"cost_{tau:g}") for tau in ACCURACIES}
    rows = []
    for name in [one for one in order if one in set(races["competitor"])]:
        row = [name]
        for tau in ACCURACIES:
            ran = costs[tau][costs[tau][name].notna() & costs[tau][OURS].notna()]
            lower, middle, upper = tables.ratio_quartiles(ran[OURS], ran[name])
            ratio = "1" if name == OURS else f"{_ratio(middle)} ({_ratio(lower)} to {_ratio(upper)})"
            row += [f"{int(np.isfinite(ran[name]).sum())}/{len(ran)}", number(ran[name].median(), 4), ratio]
        rows.append(row)
    return table(header, rows)


def _ratio(value: float) -> str:
    return "∞" if math.isinf(value) else "-" if math.isnan(value) else f"{value:.2f}"


def hard_problems(races: pd.DataFrame) -> str:
    """Where L-BFGS-B needs more than :data:`HARD` gradient equivalents for 1e-10."""
    costs = pivot(races, "cost_1e-10")
    hard = costs[costs[LBFGS] > HARD]
    columns = [name for name in (OURS, NO_CLIMB, LBFGS, LBFGS_60, NEWTON_CG, ALONE) if name in costs]
    rows = []
    key: Any
    for key, row in hard.iterrows():
        _, name, reg, _ = key
        cells = [number(row[column], 4) for column in columns]
        rows.append([f"{name}, reg {reg:g}", *cells, f"{row[OURS] / row[LBFGS]:.2f}"])
    return table(["problem", *columns, "ours / L-BFGS-B"], rows)


def problem_by_problem(races: pd.DataFrame, tau: float, order: list[str]) -> str:
    """Cost of each competitor on each problem."""
    costs = pivot(races, f"cost_{tau:g}")
    columns = [name for name in order if name in costs]
    key: Any
    rows = []
    for key, row in costs.iterrows():
        _, name, _, seed = key
        rows.append([name + (f", seed {seed}" if seed else ""), *(number(row[column], 4) for column in columns)])
    return table(["problem", *columns], rows)


def network_losses(races: pd.DataFrame, names: tuple[str, ...] = (ALONE, OURS, NO_CLIMB, LBFGS, ADAMW)) -> str:
    """Losses at the budgets, network by network; more seeds and competitors are in the CSV file."""
    rows = []
    networks = races[(races["family"] == "network") & (races["seed"] == 0)]
    for (name, reg), group in networks.groupby(["problem", "reg"]):
        by_name = group.set_index("competitor")
        cells = []
        for competitor in names:
            losses = [by_name[f"loss_{b}"].get(competitor, math.nan) for b in tables.LOSS_BUDGETS]
            known = [f"{loss:.3g}" for loss in losses if math.isfinite(loss)]
            cells.append(" ".join(known) if known else "not run")
        rows.append([f"{name}, reg {reg:g}", *cells])
    return table([f"network: loss after {' '.join(map(str, tables.LOSS_BUDGETS))}", *names], rows)


def visits(races: pd.DataFrame) -> str:
    """Loss with visits of a certified teleport over loss without."""
    networks = races[(races["family"] == "network") & (races["reg"] == 1e-4) & (races["seed"] == 0)]
    rows = []
    for name, alone in VISITS.items():
        row = [name, alone]
        for budget in tables.LOSS_BUDGETS[:3]:
            losses = pivot(networks, f"loss_{budget}")
            both = losses[[name, alone]].dropna() if {name, alone} <= set(losses) else losses.head(0)
            if both.empty:
                row.append("not run")
                continue
            ratios = both[name] / both[alone]
            lower, middle, upper = np.quantile(ratios, [0.25, 0.5, 0.75])
            row.append(f"{middle:.2f} ({lower:.2f} to {upper:.2f}), lower on {int((ratios < 1).sum())}/{len(ratios)}")
        rows.append(row)
    return table(["with", "without", *(f"ratio of losses at {b}" for b in tables.LOSS_BUDGETS[:3])], rows)


def seconds(timings: pd.DataFrame) -> str:
    """Our seconds over those of each rival."""
    rows = []
    for name in dict.fromkeys(timings["competitor"]):
        if name == OURS:
            continue
        row = [name]
        for tau in (1e-4, 1e-6, 1e-10):
            spent = pivot(timings, f"seconds_{tau:g}")
            lower, middle, upper = tables.ratio_quartiles(spent[OURS], spent[name])
            row.append(f"{_ratio(middle)} ({_ratio(lower)} to {_ratio(upper)})")
        rows.append(row)
    return table(["ours / this, in seconds", "1e-4", "1e-6", "1e-10"], rows)


def overhead(frame: pd.DataFrame) -> str:
    """Own code relative to evaluations."""
    rows = [
        [
            f"{row['where']} ({int(row['dimension'])} parameters)",
            str(row["competitor"]),
            f"{row['overhead']:.1%} ({row['overhead_lower_quartile']:.1%} to {row['overhead_upper_quartile']:.1%})",
            number(row["milliseconds_per_gradient_equivalent"]),
            str(int(row["rounds"])),
        ]
        for _, row in frame.iterrows()
    ]
    return table(["problem", "method", "overhead, median (quartiles)", "ms per gradient equivalent", "rounds"], rows)


def memory(frame: pd.DataFrame) -> str:
    """Peak memory in vectors."""
    rows = [
        [str(row["competitor"]), f"{row['vectors_beyond_gradient_graph']:.1f}", f"{row['peak_bytes'] / 2**20:.0f}"]
        for _, row in frame.iterrows()
    ]
    return table(["method", "vectors beyond the gradient graph", "peak MiB of the process"], rows)


def growth(frame: pd.DataFrame) -> str:
    """Slopes of log evaluations over log size."""
    rows = []
    for name in dict.fromkeys(frame["competitor"]):
        row = [str(name)]
        for column in GROWTH_AXES:
            series = varying(frame[frame["competitor"] == name], column)
            solved = series[np.isfinite(series["gradient_equivalents"])]
            exponent = slope(solved[column].tolist(), solved["gradient_equivalents"].tolist())
            lost = len(series) - len(solved)
            row.append(f"{number(exponent, 2)}" + (f" ({lost} of {len(series)} not solved)" if lost else ""))
        rows.append(row)
    return table(["method", *(f"exponent in the {label}" for label in GROWTH_AXES.values())], rows)


def teleport_cost(frame: pd.DataFrame) -> str:
    """Processor time per teleport and per gradient equivalent as the problem grows, with slopes."""
    rows = []
    for (axis, solver), series in frame.groupby(["axis", "solver"]):
        series = series.sort_values("size")
        per_unit = series["cpu_seconds_per_teleport"] / series["cost_per_teleport"]
        cells = [
            f"{size:g}: {1e3 * seconds:.3g} ms"
            for size, seconds in zip(series["size"], series["cpu_seconds_per_teleport"], strict=True)
        ]
        sizes = series["size"].astype(float).tolist()
        exponent = slope(sizes, series["cpu_seconds_per_teleport"].tolist())
        unit = slope(sizes, per_unit.tolist())
        rows.append([f"{solver}, {axis}", "; ".join(cells), f"{exponent:.2f}", f"{unit:.2f}"])
    return table(["teleport and what grows", "per iteration with a teleport", "slope", "slope per evaluation"], rows)


def hvp(frame: pd.DataFrame) -> str:
    """The closed form against autograd."""
    rows = [
        [
            f"{row['problem']} ({int(row['samples'])} × {int(row['features'])})",
            f"{1e6 * row['closed_seconds']:.0f}",
            f"{1e6 * row['automatic_seconds']:.0f}",
            f"{row['automatic_seconds'] / row['closed_seconds']:.2f}",
            f"{row['difference']:.0e}",
        ]
        for _, row in frame.iterrows()
    ]
    return table(["problem", "closed form, µs", "autograd, µs", "ratio", "relative difference"], rows)
