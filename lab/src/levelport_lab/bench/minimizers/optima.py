"""Optimal values of the problems, that ``tools/development_minimizers.py`` wrote from long runs of SciPy's methods.

Networks have none.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("optima.csv")


@cache
def optima() -> dict[str, float]:
    """f* by the name of the problem."""
    with FILE.open() as lines:
        return {row["problem"]: float(row["f_star"]) for row in csv.DictReader(lines)}
