"""Every claim of the paper against every way it was checked: a table in Markdown, from the files of the figures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import get_args

from levelport_lab.choices import Protocol, Reference, SolverName, Tier
from levelport_lab.claims import Claim
from levelport_lab.paper.registry import STUDIES
from levelport_lab.paper.reproduction import Summary, figure_directory

COLUMNS: tuple[tuple[Protocol, SolverName], ...] = (
    ("text", "published"),
    ("released", "published"),
    ("text", "ours"),
    ("released", "ours"),
)
TITLES = {
    ("text", "published"): "as the text says",
    ("released", "published"): "as the authors ran it",
    ("text", "ours"): "our solver, the text's protocol",
    ("released", "ours"): "our solver, the released protocol",
}

Answer = tuple[Claim, str]
"""What was found, and how much of the figure was run for it (:meth:`Summary.extent`, and what failed)."""


def summaries_under(
    out: Path, tiers: Sequence[Tier] = ("full", "quick", "smoke")
) -> list[tuple[str, Tier, Protocol, Reference, Path, Summary]]:
    """The figures under ``out`` in their order, by protocol and f*, each from the largest tier that is there."""
    found = []
    for name, protocol, reference in product(STUDIES, get_args(Protocol), get_args(Reference)):
        for tier in tiers:
            directory = figure_directory(out, tier, name, protocol, reference)
            if (directory / "summary.json").exists():
                summary = Summary.read(directory / "summary.json")
                found.append((name, tier, protocol, reference, directory, summary))
                break
    return found


def claims_table(out: Path) -> str:
    """A table of outcomes, one row per claim and one column per protocol and solver, and below it what was measured.

    A cell names a smaller tier, or says that a part of the runs decides; the list below says what was run and what
    failed. Only what was scored with the exact f* is here.
    """
    rows: dict[tuple[str, str], dict[tuple[str, str], Answer]] = {}
    statements: dict[tuple[str, str], str] = {}
    for name, tier, protocol, reference, _, summary in summaries_under(out):
        for claim in summary.claims if reference == "exact" else ():
            row = (name, claim.name.removesuffix(f"-{claim.solver}") if claim.solver else claim.name)
            statements[row] = claim.statement.replace("|", "/")
            # A claim that involves no teleports is the authors' own: it stands where theirs stand.
            rows.setdefault(row, {})[protocol, claim.solver or "published"] = claim, _extent(summary, tier)
    head = ["figure", "claim", *(TITLES[column] for column in COLUMNS)]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    measured = ["", "What was measured:", ""]
    for row, cells in rows.items():
        number = row[0].removeprefix("fig")
        answers = {column: cells[column] for column in COLUMNS if column in cells and not cells[column][0].missing}
        entries = [_cell(answers[column]) if column in answers else "not run" for column in COLUMNS]
        lines.append("| " + " | ".join([number, statements[row], *entries]) + " |")
        if answers:
            measured.append(f"- Figure {number}: {statements[row]}")
        for column, (claim, extent) in answers.items():
            measured.append(f"    - {TITLES[column]} ({extent}): {claim.measured}")
    return "\n".join([*lines, *measured]) + "\n"


def _extent(summary: Summary, tier: Tier) -> str:
    failed = f", {summary.failed_tasks} of {summary.tasks} tasks failed" if summary.failed_tasks else ""
    return summary.extent(tier) + failed


def _cell(answer: Answer) -> str:
    claim, extent = answer
    if claim.holds is None or extent == "full tier":
        return claim.outcome
    tier = extent.split(",")[0]
    return f"{claim.outcome} ({'part of the runs' if tier == 'full tier' else tier})"
