"""Problems by name: ``model/data``, as in ``logreg/blood`` or ``mlp-relu-100-100/pima``."""

from __future__ import annotations

import torch

from levelport.checks import unknown_name
from levelport_lab.problems.benchmark_problem import Problem
from levelport_lab.problems.catalogue import UCI
from levelport_lab.problems.datasets import data_info
from levelport_lab.problems.models import parse_model

REGULARIZATION = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
"""The six strengths of the paper's performance profiles."""

_PAPER = [f"{model}/{data}" for model in ("logreg", "mlp-relu-100-100") for data in UCI]
_OTHERS = [
    "mlp-softplus-50/mnist",
    "mlp-softplus-500/mnist",
    "mlp-relu-500/mnist",
    "logreg/breast-cancer-wisconsin",
    "mlp-relu-100-100/breast-cancer-wisconsin",
    "logreg/digits",
    "mlp-softplus-50/digits",
]

PROBLEM_NAMES = (*_PAPER, *_OTHERS)
"""The benchmark's problems. Any other model with any other data set is as good a name."""


def problem(name: str, *, reg: float = 0.0, seed: int = 0, dtype: torch.dtype = torch.float64) -> Problem:
    """The problem called ``model/data``, with penalty reg·‖w‖².

    Example:
        >>> problem("logreg/blood", reg=1e-6).dimension
        5
    """
    model, slash, data = str(name).partition("/")
    if not slash:
        raise unknown_name(
            "problem", name, PROBLEM_NAMES, see="Names are MODEL/DATA; 'levelport problems list' shows some."
        )
    data_info(data)  # a misspelt data set is named before anything else is said about the combination
    return Problem(data, parse_model(model), reg=reg, seed=seed, dtype=dtype)
