"""Where we win and where we lose, as sentences computed from the tables: nobody has to read a table to find out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from levelport.lab.bench import tables
from levelport.lab.bench.competitors import ADAMW, ALONE, LBFGS, LBFGS_60, NEWTON_CG, NO_CLIMB, OURS, PUBLISHED
from levelport.lab.bench.goals import HARD
from levelport.lab.bench.suites import HELD_OUT
from levelport.lab.bench.tables import pivot, varying


def sentences(frames: dict[str, pd.DataFrame]) -> list[str]:
    """What the tables say, good and bad alike."""
    races = frames["benchmark"]
    said = []
    logistic = races[(races["suite"] == "logistic") & (races["seed"] == 0)]
    if not logistic.empty:
        costs = pivot(logistic, "cost_1e-10")
        for rival in (ALONE, PUBLISHED, NEWTON_CG, LBFGS, LBFGS_60, "torch LBFGS", NO_CLIMB):
            if rival in costs:
                said.append(f"Logistic, 1e-10: {_comparison(costs[OURS], costs[rival], rival)}")
        hard = costs[costs[LBFGS] > HARD]
        wins = [_short(key) for key, row in hard.iterrows() if row[OURS] <= row[LBFGS]]
        losses = [_short(key) for key, row in hard.iterrows() if row[OURS] > row[LBFGS]]
        said.append(
            f"Where L-BFGS-B needs more than {HARD:g}, we are cheaper on {', '.join(wins) or 'none'}, dearer on "
            f"{', '.join(losses) or 'none'}."
        )
    held_out = races[(races["suite"] == "logistic") & (races["seed"] == HELD_OUT)]
    if not held_out.empty:
        costs = pivot(held_out, "cost_1e-10")
        for rival in (NEWTON_CG, LBFGS, LBFGS_60):
            if rival in costs:
                said.append(
                    f"Splits on which nothing was tuned, 1e-10: {_comparison(costs[OURS], costs[rival], rival)}"
                )
    said += _growth_sentences(frames["benchmark-growth"])
    said += _seconds_sentences(frames["benchmark-seconds"])
    said += _network_sentences(frames)
    return said


def _seconds_sentences(timings: pd.DataFrame) -> list[str]:
    """The same comparison by the clock."""
    if timings.empty:
        return []
    spent = pivot(timings, "seconds_1e-10")
    words = []
    for name in (ALONE, NEWTON_CG, LBFGS):
        if name in spent:
            _, middle, _ = tables.ratio_quartiles(spent[OURS], spent[name])
            words.append(f"{middle:.2f} times as long as {name}")
    return [
        f"In seconds, {len(spent)} small logistic problems, 1e-10: we take {', '.join(words)} (medians). "
        "Evaluations are short there, so our own Python counts, and a closed-form HVP is cheaper than the two "
        "gradients it is charged as."
    ]


def _growth_sentences(frame: pd.DataFrame) -> list[str]:
    """Our cost against that of L-BFGS-B as the condition number grows."""
    if frame.empty:
        return []
    series = varying(frame, "condition").pivot(index="condition", columns="competitor", values="gradient_equivalents")
    if OURS not in series or LBFGS not in series:
        return []
    words = [f"{row[OURS]:g} against {row[LBFGS]:g} at {condition:.0e}" for condition, row in series.iterrows()]
    return [
        "Synthetic logistic problems, cost to 1e-6, ours against L-BFGS-B by condition number: "
        f"{', '.join(words).replace('e+0', 'e')}."
    ]


def _comparison(ours: pd.Series, theirs: pd.Series, name: str) -> str:
    both = ours.notna() & theirs.notna()
    lower, middle, upper = tables.ratio_quartiles(ours[both], theirs[both])
    word = "cheaper than" if middle < 1.0 else "dearer than"
    factor = middle if middle >= 1.0 else (1.0 / middle if middle > 0.0 else np.inf)
    words = (
        "(it mostly fails)" if np.isinf(factor) else f"by a factor of {factor:.2f} (median; our cost is {lower:.2f} to "
    )
    if not np.isinf(factor):
        words += f"{upper:.2f} of its, quartiles)"
    wins = int((ours[both] < theirs[both]).sum())
    solved = f"it solves {int(np.isfinite(theirs[both]).sum())}, we {int(np.isfinite(ours[both]).sum())}"
    return f"{word} {name} {words}; cheaper on {wins} of {int(both.sum())}; {solved}."


def _short(key: Any) -> str:
    _, name, reg, _ = key
    return f"{name.partition('/')[2]} ({reg:g})"


def _network_sentences(frames: dict[str, pd.DataFrame]) -> list[str]:
    said = []
    races = frames["benchmark"]
    networks = races[races["suite"] == "network"]
    for rival in (ALONE, NO_CLIMB, LBFGS, LBFGS_60, ADAMW):
        words = []
        for budget in tables.LOSS_BUDGETS:
            losses = pivot(networks, f"loss_{budget}")
            if rival not in losses or OURS not in losses:
                continue
            both = losses[[OURS, rival]].dropna()
            if len(both):
                ratios = both[OURS] / both[rival]
                words.append(
                    f"{ratios.median():.2f} after {budget} (lower on {int((ratios < 1).sum())} of {len(ratios)})"
                )
        if words:
            said.append(f"Networks: our loss relative to that of {rival}, median: {', '.join(words)}.")
    return said
