"""A zoo of teleportation problems: what solvers are developed on, and what they are reported on.

A :class:`Species` is a loss with an initial point; an :class:`Animal` is a species after some steps of gradient descent
from there (none, 5, 50, 300), which is where optimizers would teleport from. Species fall into four groups:

* ``statistical``   models with a convex or nearly convex loss, float64;
* ``smooth``        smooth and not convex: factorisations, networks, a PINN, float64;
* ``relu``          piecewise smooth networks, float64;
* ``float32``       some of each, in single precision.

Every network carries a penalty, so that the sub-level sets are bounded and a best value exists.

Whoever develops a solver looks at one half of the species only. Which half a species belongs to is a bit of the
SHA-256 of its name (:attr:`Species.half`): all starts of a species are on the same side, nobody has chosen the side,
and a new species never moves an old one. That half has few networks for the noise that networks bring, so that there
are more to practise on in :mod:`levelport_lab.bench.zoo_practice`, which are not part of the race.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from levelport.objective import Objective
from levelport.objectives import FunctionObjective

Parameters = dict[str, Tensor]
Loss = Callable[[Parameters], Tensor]
Half = Literal["development", "reported"]

GROUPS = ("statistical", "smooth", "relu", "float32")
STEPS = (0, 5, 50, 300)


@dataclass(frozen=True)
class Species:
    """A loss, where it starts, and after how many steps of descent it is looked at."""

    name: str
    group: str
    make: Callable[[], tuple[Loss, Parameters]]
    steps: tuple[int, ...]
    practice: bool = False

    @property
    def half(self) -> Half:
        """Which half the name's hash puts it into; what is there for practice has been developed on."""
        if self.practice:
            return "development"
        return "reported" if hashlib.sha256(self.name.encode()).digest()[0] & 1 else "development"


@dataclass(frozen=True)
class Animal:
    """A teleportation problem: a species after ``steps`` steps of descent."""

    species: Species
    steps: int

    @property
    def name(self) -> str:
        return f"{self.species.name}@{self.steps}"

    def objective(self) -> Objective:
        """f, with an empty ledger."""
        loss, start = self.species.make()
        return FunctionObjective(loss, like=start)

    def start(self, draw: int = 0) -> Tensor:
        """The point to teleport from, as a flat vector; for other draws than 0 one that is 5 % of its length away."""
        x = _descended(self.species.name)[self.steps].clone()
        if draw == 0:
            return x
        noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(draw), dtype=torch.float64).to(x)
        length = float(torch.linalg.vector_norm(x))
        return x + noise * (0.05 * length / math.sqrt(x.numel()) if length > 0.0 else 1e-3)


def everyone() -> dict[str, Animal]:
    """All problems by name."""
    animals = [Animal(species, steps) for species in SPECIES.values() for steps in species.steps]
    return {animal.name: animal for animal in animals}


SPECIES: dict[str, Species] = {}
"""By name; filled by the modules that describe them."""


def species(
    group: str, *steps: int
) -> Callable[[Callable[[], tuple[Loss, Parameters]]], Callable[[], tuple[Loss, Parameters]]]:
    """Enters the decorated function into the zoo, by its own name with blanks for underscores."""

    def enter(make: Callable[[], tuple[Loss, Parameters]]) -> Callable[[], tuple[Loss, Parameters]]:
        name = make.__name__.strip("_").replace("_", " ")
        SPECIES[name] = Species(name, group, make, steps)
        return make

    return enter


def draw(seed: int) -> Callable[..., Tensor]:
    """Standard normal tensors of any shape in float64, from a generator of their own."""
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)


@cache
def _descended(name: str) -> dict[int, Tensor]:
    """The iterates of gradient descent after each of the species' steps.

    The step size doubles after a success and halves until f decreases by a tenth of what the slope promises.
    """
    kind = SPECIES[name]
    loss, initial = kind.make()
    objective = FunctionObjective(loss, like=initial)
    here = objective.at(objective.structure.flatten(initial))
    kept, size = {0: here.x}, 1.0
    for step in range(1, max(kind.steps) + 1):
        for _ in range(60):
            there = objective.at(here.x - size * here.gradient)
            if there.value <= here.value - 0.1 * size * here.gradient_norm**2:
                break
            size *= 0.5
        here, size = there, 2.0 * size
        if step in kind.steps:
            kept[step] = here.x
    return kept
