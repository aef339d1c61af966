"""The families of teleportation side by side: one move of each from the same points.

A family is a rule that takes w to another point: a solver of the level-set problem, a move along a symmetry, or a
control. What is measured of one move, on ReLU networks at their start and after some steps of gradient descent:

* its cost in gradient equivalents and in processor time, as the family needs it. A certificate, which every teleport by
  the verb carries, is not charged here: it would cost all families the same five.
* the growth of ‖∇f‖ and of the predicted decrease ‖g‖⁴/(2gᵀHg), the relative change of f;
* the best decrease of one gradient step, over 15 step sizes around 1/λ, relative to that before the move. The decrease
  is taken from the value before the move, so that a rise of f by the move counts against it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from levelport.lab.engine.spec import Run, RunSpec
from levelport.objective import Objective, Point, norm
from levelport.objectives.module import ModuleObjective
from levelport.optim import Armijo, Never, minimize
from levelport.problems.registry import problem
from levelport.solvers import SQP, Auto, Settings, Solver, TeleportProblem, teleport_from
from levelport.symmetries import Balance, NullSpace, RandomBasis, Rescaling, SymmetrySolver

MOST_HVPS = 10
MNIST_SAMPLES = 10_000


@dataclass(frozen=True)
class Moved:
    """Where a move ends, and what it cost."""

    x: Tensor
    gradient_equivalents: float
    seconds: float


Family = Callable[[ModuleObjective, Tensor, int], Moved]
"""(f, w, seed) ↦ where to."""


def _symmetry(make: Callable[[ModuleObjective, int], SymmetrySolver]) -> Family:
    def move(objective: ModuleObjective, x: Tensor, seed: int) -> Moved:
        solver = make(objective, seed)
        before, began = objective.cost, time.thread_time()
        start = objective.at(x, curvature=True)
        # Only null spaces look at f while they move; asking the others for it would charge them for a value.
        slack = solver.slack(start.value, objective.dtype) if isinstance(solver, NullSpace) else 0.0
        end = solver.propose(TeleportProblem(objective, start, slack=slack, max_hvps=MOST_HVPS))
        return Moved(end, (objective.cost - before).gradient_equivalents, time.thread_time() - began)

    return move


def _level_set(solver: Solver, share: float = 1.0) -> Family:
    """By the verb; with a share of the data the teleport sees that part only, the same rows every time."""

    def move(objective: ModuleObjective, x: Tensor, seed: int) -> Moved:
        samples = len(objective.inputs)
        rows = torch.randperm(samples, generator=torch.Generator().manual_seed(seed))[: max(1, int(share * samples))]
        seen = objective if share == 1.0 else part_of(objective, rows)
        before, began = seen.cost, time.thread_time()
        settings = Settings(solver=solver, max_hvps=MOST_HVPS)
        _, point = teleport_from(seen.at(x, curvature=True), seen, settings.begin(), settings)
        return Moved(point.x, share * (seen.cost - before).gradient_equivalents, time.thread_time() - began)

    return move


def _random_direction(objective: ModuleObjective, x: Tensor, seed: int) -> Moved:
    """The control: as far as Rescaling with box 2 goes, in a direction that means nothing."""
    length = float(norm(FAMILIES["rescaling 2"](objective, x, seed).x - x))
    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(x)
    return Moved(x + (length / float(norm(direction))) * direction, 0.0, 0.0)


def _declared(objective: ModuleObjective) -> list[str]:
    """The layers of a fully connected ReLU network, in order; tracing would find the same and take longer."""
    return [name for name, layer in objective.module.named_modules() if isinstance(layer, nn.Linear)]


def part_of(objective: ModuleObjective, rows: Tensor) -> ModuleObjective:
    """The same loss of the same module on some rows."""
    part = ModuleObjective(objective.module, objective.loss, objective.inputs[rows], objective.targets[rows])
    part.deterministic = True
    return part


FAMILIES: dict[str, Family] = {
    "rescaling 2": _symmetry(lambda f, _: Rescaling(f.module, box=2.0, layers=_declared(f))),
    "rescaling 10": _symmetry(lambda f, _: Rescaling(f.module, box=10.0, layers=_declared(f))),
    "rescaling 2, decrease": _symmetry(lambda f, _: Rescaling(f.module, box=2.0, goal="decrease", layers=_declared(f))),
    "balance": _symmetry(lambda f, _: Balance(f.module, layers=_declared(f))),
    "random basis 0.9": _symmetry(lambda f, seed: RandomBasis(f.module, seed=seed, layers=_declared(f))),
    "null space": _symmetry(lambda f, _: NullSpace(f.module)),
    "null space 1e-3": _symmetry(lambda f, _: NullSpace(f.module, tau=1e-3, rise=0.01)),
    "level set, published": _level_set(SQP()),
    "level set, auto": _level_set(Auto(explore=1)),
    "level set, auto, 10 % of data": _level_set(Auto(explore=1), share=0.1),
    "random direction": _random_direction,
}
"""By name; every null space and level-set move may take ten Hessian-vector products."""


@dataclass(frozen=True)
class Place:
    """A network on data, by plain values: ``samples`` limits the training set."""

    network: str
    samples: int | None = None

    def __str__(self) -> str:
        return self.network

    def build(self, seed: int) -> tuple[ModuleObjective, Tensor, Callable[[Tensor], float]]:
        """f, the start, and the test accuracy."""
        large = self.samples is not None
        made = problem(self.network, seed=seed, dtype=torch.float32 if large else torch.float64)
        objective = made.objective(None if self.samples is None else list(range(self.samples)))
        assert isinstance(objective, ModuleObjective)
        return objective, made.initial_point(), made.test_accuracy


@dataclass(frozen=True)
class FamilyMoveSpec(RunSpec):
    """One move of every family from one point; the setting of a run is the family's number."""

    kind: ClassVar[str] = "family-move"
    place: Place
    seed: int
    steps: int
    families: tuple[str, ...] = tuple(FAMILIES)

    @property
    def label(self) -> str:
        return f"moves on {self.place} after {self.steps} steps, seed {self.seed}"

    @property
    def rough_seconds(self) -> float:
        return 4.0 if self.place.samples is None else 60.0

    def run(self) -> list[Run]:
        objective, x, _ = self.place.build(self.seed)
        if self.steps:
            x = minimize(objective, x, Armijo(), schedule=Never(), gtol=0.0, max_iterations=self.steps).x
        start = objective.at(x, curvature=True)
        before = best_step(objective, x, start.value)
        runs = []
        for number, name in enumerate(self.families):
            moved = FAMILIES[name](objective, x, self.seed)
            end = objective.at(moved.x, curvature=True)
            facts = {
                "gradient_equivalents": moved.gradient_equivalents,
                "seconds": moved.seconds,
                "gain": end.gradient_norm / start.gradient_norm,
                "change": end.value / start.value - 1.0,
                "predicted_gain": _predicted(end) / _predicted(start),
                "step": best_step(objective, moved.x, start.value) / before,
                "length": float(norm(moved.x - x)) / float(norm(x)),
            }
            runs.append(Run(setting=float(number), final_value=end.value, facts=facts, chosen=number == 0))
        return runs


def _predicted(point: Point) -> float:
    curvature = float(torch.dot(point.normal, point.hessian_normal))
    return point.gradient_norm**2 / (2.0 * curvature) if curvature > 0.0 else math.nan


def best_step(objective: Objective, x: Tensor, level: float) -> float:
    """The best decrease below ``level`` of a gradient step from ``x``, over 15 sizes, 2⁻⁷/λ to 2⁷/λ."""
    point = objective.at(x, curvature=True)
    curvature = abs(float(torch.dot(point.normal, point.hessian_normal)))
    first = 1.0 / curvature if curvature > 0.0 else 1.0
    sizes = [first * 2.0**k for k in range(-7, 8)]
    return max(level - objective.at(x - size * point.gradient).value for size in sizes)


def specs(places: tuple[Place, ...], seeds: tuple[int, ...]) -> list[RunSpec]:
    """At initialisation and after 50 steps."""
    return [FamilyMoveSpec(place, seed, steps) for place in places for seed in seeds for steps in (0, 50)]
