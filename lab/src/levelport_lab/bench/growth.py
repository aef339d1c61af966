"""How cost grows with the number of samples n, of features d, and with the condition number κ.

Synthetic logistic problems whose Hessian at 0 has the spectrum that we choose
(:mod:`levelport_lab.problems.synthetic`). The evaluations until (f - f*)/(f0 - f*) ≤ 1e-6 measure
how hard the problem is for a method; the processor time per teleport and per Hessian-vector product, what each costs.
"""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from levelport.objective import Point
from levelport.objectives.function import FunctionObjective
from levelport.objectives.linear import LinearObjective
from levelport.optim._minimize import minimize
from levelport.solvers import Auto
from levelport_lab.bench.competitors import competitor_named
from levelport_lab.bench.instances import Instance
from levelport_lab.bench.metered import Metered
from levelport_lab.engine.spec import Run, RunSpec
from levelport_lab.problems.benchmark_problem import with_ones
from levelport_lab.problems.models import logistic_loss
from levelport_lab.problems.optima import compute
from levelport_lab.problems.registry import problem
from levelport_lab.problems.synthetic import logistic_data

REG = 1e-6
ACCURACY = 1e-6

TimedSolver = Literal["default", "auto"]
"""What ``minimize`` teleports with by itself, and the certified solver of ``teleport``."""

Shape = tuple[int, int, float]
"""Samples, features, condition number."""

SERIES: dict[str, list[Shape]] = {
    "condition": [(2000, 50, condition) for condition in (1e1, 1e2, 1e3, 1e4, 1e5, 1e6)],
    "features": [(4000, features, 1e3) for features in (10, 30, 100, 300)],
    "samples": [(samples, 30, 1e3) for samples in (500, 2000, 8000, 32000)],
}
"""The shapes in which one thing varies and the others stay."""


@dataclass(frozen=True)
class GrowthSpec(RunSpec):
    """Evaluations of one competitor until it is accurate to 1e-6, on synthetic data of a given shape."""

    kind: ClassVar[str] = "growth"
    revision: ClassVar[int] = 2
    samples: int
    features: int
    condition: float
    competitor: str
    max_cost: float = 5000.0

    @property
    def label(self) -> str:
        return f"{self.competitor} on {self.samples}x{self.features}, condition {self.condition:g}"

    def run(self) -> list[Run]:
        instance = synthetic(self.samples, self.features, self.condition)
        f_start = instance.objective.at(instance.x0).value
        target = instance.f_star + ACCURACY * (f_start - instance.f_star)
        objective = Metered(instance.objective, target=target, max_cost=self.max_cost, clock=time.thread_time)
        competitor_named(self.competitor).run(objective, instance)
        solved = objective.records[-1][1] <= target
        facts = {
            "gradient_equivalents": objective.cost.gradient_equivalents if solved else math.inf,
            "cpu_seconds": objective.records[-1][2] if solved else math.inf,
        }
        return [Run(final_value=objective.records[-1][1], facts=facts)]


def synthetic(samples: int, features: int, condition: float) -> Instance:
    """A logistic problem with XᵀX/n of eigenvalues from 1 down to 1/condition, evenly spaced in the logarithm."""
    spectrum = np.logspace(0.0, -math.log10(condition), features)
    X, y = logistic_data(samples, spectrum)
    objective = LinearObjective.logistic(torch.tensor(X), torch.tensor(y, dtype=torch.float64), penalty=REG)
    x0 = torch.zeros(features, dtype=torch.float64)
    return Instance(objective, x0, compute(objective).value, 4.0, 0.0)


