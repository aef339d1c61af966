"""From results to tables: the rows of each suite's CSV file, and the tables that sum them up.

A table is computed from the rows alone, so that the tables of the documentation can be checked against the CSV files
beside them. Every function accepts a part of the runs: what is missing is a dash or not in the table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import geometric_mean
from typing import Any

import numpy as np
import pandas as pd

from levelport_lab.bench import safety
from levelport_lab.bench.competitors import (
    ADAMW,
    ALONE,
    COMPETITORS,
    LBFGS,
    LBFGS_60,
    NEWTON_CG_DIFFERENCES,
    NO_CLIMB,
    OUR_LBFGS,
    OURS,
    PUBLISHED,
    RANDOM_CLIMB,
)
from levelport_lab.bench.cost_table import CERTIFIED
from levelport_lab.bench.equal_cost import ARMS as EQUAL_COST_ARMS
from levelport_lab.bench.equal_cost import GROUPS as NETWORK_GROUPS
from levelport_lab.bench.equal_cost import EqualCostSpec
from levelport_lab.bench.logistic_cases import GROUP as LOGISTIC
from levelport_lab.bench.logistic_cases import ManyStartsSpec
from levelport_lab.bench.races import ACCURACIES, RaceSpec, accuracy
from levelport_lab.bench.report import Table, number, ratio
from levelport_lab.bench.safety import SafetySpec
from levelport_lab.bench.solver_runs import CONTESTANTS, SolverSpec
from levelport_lab.engine.spec import Run, RunSpec
from levelport_lab.engine.store import TaskResult
from levelport_lab.paper.profiles import Axis, spent_until_solved
from levelport_lab.problems.teleport_cases import GROUPS, all_cases

PROBLEM = ["family", "problem", "reg", "seed"]
RACE = [*PROBLEM, "competitor"]
SOLVER = ["problem", "solver", "budget"]
SAFETY = ["compared at", "optimizer", "schedule", "activation", "problem", "reg", "seed"]
LOSS_BUDGETS = (100, 300, 1000)
"""Gradient equivalents at which losses of networks are compared."""
RESOLVED = 1e-7
"""Best known gradient norms below this belong to starts so near a minimum that float64 hardly resolves the level."""
HARD = 300.0
"""A logistic problem is hard if L-BFGS-B needs more than this for 1e-10."""
STANDINGS = (
    *(ALONE, PUBLISHED, OURS, NO_CLIMB, RANDOM_CLIMB, OUR_LBFGS, LBFGS, LBFGS_60, NEWTON_CG_DIFFERENCES),
    *("Polyak", "Polyak + our teleports"),
)
"""The methods of the table on logistic problems; the CSV file has all."""
Results = Iterable[TaskResult]


def of_kind(results: Results, spec: type[RunSpec]) -> list[TaskResult]:
    """Return the results of one kind of task, as it is defined now, that did not fail."""
    wanted = (spec.kind, spec.revision)
    return [each for each in results if (each.spec["kind"], each.spec["revision"]) == wanted and not each.failed]


# --- races: logistic, functions, networks ---


def race_rows(results: Results, families: tuple[str, ...]) -> pd.DataFrame:
    """Return a row per problem and competitor, from the longest run there is."""
    longest: dict[tuple[Any, ...], TaskResult] = {}
    for result in of_kind(results, RaceSpec):
        key = (*_problem(result.spec["problem"]).values(), result.spec["competitor"])
        if key[0] in families and (key not in longest or result.spec["max_cost"] > longest[key].spec["max_cost"]):
            longest[key] = result
    rows = [_race_row(result) for result in longest.values()]
    return pd.DataFrame(rows).sort_values(RACE, ignore_index=True) if rows else pd.DataFrame(columns=RACE)


def _problem(spec: dict[str, Any]) -> dict[str, Any]:
    return {"family": spec["family"], "problem": spec["name"], "reg": spec["reg"], "seed": spec["seed"]}


def _race_row(result: TaskResult) -> dict[str, Any]:
    run, budget = result.best, result.spec["max_cost"]
    row = {**_problem(result.spec["problem"]), "competitor": result.spec["competitor"], "budget": budget}
    if row["family"] == "network":
        known = [at for at in LOSS_BUDGETS if at <= budget or bool(run.facts["ended_by_itself"])]
        return row | {f"loss_{at}": value_at(run, at) if at in known else math.nan for at in LOSS_BUDGETS}
    f_start, f_star = run.facts["f_start"], run.facts["f_star"]
    return row | {f"cost_{tau:g}": spent_until_solved(run, f_start, f_star, tau, Axis.COST) for tau in ACCURACIES}


def value_at(run: Run, budget: float) -> float:
    """Return the lowest value found for at most ``budget`` gradient equivalents."""
    index = int(np.searchsorted(run.curves["gradient_equivalents"], budget, side="right"))
    return float(run.curves["value"][index - 1]) if index else math.nan


def pivot(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return problems as rows, competitors as columns, in the order of :data:`COMPETITORS`."""
    wide = rows.pivot(index=PROBLEM, columns="competitor", values=column)
    order = [*COMPETITORS, *(name for name in wide if name not in COMPETITORS)]
    return wide[[name for name in order if name in wide]]


