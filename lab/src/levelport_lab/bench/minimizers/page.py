"""Tables and picture of the comparison: ``python -m levelport_lab.bench.minimizers.page docs/results`` writes them.

Everything is computed from ``minimizers.csv`` in that directory; the prose of ``minimizers.md`` is written by hand.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from levelport_lab.bench.minimizers.arms import (
    BEFORE,
    DROPPED,
    LBFGS_10,
    LBFGS_60,
    LBFGS_200,
    MEMORY,
    NEWTON_CG,
    NEWTON_CG_DIFFERENCES,
    NO_CLIMB,
    OURS,
    RANDOM,
)
from levelport_lab.bench.minimizers.study import ACCURACIES
from levelport_lab.bench.pictures import performance_profiles
from levelport_lab.bench.report import Table, ratio, with_tables
from levelport_lab.pictures import BLACK, BLUE, GREEN, GREY, ORANGE, save
from levelport_lab.problems.atomic import write_text

HARD = 300.0
"""A problem is hard if L-BFGS-B with 10 pairs needs more than this, or never gets there."""

LOOKS: dict[str, dict[str, Any]] = {
    OURS: {"color": ORANGE},
    MEMORY: {"color": ORANGE, "linestyle": (0, (3, 1.5))},
    BEFORE: {"color": BLUE},
    LBFGS_10: {"color": BLACK},
    LBFGS_60: {"color": BLACK, "linestyle": (0, (3, 1.5))},
    LBFGS_200: {"color": BLACK, "linestyle": (0, (1, 1))},
    NEWTON_CG: {"color": GREEN},
    NEWTON_CG_DIFFERENCES: {"color": GREEN, "linestyle": (0, (3, 1.5))},
    "pytorch-minimize L-BFGS": {"color": GREY},
}


def spent(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """A row per problem, a column per arm; infinite where an arm did not get there, NaN where it did not run."""
    return rows.pivot_table(index="problem", columns="arm", values=column, aggfunc="first", dropna=False)


def ratios(rows: pd.DataFrame, arm: str, other: str, column: str = "cost_1e-10") -> pd.Series:
    """``arm`` over ``other`` on the problems that ``other`` solves and both have run."""
    table = spent(rows, column)
    if arm not in table or other not in table:
        return pd.Series(dtype=float)
    return (table[arm] / table[other])[np.isfinite(table[other])].dropna()


def median_and_range(values: pd.Series) -> str:
    """The median, the smallest and the largest value."""
    if not len(values):
        return "-"
    return f"{ratio(values.median())} ({ratio(values.min())} to {ratio(values.max())})"


def sets(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The sets of problems with a known optimum, by name, hard parts beside them."""
    known = rows[rows["group"] != "network"]
    found: dict[str, pd.DataFrame] = {}
    for name, part in (
        ("others, reported half", known[known["half"] == "reported"]),
        *((f"logistic, {split}", known[known["half"] == split]) for split in ("split 0", "split 1", "split 2")),
    ):
        costs = part[part["arm"] == LBFGS_10].set_index("problem")["cost_1e-10"]
        hard = part[part["problem"].isin(costs[costs > HARD].index)]
        found |= {f"{name}: {each['problem'].nunique()}{what}": each for each, what in ((part, ""), (hard, " hard"))}
    return {name: part for name, part in found.items() if len(part)}


def against_lbfgs(rows: pd.DataFrame) -> Table:
    """The default over L-BFGS-B, set by set."""
    others = (LBFGS_10, LBFGS_200, MEMORY)
    lines = [[name, *(median_and_range(ratios(part, OURS, o)) for o in others)] for name, part in sets(rows).items()]
    return Table("against L-BFGS", ("problems", "/ 10 pairs", "/ 200 pairs", "/ memory alone"), lines)


def arms(rows: pd.DataFrame) -> Table:
    """Every arm on the reported half, on the logistic problems of split 0 and on networks."""
    networks = rows[(rows["group"] == "network") & (rows["half"] == "reported")]
    others = rows[(rows["half"] == "reported") & (rows["group"] != "network")]
    lines = []
    for arm in dict.fromkeys(others["arm"]):
        line = [arm]
        for part in (others, rows[rows["half"] == "split 0"]):
            own = part[part["arm"] == arm]
            solved = int(np.isfinite(own["cost_1e-10"]).sum())
            line += [f"{solved} of {len(own)}", ratio(ratios(part, OURS, arm).median())]
        losses = ratios(networks, OURS, arm, "loss_1000")
        lines.append([*line, ratio(losses.median()) if len(losses) else "-"])
    header = ("method", "others solved", "ours / this", "logistic solved", "ours / this", "network loss, ours / this")
    return Table("all arms", header, lines)


def parts(rows: pd.DataFrame) -> Table:
    """What memory, probes and climb contribute on problems that see a probe."""
    known = rows[rows["group"] != "network"]
    lines = []
    for name, part in (
        ("others, reported half", known[known["half"] == "reported"]),
        ("logistic, split 0", known[known["half"] == "split 0"]),
    ):
        costs = part[part["arm"] == MEMORY].set_index("problem")["cost_1e-10"]
        long = part[part["problem"].isin(costs[costs > 80.0].index)]
        compared = (MEMORY, NO_CLIMB, DROPPED, RANDOM)
        if len(long):
            count = f"{name}: {long['problem'].nunique()}"
            lines.append([count, *(median_and_range(ratios(long, OURS, other)) for other in compared)])
    header = ("problems", "/ memory alone", "/ no climb", "/ pairs dropped", "/ random directions")
    return Table("parts", header, lines)


def profiles(rows: pd.DataFrame) -> Figure:
    """Draw the share of the reported half solved against the cost, one panel per accuracy."""
    part = rows[(rows["half"] == "reported") & (rows["group"] != "network")]
    titles = {name: name.removeprefix("SciPy ") for name in LOOKS}
    titles |= {BEFORE: "GD with teleports", NEWTON_CG_DIFFERENCES: "Newton-CG, differ."}
    return performance_profiles(part, "arm", ACCURACIES, LOOKS, titles)


def tables(rows: pd.DataFrame) -> list[Table]:
    """All tables of the page that have rows."""
    return [table for table in (against_lbfgs(rows), arms(rows), parts(rows)) if table.rows]


def main(directory: Path) -> None:
    """Write the picture and set the tables into the page."""
    rows = pd.read_csv(directory / "minimizers.csv")
    page = directory / "minimizers.md"
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    write_text(page, with_tables(text, tables(rows)))
    save(profiles(rows), directory / "minimizers.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
