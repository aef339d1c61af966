"""One training run of the study, charged: with moves made by hand, or with ``Teleported`` deciding."""

from __future__ import annotations

import time
from typing import Literal

import torch
from moves import Family
from torch import Tensor, nn

from levelport.objective import Objective, Point
from levelport.objectives.module import ModuleObjective
from levelport.optim import Armijo, Every, Teleported, minimize
from levelport.vectors import all_finite
from levelport_lab.bench.metered import Metered, TorchFunction

Optimizer = Literal["SGD", "momentum", "Adam", "GD-Armijo"]


class Training:
    """One run: parameters, the state of an optimizer, and what it has cost. What lies beyond the budget is not recorded."""

    def __init__(self, objective: ModuleObjective, x: Tensor, optimizer: Optimizer, lr: float, max_cost: float) -> None:
        self.objective, self.x, self.kept = objective, x, x
        self.optimizer, self.lr, self.max_cost = optimizer, lr, max_cost
        self.cost = self.seconds = 0.0
        self.steps = self.moves = 0
        self.curves: dict[str, list[float]] = {"gradient_equivalents": [], "seconds": [], "value": []}
        self._stuck = False
        self._first = self._second = torch.zeros_like(x)
        self._search: float | None = None
        self._next: Point | None = None

    @property
    def goes_on(self) -> bool:
        """Whether there is budget left, and a point to go on from."""
        return self.cost < self.max_cost and not self._stuck and all_finite(self.x)

    def move(self, family: Family, seed: int) -> None:
        """Move by a family, charged."""
        moved = family(self.objective, self.x, seed + 1000 * self.moves)
        self.x, self.moves = moved.x, self.moves + 1
        self.cost += moved.gradient_equivalents
        self.seconds += moved.seconds

    def step(self, objective: ModuleObjective, share: float) -> None:
        """One step on ``objective``, which holds a share of the data."""
        before, began = objective.cost, time.thread_time()
        # The accepted trial of a line search has paid for its forward pass already.
        known = self._next is not None and self._next.x is self.x
        point = self._next if known and self._next is not None else objective.at(self.x)
        _ = point.gradient
        if share == 1.0:
            self.record(point.value)
        self._advance(objective, point)
        self.steps += 1
        self.cost += share * (objective.cost - before).gradient_equivalents
        self.seconds += time.thread_time() - began

    def record(self, value: float) -> None:
        """Write down the loss on all samples at the present cost."""
        if self.cost <= self.max_cost:
            self.kept = self.x
            for name, entry in (("gradient_equivalents", self.cost), ("seconds", self.seconds), ("value", value)):
                self.curves[name].append(entry)

    def full_loss(self) -> float:
        """The loss on all samples, not charged."""
        f = self.objective
        return float(f.loss(f.predict(self.x, f.inputs), f.targets))

    def _advance(self, objective: Objective, point: Point) -> None:
        gradient, t = point.gradient, self.steps + 1
        if self.optimizer == "SGD":
            self.x = self.x - self.lr * gradient
        elif self.optimizer == "momentum":
            self._first = 0.9 * self._first + gradient
            self.x = self.x - self.lr * self._first
        elif self.optimizer == "Adam":
            self._first = torch.lerp(self._first, gradient, 0.1)
            self._second = 0.999 * self._second + 0.001 * gradient.square()
            scale = (self._second / (1.0 - 0.999**t)).sqrt() + 1e-8
            self.x = self.x - self.lr * (self._first / (1.0 - 0.9**t)) / scale
        else:
            step = Armijo().advance(objective, point, self._search, None)
            self._stuck = step.point is None
            if step.point is not None:
                self.x, self._search, self._next = step.point.x, step.state, step.point


class DefaultTraining(Training):
    """Our defaults decide: ``Teleported(optimizer)``, or ``minimize`` for GD-Armijo. Charged by what they evaluate."""

    def __init__(self, objective: ModuleObjective, x: Tensor, optimizer: Optimizer, lr: float, max_cost: float) -> None:
        super().__init__(objective, x, optimizer, lr, max_cost)
        self._parameter = nn.Parameter(x.clone())
        if optimizer == "GD-Armijo":
            return
        momentum = 0.9 if optimizer == "momentum" else 0.0
        self._wrapped = Teleported(torch.optim.SGD([self._parameter], lr=lr, momentum=momentum))

    def step(self, objective: ModuleObjective, share: float) -> None:
        if self.optimizer == "GD-Armijo":
            self._minimize(objective)
            return
        began, metered = time.thread_time(), Metered(objective)
        function = TorchFunction(metered)
        loss = self._wrapped.step(lambda: function(self._parameter))
        assert loss is not None
        if share == 1.0:
            self.record(float(loss))
        self.x = self._parameter.detach().clone()
        self.steps, self.moves = self.steps + 1, self._wrapped.teleporter.moves
        self.cost += share * metered.spent
        self.seconds += time.thread_time() - began

    def _minimize(self, objective: ModuleObjective) -> None:
        """All steps at once."""
        before, began = objective.cost, time.thread_time()

        def follow(_: object, point: Point) -> None:
            self.cost = (objective.cost - before).gradient_equivalents
            self.x, self.seconds = point.x, time.thread_time() - began
            self.record(point.value)

        result = minimize(
            objective,
            self.x,
            Armijo(),
            schedule=Every(1),
            gtol=0.0,
            max_iterations=10**9,
            max_cost=self.max_cost,
            callback=follow,
        )
        self.moves, self._stuck = result.teleports, True
