"""What is installed is what is in the tree: every file of the package that is not Python is declared as its data."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_every_data_file_is_declared_for_the_wheel() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    patterns = [pattern for group in declared.values() for pattern in group]
    package = ROOT / "src" / "levelport"
    if not package.is_dir():
        pytest.skip("the tests run beside an installed package, not beside its sources")
    data = [p for p in package.rglob("*") if p.is_file() and p.suffix != ".py" and "__pycache__" not in p.parts]
    assert data, "the embedded data sets at least"
    assert [str(p) for p in data if not any(fnmatch(p.name, pattern) for pattern in patterns)] == []
