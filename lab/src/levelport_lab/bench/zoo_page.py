"""The zoo's results as a page: shares, geometric means, and the table of best known values that results improve."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from statistics import geometric_mean

import pandas as pd

from levelport_lab.bench.zoo import GROUPS, everyone
from levelport_lab.bench.zoo_run import BUDGETS, CONTESTANTS, Budget
from levelport_lab.engine.store import TaskResult
from levelport_lab.pages import folded
from levelport_lab.problems.atomic import write_text

HALVES = ("reported", "development")
_CALLED = {
    "statistical": "statistical models",
    "smooth": "smooth networks",
    "relu": "ReLU networks",
    "float32": "networks in float32",
}
_NORMS = [f"{budget.name}: norm" for budget in BUDGETS]
FIRST = "first_known"
"""The column of best known values as they were when the zoo was first measured: a yardstick that does not grow."""

MIDDLE = Budget(50)
"""The default budget of ``levelport.teleport``: the one that the opening speaks of."""


def zoo_table(results: Iterable[TaskResult]) -> pd.DataFrame:
    """One row per contestant and problem: what the referee saw at every budget."""
    animals = everyone()
    rows = []
    for result in results:
        if result.spec.get("kind") == "zoo" and result.spec["animal"] in animals and not result.failed:
            species = animals[result.spec["animal"]].species
            shared = {"problem": result.spec["animal"], "group": species.group, "half": species.half}
            rows.append({**shared, "solver": result.spec["contestant"], **result.best.facts})
    return pd.DataFrame(rows).sort_values(["problem", "solver"], ignore_index=True) if rows else pd.DataFrame()


def write_zoo(results: Iterable[TaskResult], directory: Path) -> list[Path]:
    """The page, its numbers, and the best known values.

    Best known values start from those that are in ``directory`` already. So do the numbers: a row of a solver on a
    problem stays until the store has a newer one.
    """
    results = list(results)
    table, numbers = zoo_table(results), directory / "solvers-zoo.csv"
    if table.empty:
        return []
    if numbers.exists():
        table = pd.concat([pd.read_csv(numbers), table]).drop_duplicates(["problem", "solver"], keep="last")
        table = table.sort_values(["problem", "solver"], ignore_index=True)
    kept = directory / "solvers-best.csv"
    known = pd.read_csv(kept) if kept.exists() else pd.DataFrame(columns=["problem", "gradient_norm", FIRST])
    before = dict(zip(known["problem"], known["gradient_norm"], strict=True))
    first = dict(known[["problem", FIRST]].dropna().itertuples(index=False, name=None)) if FIRST in known else {}
    references = [result for result in results if result.spec.get("kind") == "zoo-reference" and not result.failed]
    for result in references:
        name = result.spec["animal"]
        before[name] = max(before.get(name, 0.0), result.best.facts["norm"])
    best = best_known(table, before)
    rows = [(name, norm, first.get(name)) for name, norm in best.items()]
    contents = {
        kept: pd.DataFrame(rows, columns=list(known.columns)).to_csv(index=False, float_format="%.8g"),
        numbers: table.to_csv(index=False, float_format="%.6g"),
        directory / "solvers-zoo.md": zoo_page(table, best, len(references), first),
    }
    for path, content in contents.items():
        write_text(path, content)
    return list(contents)


def best_known(table: pd.DataFrame, before: dict[str, float]) -> dict[str, float]:
    """The largest gradient norm on the level per problem: that of ``before``, unless it is beaten.

    By a contestant that keeps the level: near a minimum a slack of 1e-6 f is worth many times the gradient there.
    """
    best = dict(before)
    strict = [one.name for one in CONTESTANTS.values() if one.keeps_level]
    for name, rows in table[table["solver"].isin(strict)].groupby("problem"):
        found = max(max(rows[column].tolist()) for column in _NORMS)
        best[str(name)] = max(found, best.get(str(name), 0.0))
    return dict(sorted(best.items()))


def capped(table: pd.DataFrame, best: dict[str, float]) -> pd.DataFrame:
    """No norm above the best known: what is reached beside the level counts as reached on it.

    Problems on which nobody has run who keeps the level have no best known value yet, and are left out.
    """
    table = table[table["problem"].isin(best)]
    known = table["problem"].map(best)
    return table.assign(**{column: table[column].clip(upper=known) for column in _NORMS})


def cell(ratios: list[float]) -> str:
    """Shares within 1 %, 10 % and a factor 2 of the best known, in percent, and the geometric mean of the ratios."""
    shares = "/".join(f"{100.0 * sum(r >= bound for r in ratios) / len(ratios):.0f}" for bound in (0.99, 0.9, 0.5))
    return f"{shares} {geometric_mean(ratios):.2f}"


def opening(table: pd.DataFrame, best: dict[str, float]) -> str:
    """Three plain sentences, about the half that the default was not developed on where it has been run."""
    half = next((half for half in HALVES if half in set(table["half"])), HALVES[0])
    rows = table[table["half"] == half]

    def reached(solver: str) -> str:
        shares = []
        for group in GROUPS:
            mine = rows[(rows["solver"] == solver) & (rows["group"] == group)]
            norms = zip(mine["problem"], mine[f"{MIDDLE.name}: norm"], strict=True)
            ratios = [norm / best[name] for name, norm in norms]
            if ratios:
                shares.append(f"{_CALLED[group]} {geometric_mean(ratios):.2f}")
        return ", ".join(shares) or "not run"

    return (
        f"How near do the solvers come to the largest gradient norm on the level set, on {rows['problem'].nunique()} "
        f"problems{' that nothing was developed on' if half == 'reported' else ''}?\n"
        f"With {MIDDLE.amount} Hessian-vector products the default, `auto`, reaches of the best known norm "
        f"(geometric means): {reached('auto')}.\n"
        f"The paper's algorithm reaches, as its text has it: {reached('SQP, text')}; as its authors ran it: "
        f"{reached('SQP, released')}."
    )


def losses(table: pd.DataFrame, best: dict[str, float]) -> str:
    """Who is ahead of the default, where, by geometric mean: groups and budgets of either kind.

    With the mean of log(solver/default) over the problems and its standard error: groups are small.
    """
    ahead = []
    for half in HALVES:
        for group in GROUPS:
            rows = table[(table["half"] == half) & (table["group"] == group)]
            if "auto" not in set(rows["solver"]):
                continue
            for budget in BUDGETS:
                ratio = (rows[f"{budget.name}: norm"] / rows["problem"].map(best)).map(math.log)
                logs = pd.DataFrame({"solver": rows["solver"], "problem": rows["problem"], "log": ratio})
                logs = logs.pivot(index="problem", columns="solver", values="log")
                means = logs.mean().map(math.exp)
                everywhere = rows.groupby("solver")["problem"].nunique() == rows["problem"].nunique()
                others = ~means.index.str.startswith("auto")
                for solver in means.index[others & everywhere & (means > means["auto"])]:
                    lead = logs[solver] - logs["auto"]
                    ahead.append(
                        f"| {solver} | {half} | {group} | {_in_words(budget)} | {means[solver]:.3f} | "
                        f"{means['auto']:.3f} | {lead.mean():.3f} ± {lead.sem():.3f} |"
                    )
    among = (
        "Of the contestants that have run on all problems of a group, and leaving out the default itself with "
        "differences\nfor products, ahead of the default in any group and with any budget, by geometric mean"
    )
    if not ahead:
        return f"{among}: nobody."
    heads = [f"{among}:", ""]
    heads += ["| solver | half | group | budget | it reaches | the default | log of the ratio |"]
    return "\n".join([*heads, "| --- | --- | --- | --- | ---: | ---: | ---: |", *ahead])


def by_first_yardstick(table: pd.DataFrame, first: dict[str, float]) -> str:
    """What the default and plain L-BFGS reach of the values that were best known when the zoo was first measured."""
    budgets = [Budget(25), MIDDLE, Budget(100), Budget(150, "ge")]
    known = table[table["problem"].isin(first)]
    groups = [group for group in GROUPS if group in set(known["group"])]
    counts = [f"{group} ({known.loc[known['group'] == group, 'problem'].nunique()})" for group in groups]
    lines = [
        "Best known values are mostly what the default itself finds with 200 HVPs: a yardstick that grows with it.",
        "Those that were best known when the zoo was first measured do not; the contestants of that day had found them",
        "with at most 100 HVPs. More than them counts as reached. Geometric means at 25, 50 and 100 HVPs and at 150",
        "gradient equivalents:",
        "",
        f"| | {' | '.join(counts)} |",
        "| --- |" + " --- |" * len(groups),
    ]
    for solver in ("auto", "L-BFGS"):
        cells = []
        for group in groups:
            rows = known[(known["solver"] == solver) & (known["group"] == group)]
            goal = rows["problem"].map(first)
            reached = [(rows[f"{budget.name}: norm"] / goal).clip(upper=1.0).map(math.log).mean() for budget in budgets]
            cells.append(" / ".join(f"{math.exp(mean):.2f}" for mean in reached))
        lines.append(f"| {solver} | {' | '.join(cells)} |")
    return "\n".join(lines)


GOALS: tuple[tuple[str, Budget, float | None, float], ...] = (
    ("statistical", MIDDLE, 0.01, 0.9),
    ("smooth", MIDDLE, None, 0.6),
    ("relu", MIDDLE, None, 0.6),
    ("smooth", Budget(150, "ge"), None, 0.5),
    ("relu", Budget(150, "ge"), None, 0.5),
)
"""Group, budget, within what of the best known, and the share that is to be; without a distance, the geometric mean."""


def goals(table: pd.DataFrame, best: dict[str, float], first: dict[str, float]) -> str:
    """What was aimed at when the zoo was made, by both yardsticks: nobody had found more then than the first one."""
    rows = table[(table["half"] == HALVES[0]) & (table["solver"] == "auto")]
    lines = [
        "The goals that the default was given when the zoo was made, on the reported half:",
        "",
        "| group | budget | goal | of the best known today | of the first best known |",
        "| --- | --- | --- | ---: | ---: |",
    ]
    for group, budget, distance, goal in GOALS:
        mine = rows[rows["group"] == group]
        cells = []
        for yardstick in (best, first):
            norms = zip(mine["problem"], mine[f"{budget.name}: norm"], strict=True)
            ratios = [min(1.0, norm / yardstick[name]) for name, norm in norms if name in yardstick]
            if not ratios:
                cells.append("")
                continue
            if distance is None:
                reached = geometric_mean(ratios)
            else:
                reached = sum(ratio >= 1.0 - distance for ratio in ratios) / len(ratios)
            cells.append(f"{reached:.2f}{'' if reached >= goal else ', missed'}")
        aim = f"a share of {goal:g} within {distance:.0%}" if distance is not None else f"a geometric mean of {goal:g}"
        lines.append(f"| {_CALLED[group]} | {_in_words(budget)} | {aim} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _in_words(budget: Budget) -> str:
    return f"{budget.amount} {'HVPs' if budget.unit == 'hvps' else 'gradient equivalents'}"


def zoo_page(
    table: pd.DataFrame, best: dict[str, float], references: int = 0, first: dict[str, float] | None = None
) -> str:
    """What it says in three sentences, then both halves, budget by budget; the middle budget stands open."""
    table = capped(table, best)
    lines = [
        "# Solvers of the teleportation problem in the zoo",
        "",
        opening(table, best),
        "",
        "Written by `levelport bench solvers --report docs/results`; numbers in `solvers-zoo.csv`, best known values",
        "in `solvers-best.csv`. Best known: the largest norm that a solver which never ends above the level has found,",
        f"at these budgets or in one of {references} runs with 200 HVPs; on networks more would be found for more.",
        "Solvers that may end slightly above the level are scored as at most 1. A cell holds the shares of those",
        "within 1 %, 10 % and a factor 2 of the best known, in percent, and the geometric mean of reached/best known;",
        "in brackets the number of problems where a contestant has not run on all (dense matrices up to 200 variables;",
        "differences in float64 only). The default was developed on the development half, and on problems for practice",
        "that are not in the race.",
    ]
    lines += ["", losses(table, best)]
    if first:
        lines += ["", by_first_yardstick(table, first), "", goals(table, best, first)]
    above = int((table[[f"{budget.name}: excess" for budget in BUDGETS]] > 0.0).any(axis=1).sum())
    lines += ["", f"Runs whose point lay above the level by more than its solver's slack: {above}."]
    for half in HALVES:
        rows = table[table["half"] == half]
        if rows.empty:
            continue
        sizes = {group: rows.loc[rows["group"] == group, "problem"].nunique() for group in GROUPS}
        lines += ["", f"## The {half} half", ""]
        if (few := rows["solver"].nunique()) < 3:
            lines += [f"Only {few} contestants have run here so far: the best known is little more than their own.", ""]
        heads = [f"{group} ({count})" for group, count in sizes.items()]
        for budget in BUDGETS:
            grid = [f"| | {' | '.join(heads)} |", "| --- |" + " --- |" * len(heads)]
            for name in CONTESTANTS:
                cells = []
                for group, count in sizes.items():
                    mine = rows[(rows["solver"] == name) & (rows["group"] == group)]
                    norms = zip(mine["problem"], mine[f"{budget.name}: norm"], strict=True)
                    ratios = [norm / best[problem] for problem, norm in norms]
                    cells.append(
                        "" if not ratios else cell(ratios) + ("" if len(ratios) == count else f" ({len(ratios)})")
                    )
                if any(cells):
                    grid.append(f"| {name} | {' | '.join(cells)} |")
            title, text = _in_words(budget), "\n".join(grid)
            lines.append(f"**{title}**\n\n{text}\n" if budget == MIDDLE else folded(title, text))
    return "\n".join(lines) + "\n"
