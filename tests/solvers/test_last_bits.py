"""What a teleport returns does not hang on last bits of its start; what it holds and how often it waits is counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.cases import Case, all_cases
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.profiler import ProfilerActivity, profile

from levelport import Auto, FunctionObjective, teleport
from levelport.solvers.basins import PRODUCTS

SMOOTH = [case for case in all_cases() if case.name in ("quadratic", "logistic", "softplus network", "himmelblau")]


@pytest.mark.parametrize("max_hvps", [12, 50])
@pytest.mark.parametrize("case", SMOOTH, ids=lambda case: case.name)
def test_perturbed_starts_end_at_the_same_norm_and_status(case: Case, max_hvps: int) -> None:
    generator = torch.Generator().manual_seed(0)
    results = []
    for _ in range(5):
        noise = torch.randn(case.start.shape, generator=generator, dtype=case.start.dtype)
        results.append(teleport(case.fun, case.start * (1.0 + 1e-15 * noise), Auto(max_hvps=max_hvps)))
    norms = [result.gradient_norm for result in results]
    assert max(norms) - min(norms) <= 1e-6 * max(norms)
    assert len({result.status for result in results}) == 1


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


def _network(width: int) -> tuple[FunctionObjective, Tensor]:
    """A tanh layer and a linear one with a penalty, in float64: width² + width variables."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(8, width, generator=generator, dtype=torch.float64)
    start = {
        "A": torch.randn(width, width, generator=generator, dtype=torch.float64) / width**0.5,
        "b": torch.randn(width, generator=generator, dtype=torch.float64) / width**0.5,
    }
    targets = torch.sin(torch.arange(8.0, dtype=torch.float64))

    def loss(p: dict[str, Tensor]) -> Tensor:
        fit = (torch.tanh(X @ p["A"]) @ p["b"] - targets).square().mean()
        return fit + 1e-3 * (p["A"].square().sum() + p["b"].square().sum())

    objective = FunctionObjective(loss, like=start)
    return objective, objective.structure.flatten(start)


@pytest.mark.parametrize("memory", [1, 10])
def test_vectors_held_beyond_one_gradient_and_one_product(memory: int) -> None:
    """12 + 2·memory vectors of a million numbers: pairs and their diagonal, the start, two iterates, two trials."""
    objective, x = _network(1000)

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


WAITS = {getattr(Tensor, name) for name in ("item", "tolist", "__float__", "__bool__", "__int__", "__index__")}


class _Reads(TorchFunctionMode):
    """Counts how often numbers are read from a tensor: on an accelerator, each time the host waits."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.count += func in WAITS
        return func(*args, **(kwargs or {}))


def test_reads_from_the_device() -> None:
    """One for a value, one for a gradient with its value, two per iteration for the rest; seven with all trials."""
    objective, x = _network(20)
    seen = []
    for max_hvps in (15, 45):
        with _Reads() as reads:
            result = teleport(objective, x, Auto(max_hvps=max_hvps))
        assert result.nit >= max_hvps - 5
        seen.append((reads.count, result.cost.nfev, result.nit))
    (early, few, before), (late, many, after) = seen
    assert late - early <= 7.5 * (after - before)
    # Some gradients come after their value: where the parabola back to the level is doubtful, and inside of it.
    assert late - early - (many - few) <= 2.6 * (after - before)
