"""Products from differences of gradients: right, charged as gradients, bounded by the budget of products."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from levelport import Auto, teleport
from levelport.objective import ObjectiveError
from levelport.objectives import FunctionObjective, GradientDifferences, LinearObjective


def _softplus_loss(x: Tensor) -> Tensor:
    return torch.nn.functional.softplus(x * torch.arange(1, x.numel() + 1, dtype=x.dtype)).sum() + (x**4).sum()


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e3])
def test_products_agree_with_automatic_ones(scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x = scale * torch.randn(20, generator=generator, dtype=torch.float64)
    v = 1e3 * torch.randn(20, generator=generator, dtype=torch.float64)
    exact = FunctionObjective(_softplus_loss, like=x)
    differences = GradientDifferences(FunctionObjective(_softplus_loss, like=x))
    want, have = exact.at(x).hvp(v), differences.at(x).hvp(v)
    assert float((have - want).norm()) <= 1e-6 * float(want.norm())


def test_product_costs_one_gradient_and_shares_the_one_there() -> None:
    x = torch.ones(5, dtype=torch.float64)
    objective = GradientDifferences(FunctionObjective(_softplus_loss, like=x))
    point = objective.at(x)
    assert point.finite
    before = objective.cost
    point.hvp(x)
    point.hvp(2.0 * x)
    spent = objective.cost - before
    assert (spent.values, spent.gradients, spent.hvps) == (0, 2, 0)
    assert objective.ledger.products == 2


def test_the_zero_vector_costs_nothing_and_gives_zero() -> None:
    x = torch.ones(5, dtype=torch.float64)
    objective = GradientDifferences(FunctionObjective(_softplus_loss, like=x))
    assert not objective.at(x).hvp(torch.zeros_like(x)).any()
    assert objective.cost.gradients == 0


@pytest.mark.parametrize("budget", [6, 12])
def test_the_budget_of_products_holds(budget: int) -> None:
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(60, 30, generator=generator, dtype=torch.float64)
    y = torch.sign(torch.randn(60, generator=generator, dtype=torch.float64))
    objective = GradientDifferences(LinearObjective.logistic(X, y, penalty=1e-4))
    result = teleport(objective, torch.ones(30, dtype=torch.float64), Auto(max_hvps=budget))
    assert objective.ledger.products <= budget
    assert result.cost.hvps == 0
    assert result.violation == 0.0


def test_same_solution_as_automatic_products_for_less() -> None:
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(60, 10, generator=generator, dtype=torch.float64)
    y = torch.sign(torch.randn(60, generator=generator, dtype=torch.float64))
    exact = LinearObjective.logistic(X, y, penalty=1e-2)
    w = torch.ones(10, dtype=torch.float64)
    want = teleport(exact, w)
    have = teleport(GradientDifferences(LinearObjective.logistic(X, y, penalty=1e-2)), w)
    assert have.gradient_norm == pytest.approx(want.gradient_norm, rel=1e-6)
    assert have.cost.gradient_equivalents < 0.8 * want.cost.gradient_equivalents


def test_other_precisions_are_refused_by_a_sentence() -> None:
    x = torch.ones(3)
    with pytest.raises(ObjectiveError, match="float64"):
        GradientDifferences(FunctionObjective(_softplus_loss, like=x))
    with pytest.raises(ObjectiveError, match="length"):
        GradientDifferences(FunctionObjective(_softplus_loss, like=x.double()), length=0.0)


def test_a_loss_without_derivative_is_still_found_out() -> None:
    x = torch.ones(3, dtype=torch.float64)
    objective = GradientDifferences(FunctionObjective(lambda x: (x.detach() ** 2).sum(), like=x))
    with pytest.raises(ObjectiveError, match="no derivative reaches x"):
        teleport(objective, x)


def test_differences_in_a_metric_keep_their_length() -> None:
    """No differences of differences: what the user has chosen is used."""
    start, seen = torch.ones(2, dtype=torch.float64), list[float]()

    def f(x: Tensor) -> Tensor:
        seen.append(float((x.detach() - start).norm()))
        return (torch.tensor([1.0, 3.0], dtype=torch.float64) * x**4).sum()

    objective = GradientDifferences(FunctionObjective(f, start), length=1e5)
    teleport(objective, start, "krylov", metric=torch.ones(2))
    step = torch.finfo(torch.float64).eps ** 0.5 * (1e5 + 2.0**0.5)
    assert min(distance for distance in seen if distance > 0.0) == pytest.approx(step, rel=1e-6)
