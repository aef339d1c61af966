"""All problems of the comparison."""

from __future__ import annotations

from levelport_lab.bench.minimizers import functions, networks, statistical
from levelport_lab.bench.minimizers.problems import PROBLEMS, Problem

__all__ = ["PROBLEMS", "Problem", "functions", "networks", "statistical"]
