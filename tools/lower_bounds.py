"""The declared lower bounds as exact pins, one per line: what ``make lowest`` installs.

Reads both pyproject.toml; ``name>=version`` becomes ``name==version``. A requirement without a bound stops the script,
because a bound that is not declared cannot be tested.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

TOOLS = {"levelport", "levelport-lab", "pandas-stubs", "types-psutil"}
"""Not pinned: the distributions themselves, and what only the type checker reads."""


def requirements(project: dict[str, object]) -> list[str]:
    """Return all requirements of ``project``, the table of that name in a pyproject.toml."""
    extras = project["optional-dependencies"]
    assert isinstance(extras, dict)
    groups = [project["dependencies"], *extras.values()]
    return [str(requirement) for group in groups if isinstance(group, list) for requirement in group]


def lower_bounds(wanted: list[str]) -> list[str]:
    """Return ``name==version`` for every requirement."""
    pins: dict[str, str] = {}
    for requirement in wanted:
        name, bound = re.fullmatch(r"([\w.-]+)(?:\[[\w,-]+\])?(?:>=([\w.]+))?.*", requirement).groups()  # type: ignore[union-attr]
        if name in TOOLS:
            continue
        if bound is None:
            sys.exit(f"{requirement!r} declares no lower bound (>=) in its pyproject.toml.")
        if pins.setdefault(name, bound) != bound:
            sys.exit(f"{name} has two lower bounds: {pins[name]} and {bound}.")
    return [f"{name}=={bound}" for name, bound in sorted(pins.items())]


if __name__ == "__main__":
    root = Path(__file__).parent.parent
    tables = [tomllib.loads((home / "pyproject.toml").read_text(encoding="utf-8")) for home in (root, root / "lab")]
    print("\n".join(lower_bounds([each for table in tables for each in requirements(table["project"])])))
