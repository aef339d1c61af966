"""Tables of the benchmark: printed, kept as CSV files, and set into the pages of ``docs/results``.

The prose of a page is written by hand. A table stands between two comments,

    <!-- table NAME -->
    | … |
    <!-- end -->

and is replaced there; a page that does not exist is made of the tables alone. A CSV file keeps the rows it has until
there are newer ones of the same key, so that a store with a part of the runs never removes the others.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from levelport_lab.atomic import write_text


@dataclass(frozen=True)
class Table:
    """A small table: the first column is text, the others are numbers."""

    name: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """Return it for a page."""
        lines = [f"| {' | '.join(self.header)} |", "| --- |" + " ---: |" * (len(self.header) - 1)]
        return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in self.rows)])

    def text(self) -> str:
        """Return it for a terminal, in columns of equal width."""
        grid = [list(self.header), *map(list, self.rows)]
        widths = [max(len(row[column]) for row in grid) for column in range(len(self.header))]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
            for row in grid
        ]
        return "\n".join([self.name, *(line.rstrip() for line in lines)])


def number(value: float, digits: int = 3) -> str:
    """Format a number briefly; a dash where there is none."""
    return "-" if not math.isfinite(value) else f"{value:.{digits}g}" if abs(value) < 1000 else f"{value:.0f}"


def ratio(value: float) -> str:
    """Format a ratio: ∞ where only the denominator was reached, a dash where there is nothing to compare."""
    return "∞" if math.isinf(value) else "-" if math.isnan(value) else f"{value:.2f}"


def merged(frame: pd.DataFrame, path: Path, key: Sequence[str]) -> pd.DataFrame:
    """Return the rows of the CSV file at ``path`` with those of ``frame`` added or in their place."""
    # Through text, so that a row reads the same whether it comes from the file or from the store.
    frame = pd.read_csv(io.StringIO(as_csv(frame)), keep_default_na=False, na_values=[""])
    if path.exists():
        frame = pd.concat([pd.read_csv(path, keep_default_na=False, na_values=[""]), frame])
    return frame.drop_duplicates(list(key), keep="last").sort_values(list(key), ignore_index=True)


def as_csv(frame: pd.DataFrame) -> str:
    """Return the text of a CSV file."""
    return frame.to_csv(index=False, float_format="%.5g")


def with_tables(page: str, tables: Iterable[Table]) -> str:
    """Return ``page`` with every table in its place; tables without a place are added at the end."""
    for table in tables:
        block = f"<!-- table {table.name} -->\n{table.markdown()}\n<!-- end -->"
        place = rf"<!-- table {re.escape(table.name)} -->\n.*?<!-- end -->"
        page, count = re.subn(place, lambda _, block=block: block, page, count=1, flags=re.DOTALL)  # type: ignore[misc]
        if count == 0:
            page = f"{page.rstrip()}\n\n{block}\n".lstrip()
    return page


def write_page(path: Path, tables: Sequence[Table]) -> None:
    """Set the tables into the page at ``path``."""
    page = path.read_text(encoding="utf-8") if path.exists() else ""
    write_text(path, with_tables(page, tables))
