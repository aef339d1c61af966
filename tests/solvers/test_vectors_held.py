"""How many vectors as long as x a teleport holds at a time."""

from __future__ import annotations

import pytest
import torch
from tests.functions import tanh_network
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from levelport import Auto, FunctionObjective, teleport
from levelport.solvers.basins import PRODUCTS


def _peak(work: object) -> float:
    """The most bytes that were allocated at a time while ``work`` ran."""
    assert callable(work)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    assert profiler.profiler is not None
    now = most = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return float(most)


@pytest.mark.parametrize("memory", [1, 10])
def test_vectors_held_beyond_one_gradient_and_one_product(memory: int) -> None:
    """12 + 2·memory vectors of 250 000 numbers: pairs and their diagonal, the start, two iterates, two trials."""
    objective, x = tanh_network(500)

    def one_product() -> None:
        point = objective.at(x.clone(), curvature=True)
        point.hvp(point.gradient)

    extra = _peak(lambda: teleport(objective, x, Auto(memory=memory, max_hvps=25))) - _peak(one_product)
    assert extra / (8.0 * x.numel()) <= 12.1 + 2.0 * memory


@pytest.mark.parametrize("memory", [1, 10])
def test_a_look_around_holds_its_own_products_besides(memory: int) -> None:
    """Ascents after the first have their pairs where the first had them; the best point may be another than its end."""
    size = 200_000
    steepness = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)

    def loss(x: Tensor) -> Tensor:
        return (torch.cosh(steepness * x[:3]) - 1.0).sum() + 5e-3 * torch.dot(x[3:], x[3:])

    x = torch.full((size,), 1e-4, dtype=torch.float64)
    x[:3] = torch.tensor([3.0, 0.05, 0.05])
    objective = FunctionObjective(loss, like=x)

    def one_product() -> None:
        point = objective.at(x.clone(), curvature=True)
        point.hvp(point.gradient)

    ends: list[float] = []

    def look() -> None:
        ends.append(teleport(objective, x, Auto(memory=memory)).gradient_norm)

    extra = _peak(look) - _peak(one_product)
    assert ends[0] > 2.0 * float(objective.at(x).gradient_norm)  # it did look around
    assert extra / (8.0 * size) <= 15.1 + 2.0 * memory + PRODUCTS
