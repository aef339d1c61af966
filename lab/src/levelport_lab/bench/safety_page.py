"""``safety.md``: does a teleport ever hurt a run? From the suite of that name."""

from __future__ import annotations

import pandas as pd

from levelport_lab.bench import safety
from levelport_lab.bench.competitors import OURS
from levelport_lab.bench.equal_cost import FACTOR, GROUPS, SINCE, TUNED, TUNING
from levelport_lab.bench.markdown import table
from levelport_lab.bench.safety import END, FRESH_SEEDS, SPIKE, STEPS
from levelport_lab.pages import folded

LIMIT = 1.05
"""How far above itself without teleports an optimizer may be."""


def page(twins: pd.DataFrame, pairs: pd.DataFrame, versions: str) -> str:
    """The page, from a row per run and a row per network and optimizer."""
    parts = ["# Does a teleport ever hurt a run?\n", _opening(twins, pairs), folded("How it was measured", _HEAD)]
    if not twins.empty:
        parts += ["## Step by step, against the same run without teleports\n", _TWINS, _twins(twins)]
    if not pairs.empty:
        parts += [
            "## At equal cost\n",
            _EQUAL_COST,
            _reach(pairs),
            _pairs(pairs),
            _above(pairs),
            _TUNING,
            _tuning(pairs),
        ]
    parts.append(f"Measured with {versions}.\n")
    return "\n".join(parts)


def _opening(twins: pd.DataFrame, pairs: pd.DataFrame) -> str:
    """Three plain sentences for the top of the page."""
    said = ["An optimizer that teleports by its defaults is compared with the same optimizer alone."]
    if not twins.empty:
        said.append(_verdict(twins))
    if not pairs.empty:
        above = int((pairs["worst"] > LIMIT).sum())
        said.append(
            f"At equal cost it is more than {LIMIT - 1:.0%} above on {above} of {len(pairs)} pairs of networks and "
            f"optimizers, {pairs['worst'].max() - 1:.1%} at the worst; at the end its loss is "
            f"{pairs['last'].median():.2f} of the other's (median)."
        )
    return "\n".join(said) + "\n"


def _verdict(twins: pd.DataFrame) -> str:
    unsafe = twins[twins["safe"] < 1]
    seeds = f"Step by step, seeds {twins['seed'].min():g} to {twins['seed'].max():g}, "
    if unsafe.empty:
        return f"{seeds}all {len(twins)} runs are finite and safe."
    named = [
        f"{row['optimizer']}, {row['schedule']}, {row['activation']}, seed {row['seed']:g} "
        f"(spike {row['spike']:.2f}, end {row['end']:.2f})"
        for _, row in unsafe.iterrows()
    ]
    return f"{seeds}**{len(unsafe)} of {len(twins)} runs are not safe**: {'; '.join(named)}."


def _twins(twins: pd.DataFrame) -> str:
    rows = []
    for (optimizer, schedule), group in twins.groupby(["optimizer", "schedule"], sort=False):
        medians = [group[group["activation"] == name]["end"].median() for name in safety.ACTIVATIONS]
        rows.append(
            [
                f"{optimizer}, {schedule}",
                str(len(group)),
                str(int(group["safe"].sum())),
                f"{int(group['teleports'].sum())}",
                f"{int(group['undone'].sum())}",
                f"{group['spike'].max():.2f}",
                f"{group['end'].max():.2f}",
                " / ".join(f"{median:.2f}" for median in medians),
            ]
        )
    last = f"median end: {' / '.join(safety.ACTIVATIONS)}"
    return table(["optimizer, schedule", "runs", "safe", "moves", "undone", "worst spike", "worst end", last], rows)


def _reach(pairs: pd.DataFrame) -> str:
    groups = [f"{name} {len(set(map(tuple, _of(pairs, name)[['problem', 'reg']].to_numpy())))}" for name in GROUPS]
    return f"Networks run: {', '.join(groups)} (of twenty each).\n"


def _of(pairs: pd.DataFrame, group: str) -> pd.DataFrame:
    names = {(each.name, each.reg, each.seed) for each in GROUPS[group]}
    inside = [key in names for key in zip(pairs["problem"], pairs["reg"], pairs["seed"], strict=True)]
    return pairs[inside]