def ratio_quartiles(ours: pd.Series, theirs: pd.Series) -> list[float]:
    """Return median and quartiles of ours/theirs: 0 where only ours got there, ∞ where only theirs did; [] if none."""
    mine, other = ours.to_numpy(dtype=float), theirs.to_numpy(dtype=float)
    either = np.isfinite(mine) | np.isfinite(other)
    mine, other = mine[either], other[either]
    if len(mine) == 0:
        return []
    ratios = np.where(np.isfinite(mine), np.where(np.isfinite(other), mine / other, 0.0), np.inf)
    # With failures, observed values only: infinity must not meet zero in an average.
    method: Any = "linear" if np.isfinite(mine).all() and np.isfinite(other).all() else "inverted_cdf"
    return [float(value) for value in np.quantile(ratios, [0.5, 0.25, 0.75], method=method)]


def quartiles(wide: pd.DataFrame, rival: str) -> str:
    """Return median and quartiles of ours over the rival's, as a cell."""
    found = _compared(wide, rival)
    return f"{ratio(found[0])} ({ratio(found[1])} to {ratio(found[2])})" if found else "-"


def median_ratio(wide: pd.DataFrame, rival: str) -> str:
    """Return the median of ours over the rival's, as a cell."""
    found = _compared(wide, rival)
    return ratio(found[0]) if found else "-"


def _compared(wide: pd.DataFrame, rival: str) -> list[float]:
    if rival == OURS or not {OURS, rival} <= set(wide):
        return []
    both = wide[[OURS, rival]].dropna()
    return ratio_quartiles(both[OURS], both[rival])


def logistic_tables(rows: pd.DataFrame) -> list[Table]:
    """Return what was solved and for how much, and the attribution of the speed."""
    tables, logistic = [], rows[rows["family"] == "logistic"]
    if len(logistic):
        tables.append(_standings(logistic))
    attribution = rows[rows["family"] == "all samples"]
    if len(attribution):
        costs = pivot(attribution, "cost_1e-10").reset_index("reg").set_index("reg").sort_index()
        shown = [name for name in costs if name in (OURS, NO_CLIMB, LBFGS, LBFGS_60, *CERTIFIED)]
        cells = [[name, *(number(cost, 4) for cost in costs[name])] for name in shown]
        header = ["cost to 1e-10", *(f"reg {accuracy(float(reg))}" for reg in costs.index)]
        tables.append(Table("attribution", header, cells))
    return tables


