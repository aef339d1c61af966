"""Named problems: test functions, data sets, models, and the benchmark problems made of them. Nothing is read before it
is asked for."""

from levelport_lab.problems.benchmark_problem import Problem
from levelport_lab.problems.datasets import DATA_NAMES, DataSet, data_info, load_data
from levelport_lab.problems.fetching import fetch
from levelport_lab.problems.models import MLP, LinearModel
from levelport_lab.problems.optima import Optimum, OptimumError
from levelport_lab.problems.registry import PROBLEM_NAMES, REGULARIZATION, problem
from levelport_lab.problems.storage import DataError

__all__ = [
    "DATA_NAMES", "MLP", "PROBLEM_NAMES", "REGULARIZATION", "DataError", "DataSet", "LinearModel", "Optimum",
    "OptimumError", "Problem", "data_info", "fetch", "load_data", "problem",
]  # fmt: skip
