"""Rows and tables of the comparison of ``improve`` with other constrained solvers."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from levelport_lab.bench.improving import ImproveSpec
from levelport_lab.bench.report import Table, number
from levelport_lab.bench.tables import Results, of_kind

PROBLEM = ["data", "goal", "seed"]
KEY = [*PROBLEM, "tool", "setting"]
BUDGETS = (50, 100, 200, 300)
NEAR = 1e-3


def improve_rows(results: Results) -> pd.DataFrame:
    """Return a row per problem, tool and setting: the lowest feasible goals, and the cost to come near the best."""
    done = of_kind(results, ImproveSpec)
    best: dict[tuple[str, str, int], float] = {}
    for result in done:
        key = _key(result.spec)
        best[key] = min([best.get(key, math.inf), *(run.final_value for run in result.runs)])
    rows = []
    for result in done:
        key = _key(result.spec)
        for run in result.runs:
            costs, goals = run.curves["cost"], run.curves["goal"]
            near = best[key] + NEAR * (run.facts["start"] - best[key])
            reached = costs[goals <= near]
            row = dict(zip(PROBLEM, key, strict=True)) | {"tool": result.spec["tool"], "setting": int(run.setting)}
            row |= {"first": run.facts["first"], "second": run.facts["second"], "start": run.facts["start"]}
            row |= {"cost": float(reached[0]) if len(reached) else math.inf, "infeasible": run.facts["infeasible"]}
            row |= {f"goal_{b}": float(goals[int(np.searchsorted(costs, b, side="right")) - 1]) for b in BUDGETS}
            rows.append(row)
    return pd.DataFrame(rows).sort_values(KEY, ignore_index=True) if rows else pd.DataFrame(columns=KEY)


def _key(spec: dict[str, object]) -> tuple[str, str, int]:
    return str(spec["data"]), str(spec["goal"]), int(str(spec["seed"]))


def improve_tables(rows: pd.DataFrame) -> list[Table]:
    """Return the standings on convex problems, and the goals on networks."""
    return [_convex(rows[rows["data"] != "network"]), *_networks(rows[rows["data"] == "network"])]


def _single(rows: pd.DataFrame) -> int:
    """The setting with the lowest geometric mean cost, unsolved problems at four times the largest cost seen."""
    cost = rows["cost"].replace(math.inf, 4.0 * max(BUDGETS))
    means = np.log(cost).groupby(rows["setting"]).mean()
    return int(means.idxmin())


def _convex(rows: pd.DataFrame) -> Table:
    cells = []
    for tool, own in rows.groupby("tool", sort=False):
        arms = {str(tool): own}
        if own["setting"].nunique() > 1:
            single, best = own[own["setting"] == _single(own)], own.loc[own.groupby(PROBLEM)["cost"].idxmin()]
            arms = {f"{tool}, best single setting": single, f"{tool}, best of {own['setting'].nunique()} each": best}
        for name, arm in arms.items():
            solved = arm[np.isfinite(arm["cost"])]
            mean = math.exp(float(np.log(solved["cost"]).mean())) if len(solved) else math.nan
            infeasible = f"{100.0 * float(arm['infeasible'].mean()):.0f} %"
            cells.append([name, f"{len(solved)}/{len(arm)}", number(mean), number(solved["cost"].max()), infeasible])
    cells.sort(key=lambda row: float(row[2]) if row[2] != "-" else math.inf)
    header = ["tool", "solved", "geometric mean cost", "largest", "evaluations above the level"]
    return Table("convex problems", header, cells)


def _networks(rows: pd.DataFrame) -> list[Table]:
    if rows.empty:
        return []
    column = f"goal_{BUDGETS[-1]}"
    tools = list(dict.fromkeys(["levelport", *rows["tool"]]))
    cells = []
    for goal, own in rows.groupby("goal", sort=False):
        best = own.pivot_table(index="seed", columns="tool", values=column, aggfunc="min").reindex(columns=tools)
        lower = int((best["levelport"] < best.drop(columns="levelport").min(axis=1)).sum())
        cells.append([str(goal), *(number(float(best[tool].median())) for tool in tools), f"{lower}/{len(best)}"])
    return [Table("networks", ["goal", *tools, "levelport lowest"], cells)]
