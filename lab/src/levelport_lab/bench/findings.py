"""What the tables say, all of it computed from them: our goals, met or not, and where we win and where we lose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from levelport.solvers import Krylov
from levelport_lab.bench import tables
from levelport_lab.bench.competitors import (
    ADAMW,
    ALONE,
    LBFGS,
    LBFGS_60,
    NEWTON_CG,
    NEWTON_CG_DIFFERENCES,
    NO_CLIMB,
    OUR_LBFGS,
    OURS,
    OURS_EXACT,
    PUBLISHED,
    RANDOM_CLIMB,
)
from levelport_lab.bench.optimality import ALLOWED_COST, LONG, TRIED_HVPS
from levelport_lab.bench.own_cost import LARGE
from levelport_lab.bench.suites import SPLITS
from levelport_lab.bench.tables import pivot, varying
from levelport_lab.claims import Claim
from levelport_lab.problems.registry import problem

NEWTON_METHODS = (NEWTON_CG, NEWTON_CG_DIFFERENCES)

HARD = 300.0
"""A logistic problem is hard if L-BFGS-B needs more than this for 1e-10."""


def logistic_goals(races: pd.DataFrame) -> list[Claim]:
    """Goal 1: at least as many as GD at every budget from 100, all of them in the end, the rivals' medians."""
    ran_everywhere = set() if races.empty else set(pivot(races, "cost_1e-10").dropna(axis="columns").columns)
    if not {OURS, ALONE, LBFGS, NEWTON_CG} <= ran_everywhere:
        return [Claim("Logistic problems", None, "not run by everybody on all problems")]
    goals = []
    for tau in (1e-6, 1e-10):
        costs = pivot(races, f"cost_{tau:g}")
        ours, alone = costs[OURS], costs[ALONE]
        budgets = np.unique(np.concatenate([[100.0], ours[np.isfinite(ours)], alone[np.isfinite(alone)]]))
        lead = [int((ours <= b).sum() - (alone <= b).sum()) for b in budgets if b >= 100.0]
        goals.append(
            Claim(
                f"τ = {tau:g}: solves at least as many as GD-Armijo at every budget from 100 on",
                min(lead) >= 0,
                f"the lead is between {min(lead)} and {max(lead)} of {len(costs)} problems; at 100: "
                f"{int((ours <= 100).sum())} against {int((alone <= 100).sum())}",
            )
        )
        failed = int(np.isinf(costs[NEWTON_CG]).sum())
        goals.append(
            Claim(
                f"τ = {tau:g}: solves all in the end",
                bool(np.isfinite(ours).all()),
                f"{int(np.isfinite(ours).sum())} of {len(costs)} (Newton-CG fails {failed}, GD-Armijo "
                f"{int(np.isinf(alone).sum())})",
            )
        )
        for rival, most in ((NEWTON_CG, 1.0), (NEWTON_CG_DIFFERENCES, 1.0), (LBFGS, 3.0)):
            if rival not in ran_everywhere:
                continue
            median = ours.median() / costs[rival].median()
            lower, middle, upper = tables.ratio_quartiles(ours, costs[rival])
            goals.append(
                Claim(
                    f"τ = {tau:g}: median cost at most {most:g} times that of {rival}",
                    bool(median <= most),
                    f"medians {ours.median():.4g} and {costs[rival].median():.4g}, ratio {median:.2f}; problem by "
                    f"problem the median ratio is {middle:.2f} (quartiles {lower:.2f} to {upper:.2f})",
                )
            )
    costs = pivot(races, "cost_1e-10")
    hard = costs[costs[LBFGS] > HARD]
    below = int((hard[OURS] <= hard[LBFGS]).sum())
    goals.append(
        Claim(
            f"where L-BFGS-B needs more than {HARD:g}: at most its own cost",
            below == len(hard),
            f"on {below} of {len(hard)} problems; ratios from {(hard[OURS] / hard[LBFGS]).min():.2f} to "
            f"{(hard[OURS] / hard[LBFGS]).max():.2f}, median {(hard[OURS] / hard[LBFGS]).median():.2f}",
        )
    )
    lower, middle, upper = tables.ratio_quartiles(costs[OURS], costs[LBFGS])
    goals.append(Claim("stretch: at most L-BFGS-B's median", middle <= 1.0, f"median ratio {middle:.2f} at 1e-10"))
    return goals


