"""Teleportation problems on which solvers are compared.

A :class:`Model` is a loss with an initial point; a :class:`Case` is a model after some steps of gradient descent from
there (0, 5, 50 or 300), which is where an optimizer would teleport from. Models fall into four groups:

* ``statistical``   models with a convex or nearly convex loss, float64;
* ``smooth``        smooth and not convex: factorizations and networks, float64;
* ``relu``          piecewise smooth networks, float64;
* ``float32``       networks in single precision.

Every network carries a penalty, so that the sub-level sets are bounded and a best value exists.

Solvers are developed on other models than those they are reported on. The first byte of the SHA-256 of a model's name
decides: odd means reported, and the model is defined in ``statistical_models.py`` or ``network_models.py``; even means
development, and it is defined in ``tools/development_models.py``. All starts of a model are on the same side, the
side is not chosen by hand, and a new model never moves an old one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from levelport.objective import Objective
from levelport.objectives import FunctionObjective

Parameters = dict[str, Tensor]
Loss = Callable[[Parameters], Tensor]
Maker = Callable[[], tuple[Loss, Parameters]]

GROUPS = ("statistical", "smooth", "relu", "float32")


@dataclass(frozen=True)
class Model:
    """A loss, its initial point, and the numbers of descent steps after which it is teleported from."""

    name: str
    group: str
    make: Maker
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A teleportation problem: a model after ``steps`` steps of descent."""

    model: Model
    steps: int

    @property
    def name(self) -> str:
        return f"{self.model.name}@{self.steps}"

    @property
    def group(self) -> str:
        return self.model.group

    def objective(self) -> Objective:
        """Return f, with an empty ledger."""
        loss, start = self.model.make()
        return FunctionObjective(loss, like=start)

    def start(self, draw: int = 0) -> Tensor:
        """Return the flat point to teleport from; for draws other than 0, one that is 5 % of its length away."""
        x = _descended(self.model)[self.steps].clone()
        if draw == 0:
            return x
        noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(draw), dtype=torch.float64).to(x)
        length = float(torch.linalg.vector_norm(x))
        return x + noise * (0.05 * length / math.sqrt(x.numel()) if length > 0.0 else 1e-3)


MODELS: dict[str, Model] = {}
"""By name; filled by the modules that define them."""


def all_cases(models: dict[str, Model] = MODELS) -> dict[str, Case]:
    """Return the cases of all registered models by name."""
    found = [Case(model, steps) for model in models.values() for steps in model.steps]
    return {case.name: case for case in found}


def model(group: str, *steps: int, registry: dict[str, Model] = MODELS) -> Callable[[Maker], Maker]:
    """Register the decorated function under its own name, with blanks for underscores."""

    def register(make: Maker) -> Maker:
        name = make.__name__.strip("_").replace("_", " ")
        registry[name] = Model(name, group, make, steps)
        return make

    return register


def draw(seed: int) -> Callable[..., Tensor]:
    """Return a function that draws standard normal float64 tensors of any shape from a generator of its own."""
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)


@cache
def _descended(known: Model) -> dict[int, Tensor]:
    """Return the iterates of gradient descent after each of the model's numbers of steps.

    The step size doubles after a success and halves until f decreases by a tenth of the predicted decrease.
    """
    loss, initial = known.make()
    objective = FunctionObjective(loss, like=initial)
    here = objective.at(objective.structure.flatten(initial))
    kept, size = {0: here.x}, 1.0
    for step in range(1, max(known.steps) + 1):
        for _ in range(60):
            there = objective.at(here.x - size * here.gradient)
            if there.value <= here.value - 0.1 * size * here.gradient_norm**2:
                break
            size *= 0.5
        here, size = there, 2.0 * size
        if step in known.steps:
            kept[step] = here.x
    return kept