@dataclass(frozen=True)
class TeleportCostSpec(RunSpec):
    """Processor time per iteration with a teleport, as the number of samples or of parameters grows."""

    kind: ClassVar[str] = "teleport-cost"
    revision: ClassVar[int] = 2
    axis: Literal["samples", "parameters"]
    size: int
    solver: TimedSolver
    iterations: int = 20

    @property
    def label(self) -> str:
        return f"seconds per teleport, {self.size} {self.axis}, {self.solver}"

    def run(self) -> list[Run]:
        if self.axis == "samples":
            X, y = logistic_data(self.size, np.logspace(0.0, -4.0, 50))
            objective: LinearObjective | FunctionObjective = LinearObjective.logistic(
                torch.tensor(X), torch.tensor(y, dtype=torch.float64), penalty=REG
            )
            x0 = torch.zeros(50, dtype=torch.float64)
        else:
            separable = _Separable(self.size)
            x0 = 1.0 / separable.weights
            objective = FunctionObjective(separable, x0)
        # Ten HVPs, so that certified teleports do about the same work at every size; the default decides for itself.
        how: dict[str, Any] = {"solver": Auto(max_hvps=10)} if self.solver == "auto" else {}
        iterations = 3 if self.solver == "auto" else self.iterations
        began = time.thread_time()
        result = minimize(objective, x0, gtol=0.0, max_iterations=iterations, **how)
        seconds = time.thread_time() - began
        facts = {
            "cpu_seconds_per_teleport": seconds / max(1, result.teleports),
            "cost_per_teleport": result.cost.gradient_equivalents / max(1, result.teleports),
            "teleports": float(result.teleports),
        }
        return [Run(final_value=result.value, facts=facts)]


class _Separable:
    """½ Σ aᵢ xᵢ² with aᵢ from 1 to 1e-4, as cheap as a vector can be.

    From xᵢ = 1/aᵢ all entries of the gradient are equal: far from the steepest axis, so that there is work to do.
    """

    def __init__(self, size: int) -> None:
        self.weights = torch.logspace(0.0, -4.0, size, dtype=torch.float64)

    def __call__(self, x: Tensor) -> Tensor:
        return 0.5 * torch.dot(self.weights, x * x)


@dataclass(frozen=True)
class HvpSpec(RunSpec):
    """Closed-form against automatic Hessian-vector products of logistic regression, the median of many.

    Both sides multiply at one point whose gradient is known, as a solver does; the automatic one goes through the graph
    of that gradient, which is the fastest way autograd has.
    """

    kind: ClassVar[str] = "hvp"
    problem: str
    reg: float = REG
    repeats: int = 200

    @property
    def label(self) -> str:
        return f"Hessian-vector products of {self.problem}"

    def run(self) -> list[Run]:
        named = problem(self.problem, reg=self.reg)
        closed, x, y = named.objective(), named.initial_point(), named.train.targets
        X = with_ones(named.train.inputs)
        automatic = FunctionObjective(lambda w: logistic_loss((X @ w)[:, None], y) + self.reg * torch.dot(w, w), x)
        v = torch.randn(named.dimension, dtype=x.dtype, generator=torch.Generator().manual_seed(0))
        points = closed.at(x), automatic.at(x, curvature=True)
        products = [point.hvp(v) for point in points]
        seconds = [self._median_seconds(point, v) for point in points]
        difference = torch.linalg.vector_norm(products[0] - products[1]) / torch.linalg.vector_norm(products[1])
        facts = {"closed_seconds": seconds[0], "automatic_seconds": seconds[1], "difference": float(difference)}
        return [Run(facts=facts | {"samples": float(len(X)), "features": float(X.shape[1])})]

    def _median_seconds(self, point: Point, v: Tensor) -> float:
        """Of one product, the first few left out."""
        _ = point.gradient
        times = []
        for _ in range(self.repeats + 10):
            begun = time.perf_counter()
            point.hvp(v)
            times.append(time.perf_counter() - begun)
        return statistics.median(times[10:])


def slope(sizes: list[float], costs: list[float]) -> float:
    """Least-squares slope of log cost over log size; NaN where a cost is missing."""
    if len(sizes) < 2 or not all(math.isfinite(cost) and cost > 0.0 for cost in costs):
        return math.nan
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])
