"""Folded tables: short ones stand open, long ones say how long they are, and no row is lost."""

from __future__ import annotations

import pytest

from levelport_lab.pages import LONG, folded, folded_if_long


def table(rows: int) -> str:
    return "| a | b |\n| --- | ---: |\n" + "".join(f"| {row} | {row} |\n" for row in range(rows))


@pytest.mark.parametrize("rows", [1, LONG, LONG + 1, 100])
def test_long_tables_are_folded(rows: int) -> None:
    text = folded_if_long("Problem by problem", table(rows))
    assert ("<details" in text) == (rows > LONG)
    assert text.count("\n| ") + text.startswith("| ") == rows + 2
    assert rows <= LONG or f"<summary>Problem by problem ({rows} rows)</summary>" in text


def test_markdown_inside_is_read() -> None:
    """A blank line on both sides, and the mark that Python-Markdown asks for."""
    markdown = pytest.importorskip("markdown", reason="the site needs it: pip install 'levelport[docs]'")
    html = markdown.markdown(folded("More", table(3)), extensions=["md_in_html", "tables"])
    assert html.count("<tr>") == 4
    assert "<summary>More</summary>" in html