def _standings(rows: pd.DataFrame) -> Table:
    """Return the first split with its hard problems, and the ratios of the other splits beside it."""
    costs = {int(str(seed)): pivot(split, "cost_1e-10") for seed, split in rows.groupby("seed")}
    first = costs.pop(0) if 0 in costs else pd.DataFrame()
    hard = first[first[LBFGS] > HARD] if LBFGS in first else first.head(0)
    cells = []
    for name in (name for name in STANDINGS if any(name in each for each in (first, *costs.values()))):
        ran = first[name].dropna() if name in first else pd.Series(dtype=float)
        solved = f"{int(np.isfinite(ran).sum())}/{len(ran)}"
        others = ", ".join(median_ratio(each, name) for each in costs.values() if name in each and name != OURS)
        cells.append(
            [name, solved, number(ran.median(), 4), quartiles(first, name), median_ratio(hard, name), others or "-"]
        )
    header = ["method", "solved", "median cost", "ours / this", f"{len(hard)} hard", "other splits"]
    return Table("logistic", header, cells)


def function_tables(rows: pd.DataFrame) -> list[Table]:
    """Return the cost to 1e-6 of the main methods by problem; the median over the seeds of a quadratic.

    Problems that none of them solves are left out.
    """
    costs = pivot(rows, "cost_1e-06").groupby(level=["family", "problem"]).median()
    shown = [name for name in (OURS, ALONE, OUR_LBFGS, LBFGS) if name in costs]
    costs = costs.loc[np.isfinite(costs[shown].to_numpy()).any(axis=1)]
    cells = [[str(key[1]), *(number(costs.loc[key, name], 4) for name in shown)] for key in costs.index]
    return [Table("functions", ["cost to 1e-6", *shown], cells)]


def network_tables(rows: pd.DataFrame) -> list[Table]:
    """Return the loss of gradient descent with teleports over that of the others at equal cost, over networks."""
    losses = {budget: pivot(rows, f"loss_{budget}") for budget in LOSS_BUDGETS}
    last = losses[LOSS_BUDGETS[-1]]
    cells = []
    for rival in (ALONE, NO_CLIMB, LBFGS, ADAMW):
        both = last[[OURS, rival]].dropna() if {OURS, rival} <= set(last) else pd.DataFrame()
        lower = f"{int((both[OURS] < both[rival]).sum())}/{len(both)}" if len(both) else "-"
        early = [median_ratio(losses[budget], rival) for budget in LOSS_BUDGETS[:-1]]
        cells.append([rival, *early, quartiles(last, rival), lower])
    header = ["ours / this", *(f"at {budget}" for budget in LOSS_BUDGETS), "lower at the end"]
    return [Table("networks", header, cells)]


# --- solvers of the teleportation problem ---


def solver_rows(results: Results) -> pd.DataFrame:
    """Return a row per case, solver and budget, as the referee saw it; long runs are rows of their own budget."""
    results, known = list(results), all_cases()
    rows = []
    for result in of_kind(results, SolverSpec):
        case, budgets = result.spec["case"], result.spec["budgets"]
        group = known[case].group if case in known else LOGISTIC
        shared = {"problem": case, "group": group, "solver": result.spec["contestant"]}
        for run in result.runs:
            budget = budgets[int(run.setting)]
            rows.append({**shared, "budget": f"{budget['amount']} {budget['unit']}", **run.facts})
    for result in of_kind(results, ManyStartsSpec):
        best = {"problem": result.spec["case"], "group": LOGISTIC, "solver": "many starts", "budget": "400 hvps"}
        rows.append(best | {"norm": result.best.facts["norm"], "excess": 0.0})
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=SOLVER)


def best_known(rows: pd.DataFrame) -> dict[str, float]:
    """Return the largest gradient norm per problem that a run found which never ends above the level.

    Near a minimum a slack of 1e-6 f is worth many times the gradient there, so solvers with a slack do not count.
    """
    strict = [name for name, one in CONTESTANTS.items() if one.keeps_level]
    found = rows[rows["solver"].isin([*strict, "many starts", "earlier"])].groupby("problem")["norm"].max()
    return {str(problem): float(norm) for problem, norm in found.items()}


