"""Small pieces of Markdown that the pages are made of."""

from __future__ import annotations

import math

from levelport_lab.pages import folded_if_long


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table, folded where it is long; all columns but the first are numbers."""
    lines = ["| " + " | ".join(header) + " |", "| --- |" + " ---: |" * (len(header) - 1)]
    return folded_if_long(
        "Problem by problem", "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"
    )


def number(value: float, digits: int = 3) -> str:
    """Short; a dash where there is none."""
    return "-" if not math.isfinite(value) else f"{value:.{digits}g}" if abs(value) < 1000 else f"{value:.0f}"
