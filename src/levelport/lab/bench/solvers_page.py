"""``solvers.md``: what the solvers of the teleportation problem reached, at what cost, which goals are missed."""

from __future__ import annotations

import math

import pandas as pd

from levelport.lab.bench.solvers import CONTESTANTS, HVP_BUDGETS, SLOW, UNLIMITED
from levelport.lab.pages import folded

OURS = "auto"
RIVAL = "SciPy SLSQP"
MOST = HVP_BUDGETS[-1]


def page(frame: pd.DataFrame, environment: str) -> str:
    """The whole page in Markdown, with sentences computed from the table."""
    problems = list(dict.fromkeys(frame["problem"]))
    parts = [
        "# Solvers of the teleportation problem\n",
        _opening(frame, problems),
        folded("How it was measured", _HEAD),
    ]
    parts += [_summary(frame, problems), _goals(frame, problems), "## Problem by problem\n"]
    parts += [_problem(frame[frame["problem"] == name]) for name in problems]
    parts.append(f"Measured with {environment}.\n")
    return "\n".join(parts)


_LIMITED = ", ".join(f"{c.name} above {c.max_dimension} variables" for c in CONTESTANTS if c.max_dimension < UNLIMITED)

_HEAD = f"""Written by `levelport bench solvers --report docs/results`; the numbers are in `solvers.csv`.

All solvers maximise ½ log ‖∇f‖² subject to f ≤ f(start), with the same gradients and Hessian-vector products (HVPs),
at most {MOST} HVPs, from the same starts. *auto* is the default of `levelport.teleport`; *explore=1* is the same
without the race between two basins; *published SQP* is the paper's algorithm with its published settings. The point
that a solver ends with is put back onto the sub-level set (a few gradients, counted) and the best feasible point
counts.

Cost is in gradient equivalents: value ½, gradient 1, HVP 2. *Cost to 1 %* is the least cost of any run, over a ladder
of HVP budgets, that came within 1 % of the best gradient norm that anyone reached on the problem (or of the known
maximum); "never" means not within {MOST} HVPs. Runs that take more than {SLOW:g} s climb no ladder: for them only
budgets of {", ".join(map(str, HVP_BUDGETS))} HVPs are known. Solvers with dense matrices are left out where they would
not fit: {_LIMITED}. *Stalled* means, for SciPy, that it stopped by its own tolerance (1e-9) before ours was met.
"""


def _opening(frame: pd.DataFrame, problems: list[str]) -> str:
    near = sum(_row(frame, name, OURS)["share_of_best"] >= 0.99 for name in problems)
    contested = [name for name in problems if _ran(_row(frame, name, RIVAL))]
    cheaper = sum(
        float(_row(frame, name, OURS)["cost_within_1_percent"])
        < float(_row(frame, name, RIVAL)["cost_within_1_percent"])
        for name in contested
    )
    return (
        f"Every solver maximises the gradient norm on the same {len(problems)} sub-level sets, with the same means.\n"
        f"The default comes within 1 % of the best that anybody reached on {near} of them.\n"
        f"It gets there for less than SciPy's SLSQP on {cheaper} of the {len(contested)} that SLSQP can run.\n"
    )


def _row(frame: pd.DataFrame, problem: str, solver: str) -> pd.Series:
    return frame[(frame["problem"] == problem) & (frame["solver"] == solver)].iloc[0]


def _ran(row: pd.Series) -> bool:
    return math.isfinite(float(row["gradient_equivalents"]))