def _pairs(pairs: pd.DataFrame) -> str:
    rows = []
    for group in GROUPS:
        for optimizer, each in _of(pairs, group).groupby("optimizer", sort=False):
            worst = each.sort_values("worst").iloc[-1]
            rows.append(
                [
                    f"{_called(str(optimizer))}, {group}",
                    str(len(each)),
                    f"{worst['worst']:.3f} (at {worst['at']:.0f})",
                    str(int((each["worst"] > LIMIT).sum())),
                    f"{each['last'].median():.2f} ({each['last'].min():.2f} to {each['last'].max():.2f})",
                ]
            )
    header = ["optimizer, networks", "pairs", "worst ratio", f"above {LIMIT:g}", "ratio at the end: median (range)"]
    return table(header, rows)


def _called(optimizer: str) -> str:
    return "minimize against GD-Armijo" if optimizer == OURS else optimizer


def _above(pairs: pd.DataFrame) -> str:
    above = pairs[pairs["worst"] > LIMIT].sort_values("worst", ascending=False)
    if above.empty:
        return f"No pair is ever more than {LIMIT - 1:.0%} above from {SINCE:g} on.\n"
    named = [
        f"{_called(row['optimizer'])} on {row['problem']}, reg {row['reg']:g} ({row['worst']:.3f} at {row['at']:.0f}, "
        f"{row['last']:.2f} at the end)"
        for _, row in above.iterrows()
    ]
    return f"**More than {LIMIT - 1:.0%} above on {len(above)} of {len(pairs)} pairs**: {'; '.join(named)}.\n"


def _tuning(pairs: pd.DataFrame) -> str:
    rows = []
    for name in TUNED:
        each = pairs[pairs["optimizer"] == name]
        if each.empty:
            continue
        sizes = each["lr"].value_counts().sort_index()
        rows.append(
            [
                name,
                ", ".join(f"{size:.3g} ({count})" for size, count in sizes.items()),
                f"{each['worse_below'].min():.3f} / {each['worse_above'].min():.3f}",
                f"{each['worse_below'].median():.2f} / {each['worse_above'].median():.2f}",
            ]
        )
    header = ["optimizer", "step sizes (networks)", "loss one below / above over the best: least", "median"]
    return table(header, rows)


_HEAD = """Written by `levelport bench safety --tier full --report docs/results`. Everything that was run is counted,
good or bad; single figures are in [safety.csv](safety.csv) and [safety-equal-cost.csv](safety-equal-cost.csv). Adam is
not in the second part: its default is not to teleport, so that with and without are the same run.
"""

_TWINS = f"""The network of the README (5-16-1, 64 samples, float32), {STEPS} steps, {len(FRESH_SEEDS)} seeds, four
activations; every 20 steps from the tenth, and by the default schedule. A run is *safe* if all losses are finite, none
is above {SPIKE:g} times both its own best so far and the twin's loss at that step (a spike), and the last is at most
{END - 1:.0%} above the twin's last (the end). The rules were made on the seeds 0 to 29; these seeds were fixed before
anybody had run them. Ends are compared at equal steps: a teleport costs evaluations that a step does not, so these
ratios say that nothing breaks, not that it pays.
"""

_EQUAL_COST = f"""Best loss so far over that of the same optimizer alone, at every cost from {SINCE:g} to 300 gradient
equivalents; float64, so that a product is a difference of gradients. Rules were made on the networks called
*development* (100-100 on five sets). *Confirmation* (20 units, five other sets) had been run in part with older rules,
one of its pairs was known to be above the limit, and no rule was chosen by it. *Fresh* (40-20, five more sets) was
fixed beforehand and run last.
"""

_TUNING = f"""Step sizes were tuned without teleports, by the last loss after {TUNING:g} gradient equivalents on a grid
with a factor of {FACTOR:.2f}, until both neighbours of the best were worse. (At first they were tuned by the best loss
so far. That chose a step size at which a development network blows up every sixty steps; the criterion was changed, and
the rule was added that no trial is made where losses jump.)
"""
