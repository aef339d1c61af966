"""Logistic regression on real and generated data: as high as known, at a price, and feasible."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.optimize
import torch
from sklearn.datasets import load_breast_cancer
from torch import Tensor

from levelport import LinearObjective, teleport
from levelport.solvers import Auto


def breast_cancer(penalty: float) -> LinearObjective:
    """569 samples, standardized features and a bias column, labels ±1."""
    data = load_breast_cancer()
    features = (data.data - data.data.mean(0)) / data.data.std(0)
    X = np.hstack([features, np.ones((len(features), 1))])
    return LinearObjective.logistic(torch.from_numpy(X), torch.from_numpy(2.0 * data.target - 1.0), penalty=penalty)


def synthetic(penalty: float, seed: int) -> LinearObjective:
    """5000 Gaussian samples with 50 features scaled by logspace(0, -2); all features matter equally."""
    generator = torch.Generator().manual_seed(seed)
    scale = torch.logspace(0, -2, 50, dtype=torch.float64)
    raw = torch.randn(5000, 50, generator=generator, dtype=torch.float64)
    truth = torch.randn(50, generator=generator, dtype=torch.float64)
    return LinearObjective.logistic(raw * scale, torch.sign(raw @ truth), penalty=penalty)


def after_descent(objective: LinearObjective, steps: int) -> Tensor:
    """Gradient descent with step 1 from the origin."""
    w = torch.zeros(objective.dimension, dtype=torch.float64)
    for _ in range(steps):
        w = w - objective.at(w).gradient
    return w


@pytest.mark.parametrize(
    ("penalty", "steps", "at_start", "known"),
    [(1e-3, 5, -2.804, -1.903), (1e-3, 200, -5.731, -3.964), (1e-6, 5, -2.772, -1.556)],
)
def test_as_high_as_known_within_150_gradient_equivalents(
    penalty: float, steps: int, at_start: float, known: float
) -> None:
    """``known``: log gradient norms of local maxima found by long runs of another implementation."""
    objective = breast_cancer(penalty)
    start = after_descent(objective, steps)
    assert math.log(objective.at(start).gradient_norm) == pytest.approx(at_start, abs=1e-3)
    result = teleport(objective, start, Auto(max_hvps=30))
    assert math.log(result.gradient_norm) >= known - 0.03
    assert result.cost.gradient_equivalents <= 150
    assert result.violation <= 1e-9 * result.value_start


@pytest.mark.parametrize("seed", [0, 1])
def test_generated_data_against_slsqp(seed: int) -> None:
    """Within 0.02 of what SciPy's SLSQP finds from the same start in up to 300 iterations, at 150 equivalents."""
    objective = synthetic(1e-3, seed)
    start = after_descent(objective, 50)
    level = objective.at(start).value
    result = teleport(objective, start, Auto(max_hvps=32))
    assert result.cost.gradient_equivalents <= 150
    assert result.violation <= 1e-9 * level
    reached = slsqp(objective, start)
    assert math.log(result.gradient_norm) >= math.log(reached) - 0.02
    assert result.gain > 3.0


def slsqp(objective: LinearObjective, start: Tensor) -> float:
    """The largest gradient norm on {f ≤ f(start)} that SLSQP finds, put back onto the level by hand."""
    level = objective.at(start).value

    def negative_log(x: np.ndarray) -> tuple[float, np.ndarray]:
        point = objective.at(torch.from_numpy(x.copy()))
        product = point.hvp(point.gradient)
        return -math.log(point.gradient_norm), (-product / point.gradient_norm**2).numpy()

    unit = 1.0 / objective.at(start).gradient_norm
    constraint = {
        "type": "ineq",
        "fun": lambda x: unit * (level - objective.at(torch.from_numpy(x.copy())).value),
        "jac": lambda x: -unit * objective.at(torch.from_numpy(x.copy())).gradient.numpy(),
    }
    found = scipy.optimize.minimize(
        negative_log, start.numpy(), jac=True, method="SLSQP", constraints=[constraint], options={"maxiter": 300}
    )
    point = objective.at(torch.from_numpy(found.x))
    for _ in range(20):
        point = objective.at(point.x - (point.value - level) / point.gradient_norm**2 * point.gradient)
    assert point.value == pytest.approx(level, rel=1e-12)
    return point.gradient_norm