def network_goals(pairs: pd.DataFrame) -> list[Claim]:
    """Goal 2: never more than 5 % above GD from 100 on; lower at 1000 and 3000 on 80 % with reg ≤ 1e-4."""
    if pairs.empty:
        return [Claim("Networks", None, "not run")]
    longest = pairs.sort_values("budget").drop_duplicates(tables.PROBLEM, keep="last")
    above = longest[longest["worst_ratio"] > 1.05]
    worst = longest.sort_values("worst_ratio").iloc[-1]
    goals = [
        Claim(
            "networks: never more than 5 % above GD-Armijo at any budget from 100 on",
            above.empty,
            f"above on {len(above)} of {len(longest)} problems; the worst is {worst['worst_ratio']:.3f} times on "
            f"{worst['problem']}, reg {worst['reg']:g}, at {worst['worst_at']:.0f}",
        )
    ]
    for budget in (1000, 3000):
        column = f"ratio_{budget}"
        all_weak = longest[(longest["reg"] <= 1e-4) & (longest["seed"] == 0)]
        weak = all_weak[all_weak[column].notna()] if column in all_weak else all_weak.head(0)
        if weak.empty:
            goals.append(Claim(f"networks, reg ≤ 1e-4: lower at {budget} on 80 %", None, "not run"))
            continue
        lower = int((weak[column] < 1.0).sum())
        goals.append(
            Claim(
                f"networks, reg ≤ 1e-4: lower at {budget} on at least 80 % of the problems",
                lower >= 0.8 * len(weak) if len(weak) > 0.5 * len(all_weak) else None,  # a few decide nothing
                f"{lower} of {len(weak)} run; median ratio of losses {weak[column].median():.3f}",
            )
        )
    return goals


def optimality_goals(frame: pd.DataFrame) -> list[Claim]:
    """Goal 3: within 1 % of the best norm on 95 %, at most 60 HVPs and 150 gradient equivalents; never infeasible."""
    if frame.empty:
        return [Claim("Optimality of teleports", None, "not run")]
    total, most = len(frame), TRIED_HVPS[-1]
    near = {b: frame[f"auto_{b}_norm"] >= 0.99 * frame["best_norm"] for b in TRIED_HVPS}
    both = {b: int((near[b] & (frame[f"auto_{b}_cost"] <= ALLOWED_COST)).sum()) for b in TRIED_HVPS}
    best = max(TRIED_HVPS, key=lambda b: both[b])
    ladder = [near[b] & (frame[f"auto_{b}_cost"] <= ALLOWED_COST) for b in TRIED_HVPS]
    any_budget = int(np.logical_or.reduce(ladder).sum())
    same_basin = int((frame[f"auto_{most}_norm"] >= 0.99 * frame["long_norm"]).sum())
    infeasible = sum(int((frame[f"auto_{b}_excess"] > 0).sum()) for b in TRIED_HVPS)
    cost = frame[f"auto_{most}_cost"]
    published = int((frame["published_norm"] >= 0.99 * frame["best_norm"]).sum())
    reached = near[best] & (frame[f"auto_{best}_cost"] <= ALLOWED_COST)
    by_start = [f"{int(hit.sum())} of {len(hit)} after {steps} steps" for steps, hit in reached.groupby(frame["steps"])]
    return [
        Claim(
            f"optimality: within 1 % of the best known norm on 95 % with at most {most} HVPs and {ALLOWED_COST:g} "
            "gradient equivalents",
            both[best] >= 0.95 * total,
            f"{both[best]} of {total} ({both[best] / total:.0%}) with max_hvps={best} ({', '.join(by_start)}), "
            f"{any_budget} with the best budget for each; {int(near[most].sum())} with {most} HVPs at any cost (median "
            f"{cost.median():.4g}, 95th percentile {cost.quantile(0.95):.4g}); {same_basin} come within 1 % of what "
            f"{LONG} HVPs reach from the same start, the others miss a higher maximum elsewhere on the level or need "
            "longer; "
            f"published solver: {published}",
        ),
        Claim(
            "optimality: never infeasible",
            infeasible == 0,
            f"{infeasible} of {len(TRIED_HVPS) * total} points above the level",
        ),
    ]


