"""From the store to tables: one row per race, per sub-problem, per timing, ready for CSV and for the report."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from levelport_lab.bench.equal_cost import EqualCostSpec
from levelport_lab.bench.growth import SERIES, GrowthSpec, HvpSpec, TeleportCostSpec
from levelport_lab.bench.optimality import OptimalitySpec
from levelport_lab.bench.own_cost import LARGE, MemorySpec, OverheadSpec
from levelport_lab.bench.races import ACCURACIES, RaceSpec, TimingSpec
from levelport_lab.bench.safety import TwinsSpec, rows
from levelport_lab.engine.spec import Curve, Run
from levelport_lab.engine.store import TaskResult
from levelport_lab.paper.profiles import Axis, spent_until_solved
from levelport_lab.problems.registry import problem

LOSS_BUDGETS = (100, 300, 1000, 3000)
"""Gradient equivalents at which losses of networks are compared."""

PROBLEM = ["family", "problem", "reg", "seed"]

_SPECS = (
    RaceSpec,
    OptimalitySpec,
    TimingSpec,
    OverheadSpec,
    MemorySpec,
    GrowthSpec,
    TeleportCostSpec,
    HvpSpec,
    TwinsSpec,
    EqualCostSpec,
)


def of_kind(results: Iterable[TaskResult], kind: str) -> list[TaskResult]:
    """The results of one kind of task, as it is defined now, that did not fail."""
    revision = {spec.kind: spec.revision for spec in _SPECS}[kind]
    return [
        result
        for result in results
        if result.spec["kind"] == kind and result.spec["revision"] == revision and not result.failed
    ]


def races(results: Iterable[TaskResult]) -> pd.DataFrame:
    """A row per problem and competitor, from the longest run there is.

    The optimum of a network is the lowest value that anyone has reached, here or before.
    """
    longest: dict[tuple[Any, ...], TaskResult] = {}
    for result in of_kind(results, "race"):
        key = (*_problem(result.spec["problem"]).values(), result.spec["competitor"])
        if key not in longest or result.spec["max_cost"] > longest[key].spec["max_cost"]:
            longest[key] = result
    lowest: dict[tuple[Any, ...], float] = {}
    for key, result in longest.items():
        seen = [result.best.final_value, result.best.facts["f_star"], lowest.get(key[:-1], math.inf)]
        lowest[key[:-1]] = min(value for value in seen if not math.isnan(value))
    rows = [
        _race_row(result, lowest[key[:-1]] if key[0] == "network" else result.best.facts["f_star"])
        for key, result in longest.items()
    ]
    columns = None if rows else [*PROBLEM, "competitor"]  # an empty table has columns, too
    return pd.DataFrame(rows, columns=columns).sort_values([*PROBLEM, "competitor"], ignore_index=True)


def _problem(spec: dict[str, Any]) -> dict[str, Any]:
    return {"family": spec["family"], "problem": spec["name"], "reg": spec["reg"], "seed": spec["seed"]}


def _race_row(result: TaskResult, f_star: float) -> dict[str, Any]:
    run = result.best
    f_start = run.facts["f_start"]
    row = {
        **_problem(result.spec["problem"]),
        "competitor": result.spec["competitor"],
        "budget": result.spec["max_cost"],
        "f_start": f_start,
        "f_star": f_star,
    }
    for tau in ACCURACIES:
        row[f"cost_{tau:g}"] = spent_until_solved(run, f_start, f_star, tau, Axis.COST)
    for budget in LOSS_BUDGETS:
        known = budget <= result.spec["max_cost"] or bool(run.facts["ended_by_itself"])
        row[f"loss_{budget}"] = value_at(run, budget) if known else math.nan
    counts = ("values", "gradients", "hvps", "gradient_equivalents", "seconds", "evaluation_seconds", "ended_by_itself")
    return row | {name: run.facts[name] for name in counts} | {"final": run.final_value}


def value_at(run: Run, budget: float) -> float:
    """The lowest value found for at most ``budget`` gradient equivalents."""
    index = int(np.searchsorted(run.curves["gradient_equivalents"], budget, side="right"))
    return float(run.curves["value"][index - 1]) if index else math.nan


def worst_ratio(ours: Run, theirs: Run, *, since: float, until: float) -> tuple[float, float]:
    """max over budgets of (our value)/(their value), and the budget where it is attained."""
    budgets: Curve = np.concatenate(
        [[since], ours.curves["gradient_equivalents"], theirs.curves["gradient_equivalents"]]
    )
    budgets = np.unique(budgets[(budgets >= since) & (budgets <= until)])
    ratios = np.array([value_at(ours, b) / value_at(theirs, b) for b in budgets])
    return float(ratios.max()), float(budgets[int(ratios.argmax())])


def network_pairs(results: Iterable[TaskResult], ours: str, alone: str) -> pd.DataFrame:
    """Per network: losses with and without teleports at each budget, and the worst ratio at any budget from 100 on."""
    found: dict[tuple[Any, ...], dict[str, TaskResult]] = {}
    for result in of_kind(results, "race"):
        if result.spec["problem"]["family"] == "network" and result.spec["competitor"] in (ours, alone):
            key = (*_problem(result.spec["problem"]).values(), result.spec["max_cost"])
            found.setdefault(key, {})[result.spec["competitor"]] = result
    rows = []
    for (family, name, reg, seed, budget), both in sorted(found.items()):
        if len(both) == 2:
            mine, theirs = both[ours].best, both[alone].best
            ratio, where = worst_ratio(mine, theirs, since=100.0, until=budget)
            row = {"family": family, "problem": name, "reg": reg, "seed": seed, "budget": budget}
            row |= {f"ratio_{b}": value_at(mine, b) / value_at(theirs, b) for b in LOSS_BUDGETS if b <= budget}
            rows.append(row | {"worst_ratio": ratio, "worst_at": where})
    return pd.DataFrame(rows)


def timings(results: Iterable[TaskResult]) -> pd.DataFrame:
    """Median seconds over the rounds, per problem and competitor."""
    rows = []
    for result in of_kind(results, "timing"):
        for number, name in enumerate(result.spec["competitors"]):
            rounds = [run for run in result.runs if run.setting == number]
            row = {**_problem(result.spec["problem"]), "competitor": name, "rounds": len(rounds)}
            for tau in ACCURACIES:
                row[f"seconds_{tau:g}"] = float(np.median([run.facts[f"seconds_{tau:g}"] for run in rounds]))
            rows.append(row)
    return pd.DataFrame(rows)


def optimalities(results: Iterable[TaskResult]) -> pd.DataFrame:
    """A row per teleportation problem."""
    rows = [
        {**_problem(result.spec["problem"]), "steps": result.spec["steps"], **result.best.facts}
        for result in of_kind(results, "optimality")
    ]
    return pd.DataFrame(rows).sort_values([*PROBLEM, "steps"], ignore_index=True) if rows else pd.DataFrame()


def safety(results: Iterable[TaskResult]) -> pd.DataFrame:
    """A row per training run: what teleports did to it."""
    frame = rows(of_kind(results, "safety"))
    order = ["optimizer", "schedule", "activation", "seed"]
    return frame.sort_values(order, ignore_index=True) if len(frame) else frame


def safety_at_equal_cost(results: Iterable[TaskResult]) -> pd.DataFrame:
    """A row per network and optimizer: losses with teleports over those without."""
    found = [
        {**_problem(result.spec["problem"]), "optimizer": result.spec["optimizer"], **result.best.facts}
        for result in of_kind(results, "safety-equal-cost")
    ]
    return pd.DataFrame(found).sort_values([*PROBLEM, "optimizer"], ignore_index=True) if found else pd.DataFrame()


def overheads(results: Iterable[TaskResult]) -> pd.DataFrame:
    """Median overhead with quartiles, per problem and competitor."""
    rows = []
    samples = problem(LARGE).info.training_samples
    for result in of_kind(results, "overhead"):
        where = result.spec["where"]
        if isinstance(where, str):
            label = f"{where}, {samples * result.spec['copies']} samples"
        else:
            label = f"{where['name']}, reg {where['reg']:g}"
        for number, name in enumerate(result.spec["competitors"]):
            runs = [run.facts for run in result.runs if run.setting == number]
            shares = [facts["overhead"] for facts in runs]
            per_evaluation = [facts["evaluation_seconds"] / facts["gradient_equivalents"] for facts in runs]
            rows.append(
                {
                    "where": label,
                    "competitor": name,
                    "dimension": runs[0]["dimension"],
                    "rounds": len(runs),
                    "overhead": float(np.median(shares)),
                    "overhead_lower_quartile": float(np.quantile(shares, 0.25)),
                    "overhead_upper_quartile": float(np.quantile(shares, 0.75)),
                    "milliseconds_per_gradient_equivalent": 1e3 * float(np.median(per_evaluation)),
                    "gradient_equivalents": runs[0]["gradient_equivalents"],
                }
            )
    return pd.DataFrame(rows)


def flat(results: Iterable[TaskResult], kind: str) -> pd.DataFrame:
    """Specification and facts side by side, for tasks whose specification is flat."""
    rows = [
        {name: value for name, value in result.spec.items() if name not in ("kind", "revision")} | result.best.facts
        for result in of_kind(results, kind)
    ]
    frame = pd.DataFrame(rows)
    return frame.sort_values(list(frame.columns[:4]), ignore_index=True) if rows else frame


def ratio_quartiles(ours: pd.Series, theirs: pd.Series) -> tuple[float, float, float]:
    """Quartiles of ours/theirs; 0 where only we got there, infinite where only they did; neither is left out."""
    mine, other = ours.to_numpy(dtype=float), theirs.to_numpy(dtype=float)
    either = np.isfinite(mine) | np.isfinite(other)
    mine, other = mine[either], other[either]
    ratios = np.where(np.isfinite(mine), np.where(np.isfinite(other), mine / other, 0.0), np.inf)
    if len(ratios) == 0:
        return math.nan, math.nan, math.nan
    # Observed values only, so that infinity never meets zero in an average.
    lower, median, upper = np.quantile(ratios, [0.25, 0.5, 0.75], method="inverted_cdf")
    return float(lower), float(median), float(upper)


def pivot(races: pd.DataFrame, column: str) -> pd.DataFrame:
    """Problems as rows, competitors as columns; every problem that every competitor has run."""
    return races.pivot(index=PROBLEM, columns="competitor", values=column)


def varying(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """The rows of the series in which only ``column`` varies."""
    shapes = set(SERIES[column])
    inside = [shape in shapes for shape in zip(frame["samples"], frame["features"], frame["condition"], strict=True)]
    return frame[inside].sort_values(column)
