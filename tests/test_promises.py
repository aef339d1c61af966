"""The tests that the table of promises names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "development" / "promises.md"


def test_tests_named_for_promises_exist() -> None:
    if not PAGE.exists():
        pytest.skip("the source distribution has no documentation")
    named = re.findall(r"`((?:lab/)?tests/[\w/]+\.py)(?:::(\w+))?`", PAGE.read_text(encoding="utf-8"))
    assert len(named) > 30
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not (ROOT / file).exists() or f"def {name}(" not in (ROOT / file).read_text(encoding="utf-8") + "def ("
    ]
    assert missing == []
