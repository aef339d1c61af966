"""What is charged is what is spent: forward and backward passes, counted inside of the function itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.functions import beale, booth, goldstein_price, rosenbrock
from torch import Tensor, nn

from levelport import SQP, At, Auto, Batches, Cost, Krylov, Objective, Teleporter, minimize, teleport
from levelport.objectives import ModuleObjective
from levelport.objectives.parameters import ParametersObjective
from levelport.optim import LBFGS, Armijo, Every, FixedStep, Momentum, Newton, Normalized, Polyak, StepRule


class Passes:
    """How often a function ran, and how often it was differentiated: ``here(x)`` is x."""

    def __init__(self) -> None:
        self.forward = self.backward = 0

    def here(self, x: Tensor) -> Tensor:
        self.forward += 1
        if x.requires_grad:
            x = x.view_as(x)
            x.register_hook(self._differentiated)
        return x

    def _differentiated(self, gradient: Tensor) -> None:
        self.backward += 1

    def uncharged(self, cost: Cost) -> tuple[int, int]:
        """Forward and backward passes beyond those in ``cost``.

        A product where none was announced differentiates f once more: that is part of its price of two gradients.
        """
        return self.forward - cost.values - cost.gradients, self.backward - cost.gradients - cost.hvps


FUNCTIONS = {"booth": booth, "goldstein-price": goldstein_price, "rosenbrock": rosenbrock, "beale": beale}
START = torch.tensor([-0.5, 0.7], dtype=torch.float64)
TELEPORTS: dict[str, Callable[[Any], Any]] = {
    "auto": lambda f: teleport(f, START),
    "auto, level set": lambda f: teleport(f, START, level_set=True),
    "auto, differences": lambda f: teleport(f, START, Auto(hvp="difference")),
    "auto, one product": lambda f: teleport(f, START, Auto(max_hvps=1)),
    "krylov": lambda f: teleport(f, START, "krylov"),
    "sqp": lambda f: teleport(f, START, SQP(max_iterations=8)),
    "sqp, released": lambda f: teleport(f, START, SQP(mode="released", final="last", max_iterations=8)),
    "metric": lambda f: teleport(f, START, metric=torch.tensor([1.0, 9.0])),
}
RULES = (LBFGS(), Armijo(), FixedStep(1e-5), Momentum(1e-5), Polyak(1e-5), Normalized(1e-3), Newton(), Newton(step=0.8))


@pytest.mark.parametrize("how", TELEPORTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_pass_of_a_teleport_is_charged(name: str, how: str) -> None:
    passes = Passes()
    cost = TELEPORTS[how](lambda x: FUNCTIONS[name](passes.here(x))).cost
    assert passes.uncharged(cost) == (0, 0)


@pytest.mark.parametrize("solver", ["krylov", "auto"])
@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_pass_of_a_descent_is_charged(name: str, rule: StepRule, solver: str) -> None:
    """Newton's first step, from a point that was not announced, differentiates once more; so does "auto" in a run."""
    passes = Passes()

    def f(x: Tensor) -> Tensor:
        return FUNCTIONS[name](passes.here(x))

    result = minimize(f, START, rule, schedule=Every(2, start=1), solver=solver, max_iterations=5)
    forward, backward = passes.uncharged(result.cost)
    assert forward == 0
    assert solver == "auto" or backward == isinstance(rule, Newton)


def data(samples: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(samples, k, generator=generator, dtype=torch.float64) for k in (3, 1))  # type: ignore[return-value]


@pytest.mark.parametrize("kind", ["module", "chunks", "parameters", "batches"])
def test_every_pass_over_the_data_is_charged(kind: str) -> None:
    """Of several parts no graph is kept: a product takes the passes of a gradient, and one of its own."""
    passes, module = Passes(), nn.Linear(3, 1, dtype=torch.float64)
    inputs, targets = data(9)

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return (passes.here(outputs) - targets).tanh().square().mean()

    objective: Objective
    if kind in ("module", "chunks"):
        objective = ModuleObjective(module, loss, inputs, targets, chunk_size=4 if kind == "chunks" else None)
    else:
        rows = [slice(0, 4), slice(4, 8), slice(8, 9)] if kind == "batches" else [slice(None)]
        batches = Batches(lambda x, y: loss(module(x), y), [(inputs[row], targets[row]) for row in rows])
        objective = ParametersObjective(module.parameters(), batches)
    x = torch.linspace(-1.0, 1.0, 4, dtype=torch.float64)
    parts = 3 if kind in ("chunks", "batches") else 1
    point = objective.at(x, curvature=True)
    seen = []
    for look in (lambda: point.value, lambda: point.gradient, lambda: point.hvp(x), lambda: point.hvp(x)):
        look()
        cost = objective.cost
        seen.append((cost.values, cost.gradients, cost.hvps, passes.forward, passes.backward))
    if parts == 1:
        assert seen == [(1, 0, 0, 1, 0), (0, 1, 0, 1, 1), (0, 1, 1, 1, 2), (0, 1, 2, 1, 3)]
    else:
        assert seen == [(1, 0, 0, 3, 0), (1, 1, 0, 6, 3), (1, 1, 1, 9, 9), (1, 1, 2, 12, 15)]


@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize("first_step", ["included", "optimizer"])
def test_a_teleporter_spends_what_its_moves_cost(first_step: Any, batches: int) -> None:
    """A step, half a gradient for the value that is looked at before the first one, and a move, in batches of steps."""
    torch.manual_seed(0)
    passes, module = Passes(), nn.Linear(3, 1, dtype=torch.float64)
    inputs, targets = data(9)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return (passes.here(module(x)) - y).tanh().square().mean()

    whole = Batches(loss, [(inputs[row::batches], targets[row::batches]) for row in range(batches)])
    teleporter = Teleporter(
        torch.optim.SGD(module.parameters(), lr=0.1),
        At(0),
        solver=Krylov(hvp="exact"),
        teleport_on=whole,
        first_step=first_step,
    )
    result = teleporter.maybe(lambda: loss(inputs, targets))
    assert result is not None
    assert result.moved
    assert teleporter.spent == 1.0 + 0.5 + batches * result.cost.gradient_equivalents
    assert teleporter.policy.cost == batches * result.cost.gradient_equivalents
    if batches == 1:
        assert passes.forward == 1 + result.cost.values + result.cost.gradients
