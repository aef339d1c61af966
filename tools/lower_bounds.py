"""The declared lower bounds as exact pins, one per line: what ``make lowest`` installs.

Reads pyproject.toml; ``name>=version`` becomes ``name==version``. A requirement without a bound stops the script,
because a bound that nobody declared cannot be tested.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

TOOLS = {"levelport", "pandas-stubs", "types-psutil"}
"""Not installed by ``make lowest``: the package itself, and what only the type checker reads."""


def lower_bounds(project: dict[str, object]) -> list[str]:
    """``name==version`` for every requirement of ``project``, the table of that name in pyproject.toml."""
    extras = project["optional-dependencies"]
    assert isinstance(extras, dict)
    pins: dict[str, str] = {}
    for group in (project["dependencies"], *extras.values()):
        assert isinstance(group, list)
        for requirement in group:
            name, bound = re.fullmatch(r"([\w.-]+)(?:\[[\w,-]+\])?(?:>=([\w.]+))?.*", requirement).groups()  # type: ignore[union-attr]
            if name in TOOLS:
                continue
            if bound is None:
                sys.exit(f"{requirement!r} in pyproject.toml declares no lower bound (>=).")
            if pins.setdefault(name, bound) != bound:
                sys.exit(f"{name} has two lower bounds in pyproject.toml: {pins[name]} and {bound}.")
    return [f"{name}=={bound}" for name, bound in sorted(pins.items())]


if __name__ == "__main__":
    pyproject = Path(__file__).parent.parent / "pyproject.toml"
    print("\n".join(lower_bounds(tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"])))
