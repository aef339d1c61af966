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
    """One row per claim, one column per protocol and solver, and whether the outcome depends on the protocol.

    A cell says how much was run where that is not the whole figure, and how many of the figure's tasks failed. Only
    what was scored with the exact f* is here.
    """
    rows: dict[tuple[str, str], dict[tuple[str, str], Answer]] = {}
    statements: dict[tuple[str, str], str] = {}
    for name, tier, protocol, reference, _, summary in summaries_under(out):
        for claim in summary.claims if reference == "exact" else ():
            row = (name, claim.name.removesuffix(f"-{claim.solver}") if claim.solver else claim.name)
            statements[row] = claim.statement
            # A claim that involves no teleports is the authors' own: it stands where theirs stand.
            rows.setdefault(row, {})[protocol, claim.solver or "published"] = claim, _extent(summary, tier)
    head = ["figure", "claim", *(TITLES[column] for column in COLUMNS), "depends on the protocol"]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for row, cells in rows.items():
        answers = [_cell(cells.get(column)) for column in COLUMNS]
        entries = [row[0].removeprefix("fig"), statements[row], *answers, _depends(cells)]
        lines.append("| " + " | ".join(entry.replace("|", "/") for entry in entries) + " |")
    return "\n".join(lines) + "\n"


def _extent(summary: Summary, tier: Tier) -> str:
    failed = f", {summary.failed_tasks} of {summary.tasks} tasks failed" if summary.failed_tasks else ""
    return summary.extent(tier) + failed


def _cell(answer: Answer | None) -> str:
    if answer is None or answer[0].missing:
        return "not run"
    claim, extent = answer
    if claim.holds is None:  # what is measured says why
        return f"{claim.outcome}: {claim.measured}"
    return f"**{claim.outcome}**: {claim.measured}" + ("" if extent == "full tier" else f" ({extent})")


def _depends(cells: dict[tuple[str, str], Answer]) -> str:
    """Yes where a solver's outcomes differ between the protocols; empty where one was not run, or not as much of it."""
    pairs = [(cells.get(("text", solver)), cells.get(("released", solver))) for solver in get_args(SolverName)]
    outcomes = [(a[0].holds, b[0].holds) for a, b in pairs if a is not None and b is not None and a[1] == b[1]]
    decided = [(a, b) for a, b in outcomes if a is not None and b is not None]
    return "" if not decided else "yes" if any(a != b for a, b in decided) else "no"
