"""Closed-form against automatic Hessian-vector products of logistic regression on magic (15216 × 11, float64).

    python -m levelport.lab.bench.linear_hvp

Both sides multiply at one point whose gradient is known, as a solver does; the automatic one goes through the
graph of that gradient, which is the fastest way autograd has. Prints the median time of each and their ratio.
"""

from __future__ import annotations

import statistics
import time

import torch
from torch import Tensor

from levelport.objective import Point
from levelport.objectives import FunctionObjective, LinearObjective
from levelport.problems import problem
from levelport.problems.models import logistic_loss

REPEATS = 200


def median_seconds(point: Point, v: Tensor) -> float:
    """Median time of one HVP, the first few left out."""
    _ = point.gradient
    times = []
    for _ in range(REPEATS + 10):
        begun = time.perf_counter()
        point.hvp(v)
        times.append(time.perf_counter() - begun)
    return statistics.median(times[10:])


def compare(name: str = "logreg/magic", reg: float = 1e-6) -> tuple[float, float, float]:
    """Seconds per HVP in closed form and by autograd, and the largest relative difference between the two."""
    one = problem(name, reg=reg)
    closed = one.objective()
    assert isinstance(closed, LinearObjective)
    X, y = closed.X, one.train.targets
    x = one.initial_point()

    def loss(w: Tensor) -> Tensor:
        return logistic_loss((X @ w)[:, None], y) + reg * torch.dot(w, w)

    automatic = FunctionObjective(loss, x)
    v = torch.randn(one.dimension, dtype=x.dtype, generator=torch.Generator().manual_seed(0))
    closed_point, automatic_point = closed.at(x), automatic.at(x, curvature=True)
    expected = automatic_point.hvp(v)
    difference = float((closed_point.hvp(v) - expected).norm() / expected.norm())
    return median_seconds(closed_point, v), median_seconds(automatic_point, v), difference


def main() -> None:
    torch.set_num_threads(1)
    closed, automatic, difference = compare()
    print(f"closed form  {closed * 1e6:8.1f} µs per HVP")
    print(f"autograd     {automatic * 1e6:8.1f} µs per HVP")
    print(f"ratio        {automatic / closed:8.2f}      (results agree to {difference:.1e})")


if __name__ == "__main__":
    main()
