"""Tables and picture of the comparison, computed from ``minimizers.csv``; the prose of the page is written by hand."""

from __future__ import annotations

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
from levelport_lab.bench.report import Table, ratio
from levelport_lab.pictures import BLACK, BLUE, GREEN, GREY, ORANGE

HARD = 300.0
"""A problem is hard if L-BFGS-B with 10 pairs needs more than this, or never gets there."""

PROBED = 80.0
"""What memory alone needs more than on problems that see a probe."""

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


def ratios(rows: pd.DataFrame, arm: str, other: str, column: str = "cost_1e-10") -> pd.Series:
    """``arm`` over ``other`` on the problems that ``other`` solves and both have run."""
    table = rows.pivot_table(index=["half", "problem"], columns="arm", values=column, aggfunc="first", dropna=False)
    if arm not in table or other not in table:
        return pd.Series(dtype=float)
    return (table[arm] / table[other])[np.isfinite(table[other])].dropna()


def median_and_range(values: pd.Series) -> str:
    """The median, the smallest and the largest value."""
    return f"{ratio(values.median())} ({ratio(values.min())}–{ratio(values.max())})" if len(values) else "-"


def longer(rows: pd.DataFrame, arm: str, cost: float) -> pd.DataFrame:
    """The problems on which ``arm`` needs more than ``cost``, or never gets to 1e-10."""
    long = rows[(rows["arm"] == arm) & (rows["cost_1e-10"] > cost)]
    return rows.merge(long[["half", "problem"]])


def compared(name: str, sets: dict[str, pd.DataFrame], others: dict[str, str]) -> Table:
    """The default over other arms, set by set, with the number of problems."""
    lines = []
    for title, part in sets.items():
        column = "loss_1000" if (part["group"] == "network").all() else "cost_1e-10"
        cells = [median_and_range(ratios(part, OURS, arm, column)) for arm in others.values()]
        count = part.groupby(["half", "problem"]).ngroups
        lines += [[f"{title}: {count}", *cells]] if count else []
    return Table(name, ("problems", *others), lines)


def tables(rows: pd.DataFrame) -> list[Table]:
    """All tables of the page that have rows.

    The default over L-BFGS; what the parts of a probe contribute where there is one; the other arms on the reported
    half and on the logistic problems of split 0.
    """
    reported, split = rows[rows["half"] == "reported"], rows[rows["half"] == "split 0"]
    others, logistic = reported[reported["group"] != "network"], rows[rows["group"] == "logistic"]
    sets = {
        "others": others,
        "others, hard": longer(others, LBFGS_10, HARD),
        "logistic": logistic,
        "logistic, hard": longer(logistic, LBFGS_10, HARD),
        "networks, loss": reported[reported["group"] == "network"],
    }
    lbfgs = {"/ 10 pairs": LBFGS_10, "/ 200 pairs": LBFGS_200, "/ memory alone": MEMORY}
    probed = {"others": longer(others, MEMORY, PROBED), "logistic, split 0": longer(split, MEMORY, PROBED)}
    controls = {"/ no climb": NO_CLIMB, "/ pairs dropped": DROPPED, "/ random directions": RANDOM}
    lines = []
    for arm in dict.fromkeys(others["arm"][~others["arm"].isin([OURS, *controls.values()])]):
        line = [arm.removeprefix("SciPy ")]
        for part in (others, split):
            own = part[part["arm"] == arm]
            line += [str(int(np.isfinite(own["cost_1e-10"]).sum())), ratio(ratios(part, OURS, arm).median())]
        lines.append(line)
    found = (
        compared("against L-BFGS", sets, lbfgs),
        compared("parts", probed, controls),
        Table("all arms", ("method", "others solved", "ratio", "logistic solved", "ratio"), lines),
    )
    return [table for table in found if table.rows]


def profiles(rows: pd.DataFrame) -> Figure:
    """Draw the share of the reported half solved against the cost, one panel per accuracy."""
    part = rows[(rows["half"] == "reported") & (rows["group"] != "network")]
    titles = {name: name.removeprefix("SciPy ") for name in LOOKS}
    titles |= {BEFORE: "GD with teleports", NEWTON_CG_DIFFERENCES: "Newton-CG, differ."}
    return performance_profiles(part, "arm", ACCURACIES, LOOKS, titles)
