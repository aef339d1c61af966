"""The README's figures are those of the pages that it links to: every number of a row stands on one of its pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ROWS = [line for line in README.splitlines() if line.startswith("| ") and "](docs/" in line]
NUMBER = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?![\w-])")


def test_the_table_is_found() -> None:
    assert len(ROWS) >= 5


@pytest.mark.parametrize("row", ROWS, ids=[row.split("|")[1].strip()[:40] for row in ROWS])
def test_numbers_stand_on_the_pages_linked(row: str) -> None:
    pages = [ROOT / target for target in re.findall(r"\]\(([^)#]+)", row)]
    found = {number for page in pages for number in NUMBER.findall(page.read_text(encoding="utf-8"))}
    said = NUMBER.findall(re.sub(r"\]\([^)]*\)|`[^`]*`", "", row.split("|")[3]))
    missing = [number for number in said if number not in found]
    assert missing == [], f"not on {', '.join(page.name for page in pages)}: measured again?"
