"""What the Markdown pages that commands write have in common: they open with sentences, and long tables are folded."""

from __future__ import annotations

LONG = 12
"""Rows beyond which a table is folded."""


def folded(title: str, body: str) -> str:
    """``body`` behind a line that opens it, on the site and wherever else Markdown is shown; in print it is open."""
    return f'<details markdown="1">\n<summary>{title}</summary>\n\n{body.strip()}\n\n</details>\n'


def folded_if_long(title: str, table: str) -> str:
    """A Markdown table as it is, or folded where it has more than :data:`LONG` rows."""
    rows = len(table.strip().splitlines()) - 2
    return folded(f"{title} ({rows} rows)", table) if rows > LONG else table