def solver_tables(rows: pd.DataFrame) -> list[Table]:
    """Return what each solver reaches of the best known norm, by group: geometric means.

    Cases whose level float64 hardly resolves are left out.
    """
    best = {name: norm for name, norm in best_known(rows).items() if norm >= RESOLVED}
    rows = rows[rows["problem"].isin(best)]
    rows = rows.assign(reached=(rows["norm"] / rows["problem"].map(best)).clip(upper=1.0))
    groups = [group for group in (LOGISTIC, *GROUPS) if group in set(rows["group"])]
    sizes = {group: rows.loc[rows["group"] == group, "problem"].nunique() for group in groups}
    tables = []
    for name, budget in (("solvers, 50 HVPs", "50 hvps"), ("solvers, 150 gradient equivalents", "150 ge")):
        cells = []
        for solver in CONTESTANTS:
            row = [solver]
            for group in groups:
                mine = rows[(rows["solver"] == solver) & (rows["group"] == group) & (rows["budget"] == budget)]
                reached = mine["reached"].tolist()
                few = f" ({len(reached)})" if len(reached) < sizes[group] else ""
                row.append(f"{geometric_mean(reached):.2f}{few}" if reached else "-")
            if set(row[1:]) != {"-"}:
                cells.append(row)
        tables.append(Table(name, ["solver", *(f"{group} ({sizes[group]})" for group in groups)], cells))
    return tables


# --- safety ---


def safety_rows(results: Results) -> pd.DataFrame:
    """Return a row per training run, compared at equal steps, and per network and optimizer, compared at equal cost."""
    results = list(results)
    steps = safety.rows(of_kind(results, SafetySpec)).assign(**{"compared at": "equal steps"})
    cost = [
        {**_problem(each.spec["problem"]), "optimizer": each.spec["optimizer"]}
        | {"schedule": EQUAL_COST_ARMS[int(run.setting)]}
        | run.facts
        for each in of_kind(results, EqualCostSpec)
        for run in each.runs
    ]
    parts = [frame for frame in (steps, pd.DataFrame(cost).assign(**{"compared at": "equal cost"})) if len(frame)]
    rows = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return rows.reindex(columns=[*SAFETY, *(name for name in rows if name not in (*SAFETY, "family"))])


def safety_tables(rows: pd.DataFrame) -> list[Table]:
    """Return how runs with teleports compare with the same runs without."""
    steps, tables = rows[rows["compared at"] == "equal steps"], []
    cells = [
        [
            f"{optimizer}, {schedule}",
            f"{int(group['safe'].sum())}/{len(group)}",
            f"{int(group['teleports'].sum())} ({int(group['undone'].sum())})",
            f"{group['spike'].max():.2f}",
            f"{group['end'].max():.2f}",
            f"{group['end'].median():.2f}",
        ]
        for (optimizer, schedule), group in steps.groupby(["optimizer", "schedule"])
    ]
    if cells:
        header = ["optimizer, schedule", "safe", "moves (undone)", "worst spike", "worst end", "median end"]
        tables.append(Table("safety at equal steps", header, cells))
    cost = rows[rows["compared at"] == "equal cost"]
    if len(cost):
        keys = list(zip(cost["problem"], cost["reg"], cost["seed"], strict=True))
        members = {
            group: {(each.name, each.reg, each.seed) for each in each_of} for group, each_of in NETWORK_GROUPS.items()
        }
        cost = cost.assign(group=[next(group for group, names in members.items() if key in names) for key in keys])
        default = cost[cost["schedule"] == "default"]
        header = ["networks", "worst to 300", "worst to 500", f"above {safety.END:g}", "median at the end"]
        tables += [
            Table(
                "safety at equal cost", ["optimizer, group", *header], _at_equal_cost(default, ["optimizer", "group"])
            ),
            Table("safety of arms", ["optimizer, arm", *header], _at_equal_cost(cost, ["optimizer", "schedule"])),
        ]
    return tables


def _at_equal_cost(rows: pd.DataFrame, by: list[str]) -> list[list[str]]:
    return [
        [
            ", ".join(map(str, names)),
            str(len(group)),
            f"{group['worst'].max():.3f}",
            f"{group['late'].max():.3f}".replace("nan", "-"),
            str(int((group[["worst", "late"]].max(axis=1) > safety.END).sum())),
            f"{group['last'].median():.2f}",
        ]
        for names, group in rows.groupby(by)
    ]
