"""The families of teleportation side by side: one move of each from the same points.

A family is a rule that takes w to another point: a solver of the level-set problem, a move along a symmetry, or a
control. What is measured of one move, on ReLU networks at their start and after some steps of gradient descent:

* its cost in gradient equivalents and in processor time, as the family needs it. A certificate, which every teleport by
  the verb carries, is not charged here: it would cost all families the same five.
* the growth of ‖∇f‖ and of the predicted decrease ‖g‖⁴/(2gᵀHg), the relative change of f;
* the best decrease of one gradient step, over 15 step sizes around 1/λ, relative to that before the move. The decrease
  is taken from the value before the move, so that a rise of f by the move counts against it;
* the same after a move as long in a random direction, which is the control.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from levelport.objective import Objective, Point
from levelport.objectives.module import ModuleObjective
from levelport.optim import Armijo, Never, minimize
from levelport.solvers import SQP, Auto, Solver, TeleportProblem, move_from, solver_named
from levelport.symmetries import (
    ActivationGroup,
    Balance,
    LinearGroup,
    NullSpace,
    RandomBasis,
    Rescaling,
    SymmetrySolver,
)
from levelport.symmetries.balance import smallest_weights
from levelport.symmetries.scales import ScaleGroup
from levelport.vectors import norm
from levelport_lab.engine.spec import Run, RunSpec
from levelport_lab.problems.registry import problem

MOST_HVPS = 10
ACTIVATION_SAMPLES = 200
"""What the authors of the group around an activation let it see."""


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


def _balance_sweep(objective: ModuleObjective, x: Tensor, seed: int) -> Moved:
    """One sweep over the layers, which is what its authors do before every step; not yet balanced, and as exact."""
    began = time.thread_time()
    group = ScaleGroup.of(Balance(objective.module, layers=_declared(objective)).chain, objective, "Balance")
    return Moved(group.move(x, smallest_weights(group, x, 1e3, sweeps=1)), 0.0, time.thread_time() - began)


def _activation_group(objective: ModuleObjective, x: Tensor, seed: int) -> Moved:
    """On 200 samples, as its authors do; they check nothing, here f may rise by 1 % on these samples."""
    samples = len(objective.inputs)
    rows = torch.randperm(samples, generator=torch.Generator().manual_seed(seed))[:ACTIVATION_SAMPLES]
    seen, share = part_of(objective, rows), len(rows) / samples
    began, start = time.thread_time(), seen.at(x, curvature=True)
    solver = ActivationGroup(objective.module, rise=0.01)
    slack = solver.slack(start.value, seen.dtype)
    end = solver.propose(TeleportProblem(seen, start, slack=slack, max_hvps=MOST_HVPS))
    return Moved(end, share * seen.cost.gradient_equivalents, time.thread_time() - began)


def _level_set(solver: Solver, share: float = 1.0) -> Family:
    """By the verb; with a share of the data the teleport sees that part only, the same rows every time."""

    def move(objective: ModuleObjective, x: Tensor, seed: int) -> Moved:
        samples = len(objective.inputs)
        rows = torch.randperm(samples, generator=torch.Generator().manual_seed(seed))[: max(1, int(share * samples))]
        seen = objective if share == 1.0 else part_of(objective, rows)
        before, began = seen.cost, time.thread_time()
        limited = replace(solver_named(solver), max_hvps=MOST_HVPS)
        point = move_from(seen.at(x, curvature=True), seen, limited).point
        return Moved(point.x, share * (seen.cost - before).gradient_equivalents, time.thread_time() - began)

    return move


def _random_direction(objective: ModuleObjective, x: Tensor, seed: int) -> Moved:
    """The control of training: as far as Rescaling with box 2 goes, in a direction that means nothing."""
    length = float(norm(FAMILIES["rescaling 2"](objective, x, seed).x - x))
    return Moved(elsewhere(x, length, seed), 0.0, 0.0)


def elsewhere(x: Tensor, length: float, seed: int) -> Tensor:
    """A point at this distance, in a random direction."""
    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(x)
    return x + (length / float(norm(direction))) * direction


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
    "balance, one sweep": _balance_sweep,
    "random basis 0.9": _symmetry(lambda f, seed: RandomBasis(f.module, seed=seed, layers=_declared(f))),
    "null space": _symmetry(lambda f, _: NullSpace(f.module)),
    "null space 1e-3": _symmetry(lambda f, _: NullSpace(f.module, tau=1e-3, rise=0.01)),
    "linear group 2": _symmetry(lambda f, _: LinearGroup(f.module, box=2.0, layers=_declared(f))),
    "linear group 2, decrease": _symmetry(
        lambda f, _: LinearGroup(f.module, box=2.0, goal="decrease", layers=_declared(f))
    ),
    "activation group": _activation_group,
    "level set, published": _level_set(SQP()),
    "level set, auto": _level_set(Auto()),
    "level set, auto, 10 % of data": _level_set(Auto(), share=0.1),
    "random direction": _random_direction,
}
"""By name; moves that ascend may take ten Hessian-vector products."""

LINEAR_ONLY = ("linear group 2", "linear group 2, decrease")
"""Need two linear layers with nothing in between; an activation stands there in every other network of the study."""


@dataclass(frozen=True)
class Place:
    """A network on data, by name. Images are trained on in single precision, tables in double."""

    network: str

    def __str__(self) -> str:
        return self.network

    @property
    def kind(self) -> str:
        """What the page puts together."""
        if "mnist" in self.network:
            return "ReLU network, MNIST"
        return "linear network, UCI" if "mlp-linear" in self.network else "ReLU networks, UCI"

    def welcomes(self, family: str) -> bool:
        """Whether the family has anything to move in this network."""
        return family not in LINEAR_ONLY or self.kind.startswith("linear")

    def build(self, seed: int) -> tuple[ModuleObjective, Tensor, Callable[[Tensor], float]]:
        """f, the start, and the test accuracy."""
        made = problem(self.network, seed=seed, dtype=torch.float32 if "mnist" in self.network else torch.float64)
        objective = made.objective()
        assert isinstance(objective, ModuleObjective)
        return objective, made.initial_point(), made.test_accuracy


@dataclass(frozen=True)
class FamilyMoveSpec(RunSpec):
    """One move of every family from one point; the setting of a run is the family's number."""

    kind: ClassVar[str] = "family-move"
    revision: ClassVar[int] = 2
    place: Place
    seed: int
    steps: int
    families: tuple[str, ...]

    @property
    def label(self) -> str:
        return f"moves on {self.place} after {self.steps} steps, seed {self.seed}"

    @property
    def rough_seconds(self) -> float:
        return 20.0 if "mnist" in self.place.network else 4.0

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
            strayed = elsewhere(x, float(norm(moved.x - x)), self.seed)
            facts["step_at_random"] = best_step(objective, strayed, start.value) / before
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
    """At initialisation and after 50 steps; linear networks are done with by then, so after 5."""
    return [
        FamilyMoveSpec(place, seed, steps, tuple(family for family in FAMILIES if place.welcomes(family)))
        for place in places
        for seed in seeds
        for steps in (0, 5 if place.kind.startswith("linear") else 50)
    ]
