"""Named problems: test functions, data sets, models, and the benchmark problems made of them.

Names are resolved on first use, so that importing the package reads no data and needs torch only.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from levelport_lab.problems.benchmark_problem import Problem as Problem
    from levelport_lab.problems.datasets import DATA_NAMES as DATA_NAMES
    from levelport_lab.problems.datasets import DataSet as DataSet
    from levelport_lab.problems.datasets import data_info as data_info
    from levelport_lab.problems.datasets import load_data as load_data
    from levelport_lab.problems.fetching import fetch as fetch
    from levelport_lab.problems.models import MLP as MLP
    from levelport_lab.problems.models import LinearModel as LinearModel
    from levelport_lab.problems.optima import Optimum as Optimum
    from levelport_lab.problems.optima import OptimumError as OptimumError
    from levelport_lab.problems.registry import PROBLEM_NAMES as PROBLEM_NAMES
    from levelport_lab.problems.registry import REGULARIZATION as REGULARIZATION
    from levelport_lab.problems.registry import problem as problem
    from levelport_lab.problems.storage import DataError as DataError

_HOME = {
    "DATA_NAMES": "datasets",
    "DataError": "storage",
    "DataSet": "datasets",
    "LinearModel": "models",
    "MLP": "models",
    "Optimum": "optima",
    "OptimumError": "optima",
    "PROBLEM_NAMES": "registry",
    "Problem": "benchmark_problem",
    "REGULARIZATION": "registry",
    "data_info": "datasets",
    "fetch": "fetching",
    "load_data": "datasets",
    "problem": "registry",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
