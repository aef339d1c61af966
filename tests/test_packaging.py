"""Every file of a package that is not Python is declared as its data, so that wheels are complete."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("distribution", [ROOT, ROOT / "lab"], ids=["levelport", "levelport-lab"])
def test_every_data_file_is_declared(distribution: Path) -> None:
    sources = distribution / "src"
    if not sources.is_dir():
        pytest.skip("the sources are not part of this copy")
    declared = tomllib.loads((distribution / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    patterns = [pattern for group in declared.values() for pattern in group]
    data = [p for p in sources.rglob("*") if p.is_file() and p.suffix != ".py" and "__pycache__" not in p.parts]
    data = [p for p in data if not any(part.endswith(".egg-info") for part in p.parts)]
    assert data
    assert [str(p) for p in data if not any(fnmatch(p.name, pattern) for pattern in patterns)] == []
