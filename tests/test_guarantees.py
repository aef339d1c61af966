"""The tests that the page of guarantees names exist, and names of tests are short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "development" / "guarantees.md"


def test_tests_named_for_guarantees_exist() -> None:
    if not PAGE.exists():
        pytest.skip("the source distribution has no documentation")
    text = PAGE.read_text(encoding="utf-8").partition("\n## ")[2]
    named = re.findall(r"`((?:lab/)?tests/[\w/]+\.py)(?:::(\w+))?`", text)
    assert len(named) == len(re.findall(r"^\* ", text, re.MULTILINE)) > 60
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not (ROOT / file).exists() or f"def {name}(" not in (ROOT / file).read_text(encoding="utf-8") + "def ("
    ]
    assert missing == []


def test_names_of_tests_fit_in_sixty_characters() -> None:
    files = [path for folder in ("tests", "lab/tests") for path in (ROOT / folder).rglob("test_*.py")]
    names = [name for path in files for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))]
    assert len(names) > 100
    assert [name for name in names if len(name) > 60] == []
