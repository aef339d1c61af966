"""Packages of the laboratory import only from packages below them, as the architecture page draws it."""

from __future__ import annotations

import re
from pathlib import Path

import levelport_lab

ROOT = Path(levelport_lab.__file__).parent
BELOW = ["atomic", "choices", "claims", "problems", "pictures", "engine", "theory", "level_sets", "orings"]
LAYERS = [*BELOW, "theory_pictures", "paper", "bench", "report", "play", "cli", "__main__"]
"""Each may import those before it; ``bench``, ``report`` and ``play`` do not import each other."""
SIDE_BY_SIDE = [{"bench", "report", "play"}, {"engine", "theory"}]


def violations(root: Path) -> list[str]:
    """Return a line for each import that points the wrong way."""
    found = []
    for path in sorted(root.rglob("*.py")):
        package = path.relative_to(root).parts[0].removesuffix(".py")
        if package != "__init__":
            allowed = set(LAYERS[: LAYERS.index(package)]).difference(*(s for s in SIDE_BY_SIDE if package in s))
            named = re.findall(r"^\s*(?:from|import) levelport_lab\.(\w+)", path.read_text(encoding="utf-8"), re.M)
            found += [f"{path.name} imports {name}" for name in sorted({*named} - allowed - {package})]
    return found


def test_laboratory_imports_point_one_way() -> None:
    assert violations(ROOT) == []


def test_wrong_import_is_found(tmp_path: Path) -> None:
    (tmp_path / "paper").mkdir()
    (tmp_path / "paper" / "wrong.py").write_text("def later():\n    from levelport_lab.bench.races import race\n")
    assert violations(tmp_path) == ["wrong.py imports bench"]
