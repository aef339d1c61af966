"""The suites of the benchmark: what to run in two sizes, and how its results are summed up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from levelport.checks import unknown_name
from levelport_lab.atomic import write_text
from levelport_lab.bench import (
    cost_table,
    equal_cost,
    improving_results,
    instances,
    pictures,
    safety,
    solver_runs,
    tables,
)
from levelport_lab.bench.competitors import ADAMW, ALONE, CORE, LBFGS, NO_CLIMB, OTHERS, OURS
from levelport_lab.bench.improving import improve_specs
from levelport_lab.bench.intervals import results as interval_results
from levelport_lab.bench.intervals.suite import interval_specs
from levelport_lab.bench.minimizers import page as minimizers_page
from levelport_lab.bench.minimizers import study as minimizers
from levelport_lab.bench.races import RaceSpec
from levelport_lab.bench.report import Table, as_csv, merged, write_page
from levelport_lab.choices import Tier
from levelport_lab.engine.spec import RunSpec
from levelport_lab.engine.store import Store
from levelport_lab.pictures import save, small_print
from levelport_lab.problems.registry import REGULARIZATION

CONVEX_BUDGET, NETWORK_BUDGET = 5000.0, 1000.0
"""Gradient equivalents of a race."""

SMALL_SETS = 12


class NothingToReportError(ValueError):
    """The store has no results of a suite that was asked for."""


@dataclass(frozen=True)
class Suite:
    """A part of the benchmark.

    Attributes:
        specs: (tier, seed) ↦ the tasks.
        rows, key: the rows of the CSV file that is named after the suite, and the columns that identify one.
        tables: the tables that are printed and set into ``page``.
        picture: what the page shows beside them, if anything.
        seeded: whether it has other splits of the data into training and test samples, by seed.
    """

    specs: Callable[[Tier, int], list[RunSpec]]
    rows: Callable[[tables.Results], pd.DataFrame]
    key: list[str]
    tables: Callable[[pd.DataFrame], list[Table]]
    page: str
    picture: Callable[[pd.DataFrame], Figure] | None = None
    seeded: bool = False


def _everyone(tier: Tier) -> tuple[str, ...]:
    return (*CORE, *OTHERS) if tier == "full" else tuple(CORE)


def _logistic(tier: Tier, seed: int) -> list[RunSpec]:
    """Twenty data sets with six penalties; on the first split also the races that attribute the speed."""
    problems = [replace(problem, seed=seed) for problem in instances.logistic()]
    races: list[RunSpec] = [RaceSpec(p, name, CONVEX_BUDGET) for p in problems for name in _everyone(tier)]
    return races + ([*cost_table.specs()] if seed == 0 else [])


def _functions(tier: Tier, seed: int) -> list[RunSpec]:
    problems = (*instances.quadratics(), *instances.functions())
    return [RaceSpec(problem, name, CONVEX_BUDGET) for problem in problems for name in _everyone(tier)]


def _networks(tier: Tier, seed: int) -> list[RunSpec]:
    """Quick: one penalty. Full: three."""
    regs = (1e-2, 1e-4, 1e-6) if tier == "full" else (1e-4,)
    problems = instances.networks(instances.smallest_sets(SMALL_SETS), regs=regs, seeds=(seed,))
    return [RaceSpec(p, name, NETWORK_BUDGET) for p in problems for name in (ALONE, OURS, NO_CLIMB, LBFGS, ADAMW)]


def _solvers(tier: Tier, seed: int) -> list[RunSpec]:
    return solver_runs.specs(REGULARIZATION if tier == "full" else (1e-2, 1e-4, 1e-6))


def _safety(tier: Tier, seed: int) -> list[RunSpec]:
    return [*safety.specs(), *equal_cost.specs()] if tier == "full" else safety.specs(safety.FRESH_SEEDS[:5])


SUITES: dict[str, Suite] = {
    "logistic": Suite(
        _logistic,
        lambda results: tables.race_rows(results, ("logistic", "all samples")),
        tables.RACE,
        tables.logistic_tables,
        "benchmark",
        pictures.profiles,
        seeded=True,
    ),
    "functions": Suite(
        _functions,
        lambda results: tables.race_rows(results, ("quadratic", "function")),
        tables.RACE,
        tables.function_tables,
        "benchmark",
    ),
    "networks": Suite(
        _networks,
        lambda results: tables.race_rows(results, ("network",)),
        tables.RACE,
        tables.network_tables,
        "benchmark",
        pictures.networks,
        seeded=True,
    ),
    "minimizers": Suite(
        minimizers.minimizer_specs,
        minimizers.minimizer_rows,
        minimizers.KEY,
        minimizers_page.tables,
        "minimizers",
        minimizers_page.profiles,
    ),
    "solvers": Suite(_solvers, tables.solver_rows, tables.SOLVER, tables.solver_tables, "solvers"),
    "intervals": Suite(
        interval_specs,
        interval_results.interval_rows,
        interval_results.KEY,
        interval_results.interval_tables,
        "intervals",
    ),
    "improve": Suite(
        improve_specs,
        improving_results.improve_rows,
        improving_results.KEY,
        improving_results.improve_tables,
        "improve",
    ),
    "safety": Suite(_safety, tables.safety_rows, tables.SAFETY, tables.safety_tables, "safety"),
}
"""The suites by name, in the order in which they run."""


def suite_named(name: str) -> Suite:
    """Return the suite called ``name``, or raise an error with a suggestion."""
    if name not in SUITES:
        raise unknown_name("suite", name, SUITES)
    return SUITES[name]


def results(name: str, store: Store) -> pd.DataFrame:
    """Return the rows that the store holds of a suite."""
    rows = SUITES[name].rows(store.look().results.values())
    if rows.empty:
        raise NothingToReportError(
            f"there are no results of {name} in {store.root}; run 'levelport bench {name} --out {store.root}' first."
        )
    return rows


def write_report(name: str, rows: pd.DataFrame, directory: Path) -> list[Path]:
    """Add the rows to the suite's CSV file, set its tables into its page, draw its picture; return the files."""
    suite = SUITES[name]
    numbers, page = directory / f"{name}.csv", directory / f"{suite.page}.md"
    rows = merged(rows, numbers, suite.key)
    write_text(numbers, as_csv(rows))
    write_page(page, suite.tables(rows))
    if suite.picture is None:
        return [numbers, page]
    with small_print():
        return [numbers, page, *save(suite.picture(rows), directory / f"{name}.png")]
