"""The theory's bounds on descent after teleports hold here.

On a quadratic a teleport followed by the step 1/λ is a Newton step, and ends at the minimum. On logistic regression
(Hessian stable on the sub-level set) every teleport followed by a step reduces f - f* by a constant factor, where plain
gradient descent is slower than any such factor.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer
from tests.functions import Quadratic

from levelport.objectives import LinearObjective
from levelport.optim import Armijo, Every, FixedStep, Never, Newton, minimize
from levelport.solvers import Auto


@pytest.mark.parametrize("condition", [10.0, 1e3, 1e6])
@pytest.mark.parametrize("rule", [FixedStep(1e-3), Armijo(c=0.5), Armijo(c=1e-4)], ids=["fixed", "armijo", "small-c"])
def test_a_quadratic_is_solved_in_one_step(condition: float, rule: FixedStep | Armijo) -> None:
    """By the step of a line search, or by the one that belongs to the teleport where the method has a fixed step."""
    eigenvalues = torch.logspace(0.0, -math.log10(condition), 12, dtype=torch.float64)
    objective = Quadratic.random(eigenvalues, seed=1)
    x0 = torch.linspace(-2.0, 2.0, 12, dtype=torch.float64)
    gap = objective.at(x0).value
    result = minimize(
        objective,
        x0,
        rule,
        schedule=Every(1),
        solver=Auto(memory=30, max_hvps=120, tol=1e-10),
        max_iterations=1,
        gtol=0.0,
    )
    landed, end = result.trace[1], result.trace[2]
    assert landed.teleported
    assert landed.gradient_norm == pytest.approx(objective.largest_gradient_norm(x0), rel=1e-6)
    assert end.step == pytest.approx(1.0, rel=1e-6)  # 1/λ_max
    assert end.value <= 1e-10 * gap
    plain = minimize(objective, x0, FixedStep(1.0), schedule=Never(), max_iterations=1, gtol=0.0)
    assert plain.value > 1e-3 * gap


def breast_cancer(penalty: float) -> LinearObjective:
    X, y = load_breast_cancer(return_X_y=True)
    X = np.hstack([(X - X.mean(0)) / X.std(0), np.ones((len(X), 1))])
    return LinearObjective.logistic(torch.tensor(X), torch.tensor(2.0 * y - 1.0), penalty=penalty)


def test_logistic_regression_converges_linearly_after_teleports() -> None:
    objective = breast_cancer(1e-3)
    x0 = torch.zeros(objective.dimension, dtype=torch.float64)
    best = minimize(objective, x0, Newton(max_hvps=200), schedule=Never(), gtol=1e-13).value
    result = minimize(
        objective,
        x0,
        Armijo(c=0.5),
        schedule=Every(1),
        solver=Auto(max_hvps=40),
        max_iterations=40,
        f_target=best + 1e-11,
    )
    assert result.success
    gaps = [row.value - best for row in result.trace if not row.teleported]
    ratios = [later / earlier for earlier, later in pairwise(gaps)]
    assert max(ratios) < 0.9  # linear: every step, from the first to the last
    steps = len(ratios)
    plain = minimize(objective, x0, Armijo(c=0.5), schedule=Never(), max_iterations=steps, gtol=0.0)
    assert plain.value - best > 1e3 * gaps[-1]  # gradient descent alone is far behind after as many steps