def overhead_goals(overheads: pd.DataFrame, memory: pd.DataFrame) -> list[Claim]:
    """Goal 4: own code below 15 % on magic and 5 % on a million parameters; at most 8 vectors besides the basis."""
    goals = []
    if overheads.empty:
        goals.append(Claim("overhead of our own code", None, "not run"))
    else:
        shares = overheads.pivot(index="where", columns="competitor", values="overhead")
        for label, row in shares.iterrows():
            limit = 0.05 if str(label).startswith("large") else 0.15 if "magic" in str(label) else None
            if limit is not None:
                others = [f"{name} {row[name]:.1%}" for name in (ALONE, LBFGS, NEWTON_CG) if np.isfinite(row[name])]
                figures = f"{row[OURS]:.1%} of the evaluations' processor time ({', '.join(others)})"
                goals.append(Claim(f"overhead on {label} below {limit:.0%}", bool(row[OURS] < limit), figures))
    if memory.empty or OURS not in set(memory["competitor"]):
        return [*goals, Claim("memory", None, "not run")]
    vectors = float(memory.set_index("competitor")["vectors_beyond_gradient_graph"][OURS])
    dimension = problem(LARGE).dimension
    basis = Krylov().capacity(dimension)
    alone = float(memory.set_index("competitor")["vectors_beyond_gradient_graph"].get(ALONE, np.nan))
    return [
        *goals,
        Claim(
            f"peak memory beyond the gradient graph at most 8 vectors plus the Krylov basis ({dimension} parameters)",
            vectors - basis <= 8.0,
            f"{vectors:.1f} vectors; the basis has up to {basis}, and plain GD takes {alone:.1f} (a second point with "
            "its graph)",
        ),
    ]


def opening(frames: dict[str, pd.DataFrame]) -> str:
    """Three plain sentences for the top of the page."""
    races, pairs = frames["benchmark"], frames["benchmark-networks"]
    said = [f"Who gets how far for how many evaluations: {len(races)} races, all charged by the same instrument."]
    logistic = races[(races["family"] == "logistic") & (races["seed"] == 0)]
    # A method that has not run everywhere is not compared: its problems may have been the easy ones.
    costs = pivot(logistic, "cost_1e-10").dropna(axis="columns") if not logistic.empty else logistic
    if OURS in costs and len(costs.columns) > 1:
        medians = costs.median()
        ratios = {name: tables.ratio_quartiles(costs[OURS], costs[name])[1] for name in costs if name != OURS}
        against = [
            f"{ratios[name]:.2f} of that of {name}" for name in (ALONE, *NEWTON_METHODS, LBFGS) if name in ratios
        ]
        said.append(
            f"On {len(costs)} logistic problems, to 1e-10, the cost of `minimize` is {', '.join(against)} (medians, "
            f"problem by problem); the cheapest of those that ran on all is {medians.idxmin()}."
        )
    if not pairs.empty and "ratio_1000" in pairs:
        said.append(
            f"On networks its loss after 1000 gradient equivalents is {pairs['ratio_1000'].median():.2f} of that of "
            "gradient descent with the same line search (median)."
        )
    return "\n".join(said) + "\n"


def sentences(frames: dict[str, pd.DataFrame]) -> list[str]:
    """What the tables say, good and bad alike."""
    races = frames["benchmark"]
    said = []
    logistic = races[(races["family"] == "logistic") & (races["seed"] == 0)]
    if not logistic.empty:
        costs = pivot(logistic, "cost_1e-10")
        controls = (OURS_EXACT, NO_CLIMB, RANDOM_CLIMB)
        for rival in (ALONE, PUBLISHED, *NEWTON_METHODS, LBFGS, LBFGS_60, OUR_LBFGS, "torch LBFGS", *controls):
            if rival in costs:
                said.append(f"Logistic, 1e-10: {_comparison(costs[OURS], costs[rival], rival)}")
        hard = costs[costs[LBFGS] > HARD]
        wins = [_short(key) for key, row in hard.iterrows() if row[OURS] <= row[LBFGS]]
        losses = [_short(key) for key, row in hard.iterrows() if row[OURS] > row[LBFGS]]
        said.append(
            f"Where L-BFGS-B needs more than {HARD:g}, we are cheaper on {', '.join(wins) or 'none'}, dearer on "
            f"{', '.join(losses) or 'none'}."
        )
    for seed, name in list(SPLITS.items())[1:]:
        split = races[(races["family"] == "logistic") & (races["seed"] == seed)]
        if split.empty:
            continue
        costs = pivot(split, "cost_1e-10")
        for rival in (*NEWTON_METHODS, LBFGS, LBFGS_60, OURS_EXACT, NO_CLIMB, RANDOM_CLIMB):
            if rival in costs:
                said.append(f"The {name} split, 1e-10: {_comparison(costs[OURS], costs[rival], rival)}")
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
    for name in (ALONE, *NEWTON_METHODS, LBFGS):
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
    networks = races[races["family"] == "network"]
    if networks.empty:
        return []
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
