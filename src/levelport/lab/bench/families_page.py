"""``families.md``: one move of every family, training with each at equal cost, and what follows from it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from levelport.lab.bench.families import FAMILIES, MOST_HVPS, FamilyMoveSpec
from levelport.lab.bench.families_training import DIVERGED, MOVES, NONE, PERIOD, FamilyTrainingSpec
from levelport.lab.engine.store import TaskResult
from levelport.lab.pictures import BLUE, GREY, ORANGE, new_figure

SURE = 0.9
"""The share of fresh runs that an arm has to win before the page says that it pays."""


def _of(results: Iterable[TaskResult], spec: type[FamilyMoveSpec] | type[FamilyTrainingSpec]) -> list[TaskResult]:
    wanted = (spec.kind, spec.revision)
    return [r for r in results if (r.spec["kind"], r.spec["revision"]) == wanted and not r.failed]


def moves(results: Iterable[TaskResult]) -> pd.DataFrame:
    """A row per move."""
    rows = [
        {
            "place": result.spec["place"]["network"],
            "seed": result.spec["seed"],
            "steps": result.spec["steps"],
            "family": result.spec["families"][int(run.setting)],
            **run.facts,
        }
        for result in _of(results, FamilyMoveSpec)
        for run in result.runs
    ]
    return pd.DataFrame(rows).sort_values(["place", "steps", "seed"], ignore_index=True) if rows else pd.DataFrame()


def training(results: Iterable[TaskResult]) -> pd.DataFrame:
    """A row per fresh run, with the loss of the same optimizer alone at equal cost and at equal processor time."""
    arms = _of(results, FamilyTrainingSpec)
    alone = {_where(arm.spec): arm for arm in arms if arm.spec["family"] == NONE}
    rows = []
    for arm in arms:
        plain = alone.get(_where(arm.spec))
        if plain is None:
            continue
        baseline = {run.facts["seed"]: run for run in plain.runs if run.facts["fresh"]}
        for run in (run for run in arm.runs if run.facts["fresh"]):
            other = baseline[run.facts["seed"]]
            seconds = min(run.facts["seconds"], other.facts["seconds"])
            rows.append(
                {
                    "place": arm.spec["place"]["network"],
                    "batch": arm.spec["batch"] or 0,
                    "optimizer": arm.spec["optimizer"],
                    "family": arm.spec["family"],
                    "schedule": arm.spec["schedule"],
                    "seed": int(run.facts["seed"]),
                    "step_size": run.setting,
                    "interior": run.facts["interior"],
                    "loss": run.final_value,
                    "alone": other.final_value,
                    "ratio": _ratio(run.final_value, other.final_value),
                    "ratio_at_equal_seconds": _ratio(_at(run.curves, seconds), _at(other.curves, seconds)),
                    "test_accuracy": run.facts["test_accuracy"],
                    "test_accuracy_alone": other.facts["test_accuracy"],
                    "seconds": run.facts["seconds"],
                    "budget": arm.spec["max_cost"],
                }
            )
    order = ["place", "batch", "optimizer", "schedule", "family", "seed"]
    return pd.DataFrame(rows).sort_values(order, ignore_index=True) if rows else pd.DataFrame()


def _where(spec: dict[str, Any]) -> tuple[Any, ...]:
    place = spec["place"]
    return (place["network"], place["samples"], spec["optimizer"], spec["batch"], spec["max_cost"], *spec["fresh"])


def _ratio(ours: float, theirs: float) -> float:
    if ours >= DIVERGED:
        return math.inf if theirs < DIVERGED else 1.0
    return ours / theirs


def _at(curves: dict[str, Any], seconds: float) -> float:
    index = int(np.searchsorted(curves["seconds"], seconds, side="right"))
    return float(curves["value"][max(index - 1, 0)])


def page(one: pd.DataFrame, trained: pd.DataFrame, environment: str) -> str:
    """The whole page in Markdown."""
    parts = [_HEAD, _rests_on(one, trained)]
    if not one.empty:
        parts += ["## One move\n", _MOVES, _moves_table(one)]
    if not trained.empty:
        parts += ["## Training at equal cost\n", _words(trained), "![ratios](families.png)\n", _training_table(trained)]
        parts += ["## Which family when\n", *_findings(trained), ""]
    parts.append(f"Measured with {environment}.\n")
    return "\n".join(parts)


_HEAD = """# The families of teleportation, head to head

