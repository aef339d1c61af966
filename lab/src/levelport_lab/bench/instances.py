"""The problems of the benchmark: a name that can be hashed and written down, and what it stands for.

* logistic: the twenty UCI sets, six penalties, from w = 0, with certified optima: 120 problems.
* quadratic: 200 variables, condition 1e2, 1e4 and 1e6, eigenvalues evenly spaced in the logarithm.
* function: the test functions, and Rosenbrock's in ten variables.
* network: fully connected networks on UCI sets, from their usual initialization.
* pinn: physics-informed networks of three equations.
* all samples: a logistic problem that no test set is split from, for the small table of costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from levelport.objective import Objective
from levelport.objectives.function import FunctionObjective
from levelport.objectives.linear import LinearObjective
from levelport_lab.bench.pinns import pinn
from levelport_lab.problems.benchmark_problem import with_ones
from levelport_lab.problems.catalogue import UCI
from levelport_lab.problems.datasets import load_data
from levelport_lab.problems.functions import FUNCTIONS, rosenbrock
from levelport_lab.problems.optima import compute
from levelport_lab.problems.quadratics import Quadratic
from levelport_lab.problems.registry import REGULARIZATION, problem

Family = Literal["logistic", "quadratic", "function", "network", "pinn", "all samples"]


@dataclass(frozen=True)
class Instance:
    """A problem as competitors see it: f, the start, and the optimal value, NaN for networks."""

    objective: Objective
    x0: Tensor
    f_star: float


@dataclass(frozen=True)
class ProblemName:
    """A problem of the benchmark, as plain values."""

    family: Family
    name: str
    reg: float = 0.0
    seed: int = 0

    def __str__(self) -> str:
        reg = f", reg {self.reg:g}" if self.reg else ""
        seed = f", seed {self.seed}" if self.seed else ""
        return f"{self.name}{reg}{seed}"

    def build(self) -> Instance:
        """Read the data and make the objective."""
        return _BUILDERS[self.family](self)


def _named(name: ProblemName) -> Instance:
    made = problem(name.name, reg=name.reg, seed=name.seed)
    objective = made.objective()
    if name.family == "network":
        return Instance(objective, made.initial_point(), math.nan)
    x0 = torch.zeros(objective.dimension, dtype=objective.dtype)
    return Instance(objective, x0, made.optimum().value)


def _quadratic(name: ProblemName) -> Instance:
    condition = float(name.name.removeprefix("condition "))
    spectrum = torch.logspace(0.0, -math.log10(condition), 200, dtype=torch.float64)
    quadratic = Quadratic.random(spectrum, seed=name.seed)
    return Instance(quadratic, torch.zeros(200, dtype=torch.float64), 0.0)


def _function(name: ProblemName) -> Instance:
    if name.name == "rosenbrock-10":
        x0 = torch.tensor([-1.2, 1.0] * 5, dtype=torch.float64)
        return Instance(FunctionObjective(rosenbrock, x0), x0, 0.0)
    known = FUNCTIONS[name.name]
    x0 = torch.tensor(known.start, dtype=torch.float64)
    return Instance(FunctionObjective(known.function, x0), x0, known.minimum)


def _pinn(name: ProblemName) -> Instance:
    loss, x0 = pinn(name.name, name.seed)
    return Instance(FunctionObjective(loss, x0), x0, math.nan)


def _all_samples(name: ProblemName) -> Instance:
    objective = logistic_objective(name.name.removeprefix("logreg/"), name.reg)
    x0 = torch.zeros(objective.dimension, dtype=objective.dtype)
    return Instance(objective, x0, compute(objective).value)


def logistic_objective(data: str, reg: float) -> LinearObjective:
    """Logistic regression with an intercept on all samples of ``data``."""
    loaded = load_data(data)
    X = with_ones(torch.tensor(loaded.X, dtype=torch.float64))
    return LinearObjective.logistic(X, torch.tensor(loaded.y, dtype=torch.float64), penalty=reg)


_BUILDERS: dict[Family, Callable[[ProblemName], Instance]] = {
    "logistic": _named,
    "network": _named,
    "quadratic": _quadratic,
    "function": _function,
    "pinn": _pinn,
    "all samples": _all_samples,
}


def smallest_sets(count: int) -> list[str]:
    """The UCI sets with the fewest samples."""
    return sorted(UCI, key=lambda name: UCI[name].samples)[:count]


def logistic() -> list[ProblemName]:
    """Logistic problems on all twenty sets."""
    return [ProblemName("logistic", f"logreg/{data}", reg) for data in smallest_sets(20) for reg in REGULARIZATION]


def quadratics() -> list[ProblemName]:
    """Three condition numbers, three seeds."""
    return [
        ProblemName("quadratic", f"condition {condition}", seed=seed)
        for condition in ("1e2", "1e4", "1e6")
        for seed in range(3)
    ]


def functions() -> list[ProblemName]:
    """Test functions with a known minimum; flat-huber is left out, it has one variable only."""
    return [ProblemName("function", name) for name in (*FUNCTIONS, "rosenbrock-10") if name != "flat-huber"]


def networks(
    sets: list[str], *, regs: tuple[float, ...] = (1e-2, 1e-4, 1e-6), seeds: tuple[int, ...] = (0,)
) -> list[ProblemName]:
    """Networks with two hidden layers of a hundred."""
    return [
        ProblemName("network", f"mlp-{activation}-100-100/{data}", reg, seed)
        for data in sets
        for activation in ("relu", "softplus")
        for reg in regs
        for seed in seeds
    ]
