"""Rows and tables of the interval comparison."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from levelport_lab.bench.intervals.arms import ARMS
from levelport_lab.bench.intervals.likelihoods import likelihoods
from levelport_lab.bench.intervals.suite import IntervalSpec
from levelport_lab.bench.report import Table, number
from levelport_lab.bench.tables import Results, of_kind

KEY = ["problem", "tool", "entry", "side"]
WRONG = 0.01
"""Error relative to the half width from which an end counts as wrong."""
_JUDGED = ("regular", "curved", "held out")
_PROFILES = ("truth", "all profiles")
SHOWN = ("MINOS, gradients", "lmfit", "pyPESTO", "SLSQP")


def interval_rows(results: Results) -> pd.DataFrame:
    """Return a row per end: where each tool found it, and what it cost."""
    rows = [
        {
            "problem": result.spec["problem"],
            "tool": result.spec["tool"],
            "entry": int(run.setting),
            "side": int(run.facts["side"]),
            "estimate": run.facts["estimate"],
            "bound": run.final_value,
            "claimed": int(run.facts["claimed"]),
            "cost": run.facts["cost"],
            "seconds": run.facts["seconds"],
            "setup": run.facts["setup"],
            "setup_seconds": run.facts["setup_seconds"],
            "dimension": int(run.facts["dimension"]),
        }
        for result in of_kind(results, IntervalSpec)
        for run in result.runs
        if "excluded" not in run.facts
    ]
    return pd.DataFrame(rows).sort_values(KEY, ignore_index=True) if rows else pd.DataFrame(columns=KEY)


def scored(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the tools with the error of each end, relative to the true half width.

    A profile follows one valley. Every finite end that :func:`levelport.interval` returns is feasible, so where that
    lies further out, it is the truth. The error is 0 where both ends are infinite, infinite where one of them is, and
    NaN where no profile is known. Beside it stands the end by the profiles of all entries.
    """
    place = ["problem", "entry", "side"]
    profile = rows[rows["tool"] == "truth"].set_index(place)["bound"]
    feasible = rows[rows["tool"] == "levelport"].set_index(place)["bound"].reindex(profile.index)
    feasible = feasible.where(np.isfinite(feasible))
    sides = profile.index.get_level_values("side").to_numpy()
    truth = pd.Series(sides * np.fmax(sides * profile, sides * feasible), profile.index, name="truth")
    joined = rows[~rows["tool"].isin(_PROFILES)].join(truth, on=place)
    joined = joined.join(rows[rows["tool"] == "all profiles"].set_index(place)["bound"].rename("farthest"), on=place)
    true, found = joined["truth"].to_numpy(), joined["bound"].to_numpy()
    with np.errstate(invalid="ignore"):
        error = np.abs(found - true) / np.abs(true - joined["estimate"].to_numpy())
    error = np.where(np.isinf(true), np.where(found == true, 0.0, np.inf), error)
    joined["error"] = np.where(np.isnan(true), np.nan, np.where(np.isnan(found), np.inf, error))
    joined["kind"] = [likelihoods()[name].kind for name in joined["problem"]]
    joined["total"] = joined["cost"] + joined["setup"] / (2.0 * joined["dimension"])
    return joined


def interval_tables(rows: pd.DataFrame) -> list[Table]:
    """Return the cost per end, the accuracy on regular and curved problems, and the curved ones in detail."""
    ends = scored(rows)
    return [_costs(ends), _accuracy(ends), _curved(ends)]


def _costs(ends: pd.DataFrame) -> Table:
    """The median cost per end with the set-up shared over all 2d ends; a dash where a tool was not run.

    Problems that differ in nothing but the seed share a row, those held out one of their own. Large ones have the mean:
    their ends share products, which count for the first.
    """
    tools = ["levelport", *(tool for tool in SHOWN if tool in set(ends["tool"]))]
    alike: dict[str, list[str]] = {}
    for name, problem in likelihoods().items():
        if name in set(ends["problem"]):
            model = name.rsplit(" ", 1)[0]
            alike.setdefault(f"{model}, held out" if problem.kind == "held out" else model, []).append(name)
    cells = []
    for model, names in alike.items():
        label = names[0] if len(names) == 1 else f"{model}, {len(names)} seeds"
        own = ends[ends["problem"].isin(names)]
        totals = own.groupby("tool")["total"]
        medians = totals.mean() if likelihoods()[names[0]].kind == "large" else totals.median()
        marked = f"{label} *" if likelihoods()[names[0]].fresh else label
        cells.append([marked, *(number(float(medians.get(tool, math.nan))) for tool in tools)])
    return Table("cost per end", ["problem", *tools], cells)


def _accuracy(ends: pd.DataFrame) -> Table:
    """How many ends are claimed, and how many of those are wrong, a column per kind."""
    known = ends[ends["error"].notna()]
    cells = []
    for tool in (tool for tool in ARMS if tool in set(known["tool"])):
        row = [tool]
        for kind in _JUDGED:
            own = known[(known["tool"] == tool) & (known["kind"] == kind)]
            claimed = own[own["claimed"] == 1]
            wrong = int((claimed["error"] > WRONG).sum())
            row.append(f"{len(claimed)} of {len(own)}, {wrong} wrong" if len(own) else "-")
        cells.append(row)
    return Table("accuracy", ["tool", *_JUDGED], cells)


def _curved(ends: pd.DataFrame) -> Table:
    """Curved ends of this library by model: certified, wrong by the own profile and by all of them, and without end.

    An end that is said to be unbounded is confirmed where a profile is, too.
    """
    columns = ["problems", "ends", "certified", "wrong", "wrong by all profiles", "unbounded, confirmed"]
    own = ends[(ends["tool"] == "levelport") & ends["kind"].isin(("curved", "held out")) & ends["error"].notna()]
    kinds = own["kind"].map({"curved": "", "held out": ", held out"})
    cells = []
    for model, group in own.groupby(own["problem"].str.rsplit(n=1).str[0] + kinds, sort=False):
        claimed = group[group["claimed"] == 1]
        known = claimed[["farthest", "bound"]].sub(claimed["estimate"], axis=0).mul(claimed["side"], axis=0)
        beyond = (known["bound"] < (1.0 - WRONG) * known["farthest"]) if group["farthest"].notna().all() else None
        unbounded = group[np.isinf(group["bound"])]
        confirmed = unbounded["bound"] == unbounded["farthest"].fillna(unbounded["truth"])
        counts = (len(group), len(claimed), int((claimed["error"] > WRONG).sum()))
        by_all = "-" if beyond is None else str(int(beyond.sum()))
        cells.append([str(model), *map(str, counts), by_all, f"{int(confirmed.sum())} of {len(unbounded)}"])
    return Table("curved ends", columns, cells)