Written by `levelport bench families --report docs/results`; single runs are in `families-moves.csv` and
`families-training.csv`. What the families are and on what each is exact is told in [symmetries](../symmetries.md).
"""


def _rests_on(one: pd.DataFrame, trained: pd.DataFrame) -> str:
    """How much was run, so that nobody takes the quick tier for the study."""
    places = sorted({*(one["place"] if not one.empty else ()), *(trained["place"] if not trained.empty else ())})
    moved = 0 if one.empty else len(one.groupby(["place", "seed", "steps"]))
    fresh = 0 if trained.empty else trained["seed"].nunique()
    mnist = any("mnist" in place for place in places)
    said = f"This page rests on {', '.join(places)}: {moved} points to move from, {fresh} fresh seeds of training."
    if not mnist:
        said += (
            "\n**It is the quick tier**: full batches and small data alone. What mini-batches, MNIST and more seeds"
            "\nshow is the full tier's to say (`levelport bench families --tier full`), which has not been run yet."
        )
    return said + "\n"


_MOVES = f"""ReLU networks at their start → after 50 steps of GD-Armijo; medians over data sets and seeds. *Cost* in
gradient equivalents (value ½, gradient 1, HVP 2) without a certificate; level-set and null-space moves may take
{MOST_HVPS} HVPs. *Step*: the best decrease of one gradient step after the move, from the value before it, relative to
that without the move; *predicted* is the same by ‖g‖⁴/(2gᵀHg) alone. *Random direction* is the control: as far as
*rescaling 2* goes, anywhere.
"""


def _moves_table(one: pd.DataFrame) -> str:
    lines = ["| family | cost | gain in ‖g‖ | change of f | predicted | step |", "| --- |" + " ---: |" * 5]
    for family in [name for name in FAMILIES if name in set(one["family"])]:
        rows = one[one["family"] == family]
        early, late = (rows[rows["steps"] == steps] for steps in (0, 50))

        def pair(column: str, form: str, early: pd.DataFrame = early, late: pd.DataFrame = late) -> str:
            return " → ".join(format(float(half[column].median()), form) for half in (early, late))

        cells = [pair("gradient_equivalents", ".3g"), pair("gain", ".2f"), pair("change", "+.1e")]
        cells += [pair("predicted_gain", ".2f"), pair("step", ".2f")]
        lines.append(f"| {family} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def _words(trained: pd.DataFrame) -> str:
    budgets = ", ".join(f"{b:g}" for b in sorted(trained["budget"].unique()))
    return (
        f"Budget {budgets} gradient equivalents, moves included; step sizes tuned per arm on seeds of their own,\n"
        "ratios on fresh seeds. *start*: one move before the first step; *every*: at most "
        f"{MOVES} moves, {PERIOD} steps\n"
        "apart, as the budget allows. A ratio below 1 is a lower training loss than the same optimizer alone, seed by\n"
        "seed; seconds are processor time. *Edge* counts runs whose tuned step size lay at the edge of the grid,\n"
        "which makes a comparison void.\n"
    )


def _training_table(trained: pd.DataFrame) -> str:
    lines = [
        "| optimizer | batch | schedule | family | loss ratio, median (worst) | at equal seconds | lower | "
        "test accuracy gained | edge |",
        "| --- | --- | --- | --- |" + " ---: |" * 5,
    ]
    for key, rows in trained[trained["family"] != NONE].groupby(["optimizer", "batch", "schedule", "family"]):
        optimizer, batch, schedule, family = key
        gained = float((rows["test_accuracy"] - rows["test_accuracy_alone"]).mean())
        lines.append(
            f"| {optimizer} | {batch or 'full'} | {schedule} | {family} | {rows['ratio'].median():.3f} "
            f"({rows['ratio'].max():.3g}) | {rows['ratio_at_equal_seconds'].median():.3f} | "
            f"{int((rows['ratio'] < 1.0).sum())} of {len(rows)} | {100 * gained:+.1f} % | "
            f"{int((rows['interior'] == 0.0).sum())} |"
        )
    return "\n".join([*lines, ""])


def _findings(trained: pd.DataFrame) -> list[str]:
    """A sentence per optimizer, by a rule fixed beforehand: lower in nine of ten fresh runs, and below the control."""
    found = []
    for (optimizer, batch), rows in trained.groupby(["optimizer", "batch"]):
        control = rows[rows["family"] == "random direction"]["ratio"].median()
        pays: list[str] = []
        edge: list[str] = []
        for (family, schedule), arm in rows[rows["family"] != NONE].groupby(["family", "schedule"]):
            if float((arm["ratio"] < 1.0).mean()) >= SURE and arm["ratio"].median() < control:
                (pays if (arm["interior"] == 1.0).all() else edge).append(f"{family} ({schedule})")
        baseline = rows[rows["family"] == NONE]
        if not (baseline["interior"] == 1.0).all():
            edge, pays = [*edge, *pays, "the optimizer alone"], []
        size = "full batch" if batch == 0 else f"batches of {batch}"
        sentence = f"* {optimizer}, {size}: " + (f"{'; '.join(pays)} paid." if pays else "no family paid.")
        if edge:
            sentence += f" With a step size at the edge of the grid, so undecided: {'; '.join(edge)}."
        found.append(sentence)
    rule = (
        f"\n*Paid* means: a lower loss than the same optimizer alone in at least {SURE:.0%} of the fresh runs,\n"
        "all step sizes in the interior of the grid, and a lower median than the random control. The rule was fixed\n"
        "before any result was seen."
    )
    return [*found, rule]


def picture(trained: pd.DataFrame) -> Figure:
    """Loss ratios of all fresh runs, a panel per optimizer."""
    optimizers = list(dict.fromkeys(trained["optimizer"]))
    figure, axes = new_figure(1, len(optimizers), width=2.6, height=2.6)
    families = [name for name in FAMILIES if name in set(trained["family"])]
    low, high = min(0.5, float(trained["ratio"].min())), max(2.0, min(1e2, float(trained["ratio"].max())))
    for number, (optimizer, axis) in enumerate(zip(optimizers, axes[0], strict=True)):
        for row, family in enumerate(families):
            arm = trained[(trained["optimizer"] == optimizer) & (trained["family"] == family)]
            color = GREY if family == "random direction" else BLUE if "level set" in family else ORANGE
            axis.plot(arm["ratio"].clip(low, high), [row] * len(arm), "o", color=color, markersize=3, alpha=0.6)
        axis.axvline(1.0, color=GREY, linewidth=0.8)
        axis.set_xscale("log")
        axis.set_xlim(low / 1.1, high * 1.1)
        axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_title(optimizer)
        axis.set_yticks(range(len(families)), families if number == 0 else [])
        axis.set_xlabel("loss / loss without moves")
    return figure