def _summary(frame: pd.DataFrame, problems: list[str]) -> str:
    lines = [
        "## Summary\n",
        "| problem | auto: share of best | auto: cost to 1 % | SLSQP: cost to 1 % | cost ratio | ratio of seconds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for problem in problems:
        ours, rival = _row(frame, problem, OURS), _row(frame, problem, RIVAL)
        theirs = _cost(rival) if _ran(rival) else "not run"
        seconds = f"{ours['seconds'] / rival['seconds']:.2f}" if _ran(rival) else "-"
        share = f"{ours['share_of_best']:.4f}"
        lines.append(f"| {problem} | {share} | {_cost(ours)} | {theirs} | {_ratio(ours, rival)} | {seconds} |")
    lines.append(f"\nThe seconds are those of whole runs, each until it stops by itself or has spent {MOST} HVPs.\n")
    return "\n".join(lines)


def _cost(row: pd.Series) -> str:
    cost = float(row["cost_within_1_percent"])
    return f"{cost:g}" if math.isfinite(cost) else "never"


def _ratio(ours: pd.Series, rival: pd.Series) -> str:
    if not _ran(rival):
        return "-"
    mine, theirs = float(ours["cost_within_1_percent"]), float(rival["cost_within_1_percent"])
    if math.isfinite(mine) and math.isfinite(theirs):
        return f"{mine / theirs:.2f}"
    if math.isfinite(mine):
        return "SLSQP never gets there"
    return "auto never gets there"


def _goals(frame: pd.DataFrame, problems: list[str]) -> str:
    """The goals, and every problem that misses one."""
    near = [p for p in problems if _row(frame, p, OURS)["share_of_best"] >= 0.99]
    lines = [
        "## Goals\n",
        f"* Within 1 % of the best gradient norm: {len(near)} of {len(problems)} problems.",
    ]
    for problem in problems:
        if problem not in near:
            row = _row(frame, problem, OURS)
            leader = frame[frame["problem"] == problem].sort_values("share_of_best", ascending=False).iloc[0]
            lines.append(
                f"  * missed on *{problem}*: {row['share_of_best']:.4f} of the best; "
                f"{leader['solver']} reaches {leader['share_of_best']:.4f}."
            )
    contested = [p for p in problems if _ran(_row(frame, p, RIVAL))]
    cheap: list[tuple[str, float, float]] = []
    dear: list[tuple[str, float, float]] = []
    for problem in contested:
        mine = float(_row(frame, problem, OURS)["cost_within_1_percent"])
        theirs = float(_row(frame, problem, RIVAL)["cost_within_1_percent"])
        tenth = math.isfinite(mine) and mine <= 0.1 * theirs
        (cheap if tenth else dear).append((problem, mine, theirs))
    lines.append(
        f"* A tenth of SLSQP's cost or less: {len(cheap)} of the {len(contested)} problems that SLSQP can run."
    )
    for problem, mine, theirs in cheap:
        reason = "SLSQP ends at a lower local maximum" if math.isinf(theirs) else f"{mine:g} against {theirs:g}"
        lines.append(f"  * met on *{problem}*: {reason}.")
    for problem, mine, theirs in dear:
        words = "neither gets within 1 %" if math.isinf(mine) and math.isinf(theirs) else f"{mine:g} against {theirs:g}"
        lines.append(f"  * missed on *{problem}*: {words}.")
    infeasible = frame[frame["violation"] > 0.0]
    lines.append(f"* Points returned that raise the value: {len(infeasible)}.")
    for _, row in infeasible.iterrows():
        lines.append(f"  * {row['solver']} on *{row['problem']}*, by {row['violation']:.0e} relative.")
    return "\n".join(lines) + "\n"


def _problem(rows: pd.DataFrame) -> str:
    first = rows.iloc[0]
    known = float(first["known_maximum"])
    words = f", known maximum {known:.5g}" if math.isfinite(known) else ""
    start = rows["gradient_norm_start"].dropna().iloc[0]
    head = (
        f"### {first['problem']}\n\n"
        f"{int(first['dimension'])} variables, gradient norm at the start {start:.5g}{words}.\n\n"
    )
    lines = [
        f"| solver | after {' | '.join(map(str, HVP_BUDGETS))} HVPs | share of best "
        "| violation of its last iterate | f / ∇f / HVP | cost | cost to 1 % | seconds | ended |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for _, row in rows.iterrows():
        if not _ran(row):
            lines.append(f"| {row['solver']} | not run: too many variables |" + " |" * 10)
            continue
        norms = " | ".join(f"{row[f'gradient_norm_{b}_hvps']:.5g}" for b in HVP_BUDGETS)
        counts = " / ".join(f"{int(row[name])}" for name in ("values", "gradients", "hvps"))
        runs = int(row["timed_runs"])
        spread = f" ({row['seconds_min']:.2g} to {row['seconds_max']:.2g})" if runs > 1 else " (one run)"
        lines.append(
            f"| {row['solver']} | {norms} | {row['share_of_best']:.4f} | {row['violation_last_iterate']:.1e} "
            f"| {counts} | {row['gradient_equivalents']:g} | {_cost(row)} | {row['seconds']:.2g}{spread} "
            f"| {str(row['status']).replace('_', ' ')} |"
        )
    return head + folded("Solver by solver", "\n".join(lines))
