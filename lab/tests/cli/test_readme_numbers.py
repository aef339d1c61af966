"""Every number in the README's table "Use it when" is that of a cell in a table of docs/results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def cell(page: str, table: str, row: str, column: str) -> float:
    """The number that a cell begins with; rows and columns are found by how they begin."""
    text = (ROOT / "docs" / "results" / f"{page}.md").read_text(encoding="utf-8")
    lines = text.partition(f"<!-- table {table} -->\n")[2].partition("<!-- end -->")[0].splitlines()
    grid = [[part.strip() for part in line.strip("|").split("|")] for line in lines]
    (place,) = (i for i, name in enumerate(grid[0]) if name == column or name.startswith(f"{column} ("))
    found = next(parts for parts in grid[2:] if parts[0].startswith(row))
    return float(re.match(r"[\d.]+", found[place])[0])  # type: ignore[index]


def said(verb: str) -> list[float]:
    """The numbers of a row of the README, in order, without those of links."""
    (row,) = (line for line in README.splitlines() if line.startswith("|") and f"| `{verb}` |" in line)
    return [float(number) for number in re.findall(r"(?<![\w.-])\d+(?:\.\d+)?", re.sub(r"\]\([^)]*\)", "", row))]


def test_minimize_beside_lbfgs() -> None:
    ratio, problems = said("minimize")
    row = f"others, hard: {problems:.0f}"
    assert cell("minimizers", "against L-BFGS", row, "/ 10 pairs") == ratio


def test_interval_beside_slsqp() -> None:
    ours, slsqp, dimension = said("interval")
    row = f"logistic d {dimension:.0f}"
    assert round(cell("intervals", "cost per end", row, "levelport"), 1) == ours
    assert cell("intervals", "cost per end", row, "SLSQP") == slsqp


def test_improve_beside_slsqp() -> None:
    ratio, problems = said("improve")
    ours, slsqp = (cell("improve", "convex problems", tool, "geometric mean cost") for tool in ("levelport", "SLSQP"))
    assert problems == 24
    assert ours / slsqp == pytest.approx(ratio, abs=0.005)


def test_teleport_of_best_known() -> None:
    groups = ("statistical", "smooth")
    assert said("teleport") == [cell("solvers", "solvers, 50 HVPs", "auto", group) for group in groups]


def test_training_with_line_search() -> None:
    numbers = iter(said("Teleported"))
    for row in ("ArmijoSGD, PINNs", "ArmijoSGD, other sets"):
        assert cell("safety", "safety at equal cost", row, "median at the end") == next(numbers)
        assert cell("safety", "safety at equal cost", row, "networks") == next(numbers)
