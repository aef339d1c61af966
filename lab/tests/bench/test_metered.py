"""The instrument: it counts what the objective itself counts, stops in time, and serves SciPy and torch alike."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from levelport.optim._minimize import minimize
from levelport_lab.bench.competitors import COMPETITORS
from levelport_lab.bench.instances import ProblemName
from levelport_lab.bench.metered import Enough, Metered, NumpyFunctions, TorchFunction
from levelport_lab.bench.races import race
from levelport_lab.problems.quadratics import Quadratic


def quadratic() -> Quadratic:
    return Quadratic.random(torch.logspace(0, -1, 6, dtype=torch.float64), seed=3)


def zeros() -> torch.Tensor:
    return torch.zeros(6, dtype=torch.float64)


def test_counts_and_results_are_those_of_the_objective_itself() -> None:
    plain, metered = quadratic(), Metered(quadratic())
    expected = minimize(plain, zeros(), max_iterations=8, gtol=0.0)
    found = minimize(metered, zeros(), max_iterations=8, gtol=0.0)
    assert torch.equal(torch.as_tensor(expected.x), torch.as_tensor(found.x))
    assert plain.cost == metered.cost
    assert len(metered.records) == metered.cost.gradients
    assert metered.records[-1][0] <= metered.cost.gradient_equivalents
    assert metered.evaluation_seconds > 0.0


def test_stops_at_the_target_and_at_the_budget() -> None:
    target = Metered(quadratic(), target=1e-3)
    with pytest.raises(Enough):
        minimize(target, zeros(), gtol=0.0)
    assert target.records[-1][1] <= 1e-3 < min(record[1] for record in target.records[:-1])
    budget = Metered(quadratic(), max_cost=10.0)
    with pytest.raises(Enough):
        minimize(budget, zeros(), gtol=0.0)
    assert budget.records[-1][0] <= 10.0 < budget.spent
    with pytest.raises(Enough):
        budget.at(zeros()).gradient  # noqa: B018


def test_curves_hold_the_best_so_far_only() -> None:
    metered = Metered(quadratic())
    metered.records = [(1.0, 5.0, 0.1), (2.0, math.nan, 0.2), (3.0, 6.0, 0.3), (4.0, 4.0, 0.4), (5.0, 4.0, 0.5)]
    curves = metered.best_so_far()
    np.testing.assert_array_equal(curves["gradient_equivalents"], [1.0, 4.0])
    np.testing.assert_array_equal(curves["value"], [5.0, 4.0])
    np.testing.assert_array_equal(curves["seconds"], [0.1, 0.4])


def test_scipy_pays_once_for_value_and_gradient_at_one_point() -> None:
    metered = Metered(quadratic())
    functions = NumpyFunctions(metered)
    x, v = np.arange(6.0), np.ones(6)
    value, gradient, product = functions.fun(x), functions.jac(x), functions.hessp(x, v)
    assert (metered.cost.values, metered.cost.gradients, metered.cost.hvps) == (0, 1, 1)
    inner = quadratic()
    residual = x - inner.minimizer.numpy()
    np.testing.assert_allclose(gradient, inner.hessian.numpy() @ residual)
    np.testing.assert_allclose(product, inner.hessian.numpy() @ v)
    assert value == pytest.approx(0.5 * residual @ gradient)


def test_second_derivatives_without_grad_mode() -> None:
    instance = ProblemName("function", "rosenbrock").build()
    function = TorchFunction(Metered(instance.objective))
    x = instance.x0.clone().requires_grad_()
    v = torch.tensor([1.0, 0.0], dtype=torch.float64)
    (gradient,) = torch.autograd.grad(function(x), x, create_graph=True)
    with torch.no_grad():
        (product,) = torch.autograd.grad(gradient, x, v)
    # ∇²f e₁ = (1200 x² - 400 y + 2, -400 x) at (-1.2, 1).
    torch.testing.assert_close(product, torch.tensor([1330.0, 480.0], dtype=torch.float64))


def test_torch_can_differentiate_it_twice() -> None:
    metered = Metered(quadratic())
    function = TorchFunction(metered)
    x = torch.arange(6.0, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(function(x), x, create_graph=True)
    v = torch.ones(6, dtype=torch.float64)
    (product,) = torch.autograd.grad(gradient, x, v)
    inner = quadratic()
    torch.testing.assert_close(gradient.detach(), inner.hessian @ (x.detach() - inner.minimizer))
    torch.testing.assert_close(product, inner.hessian @ v)
    assert (metered.cost.values, metered.cost.gradients, metered.cost.hvps) == (0, 1, 1)


@pytest.mark.parametrize("name", COMPETITORS)
def test_every_competitor_minimises_a_quadratic(name: str) -> None:
    if name.startswith("torchmin"):
        pytest.importorskip("torchmin", reason="pytorch-minimize comes with levelport-lab")
    run = race(ProblemName("quadratic", "condition 1e1"), name, 1500.0)
    assert run.final_value <= 1e-2 * run.facts["f_start"]
    counted = 0.5 * run.facts["values"] + run.facts["gradients"] + 2.0 * run.facts["hvps"]
    assert run.facts["gradient_equivalents"] == counted <= 1502.0
    assert np.all(np.diff(run.curves["value"]) < 0.0)
    assert np.all(np.diff(run.curves["gradient_equivalents"]) >= 0.0)


def test_products_do_not_vanish_without_grad_mode() -> None:
    instance = ProblemName("function", "rosenbrock").build()
    v = torch.tensor([1.0, 0.0], dtype=torch.float64)
    with torch.no_grad():
        early = instance.objective.at(instance.x0, curvature=True)
        late = instance.objective.at(instance.x0)
        assert early.gradient.requires_grad is False
        for point in (early, late):
            torch.testing.assert_close(point.hvp(v), torch.tensor([1330.0, 480.0], dtype=torch.float64))
