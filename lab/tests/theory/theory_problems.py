"""Problems with exact teleports on which the bounds are tried.

Teleports come from closed forms (quadratics) or from a search over all directions in the plane that shares no code with
the library's solvers (logistic regression), so a run satisfies the theorems' assumption to about eight digits.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from levelport.numerics.newton import Minimum
from levelport.objective import Objective, Point
from levelport.objectives import LinearObjective
from levelport_lab.problems.minimum import find_minimum
from levelport_lab.problems.quadratics import Quadratic
from levelport_lab.theory.constants import Constants, constants_of
from levelport_lab.theory.trajectory import (
    Oracle,
    Trajectory,
    descend,
    fixed_step,
    largest_armijo_step,
    quadratic_oracle,
)


@dataclass(frozen=True)
class Case:
    """A problem, its start, its constants and an exact teleport."""

    name: str
    objective: Objective
    start: torch.Tensor
    constants: Constants
    oracle: Oracle

    @property
    def rounding(self) -> float:
        """By how much a measured gap may be off: f and f* carry some ten units in the last place."""
        return 2e-14 * max(1.0, abs(self.constants.minimum.value), self.constants.initial_gap)

    def run(
        self, iterations: int, schedule: Set[int] = frozenset(), steps: tuple[float, float] | None = None
    ) -> Trajectory:
        rules = (largest_armijo_step, largest_armijo_step) if steps is None else fixed_step(*steps)
        return descend(
            self.objective,
            self.start,
            iterations,
            minimum=self.constants.minimum.value,
            minimizer=self.constants.minimum.x,
            schedule=schedule,
            oracle=self.oracle,
            rules=rules,
        )


def quadratic_case(name: str, eigenvalues: list[float], seed: int, scale: float = 1.0) -> Case:
    objective = Quadratic.random(torch.tensor(eigenvalues, dtype=torch.float64), seed)
    generator = torch.Generator().manual_seed(seed + 1)
    shift = torch.randn(objective.dimension, generator=generator, dtype=torch.float64)
    start = objective.minimizer + scale * shift
    minimum = Minimum(objective.minimizer, 0.0, 0.0, convex=True)
    oracle = quadratic_oracle(objective, objective.hessian, objective.minimizer)
    return Case(name, objective, start, constants_of(objective, start, minimum), oracle)


def least_squares_case(name: str, n: int, d: int, penalty: float, seed: int) -> Case:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, d, generator=generator, dtype=torch.float64) * torch.logspace(0, -1, d, dtype=torch.float64)
    y = torch.randn(n, generator=generator, dtype=torch.float64)
    objective = LinearObjective.squared(X, y, penalty=penalty)
    H = X.T @ X / n + 2 * penalty * torch.eye(d, dtype=torch.float64)
    minimizer = torch.linalg.solve(H, X.T @ y / n)
    point = objective.at(minimizer)
    start = torch.zeros(d, dtype=torch.float64)
    minimum = Minimum(minimizer, point.value, point.gradient_norm, convex=True)
    return Case(
        name, objective, start, constants_of(objective, start, minimum), quadratic_oracle(objective, H, minimizer)
    )


def logistic_case(name: str, n: int, penalty: float, seed: int, nearness: float = 1.0, squeeze: float = 1.0) -> Case:
    """Logistic regression in the plane; ``nearness`` in (0, 1] moves the start from w* towards 0."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 2, generator=generator, dtype=torch.float64) * torch.tensor([1.0, squeeze], dtype=torch.float64)
    noise = torch.randn(n, generator=generator, dtype=torch.float64)
    y = torch.where(X @ torch.tensor([1.0, -1.0 / squeeze], dtype=torch.float64) + noise > 0, 1.0, -1.0).double()
    objective = LinearObjective.logistic(X, y, penalty=penalty)
    minimum = find_minimum(objective, torch.zeros(2, dtype=torch.float64))
    start = (1.0 - nearness) * minimum.x
    oracle = planar_oracle(objective, minimum.x.numpy(), *logistic_in_numpy(X.numpy(), y.numpy(), penalty))
    return Case(name, objective, start, constants_of(objective, start, minimum), oracle)


def logistic_in_numpy(X: np.ndarray, y: np.ndarray, penalty: float) -> tuple[Callable, Callable]:
    """f and ‖∇f‖ at many points at once, written again without torch."""

    def value(W: np.ndarray) -> np.ndarray:
        return np.logaddexp(0.0, -y * (W @ X.T)).mean(axis=1) + penalty * (W**2).sum(axis=1)

    def gradient_norm(W: np.ndarray) -> np.ndarray:
        residual = -y * np.exp(-np.logaddexp(0.0, y * (W @ X.T)))
        return np.linalg.norm(residual @ X / len(y) + 2 * penalty * W, axis=1)

    return value, gradient_norm


def planar_oracle(objective: Objective, centre: np.ndarray, value: Callable, gradient_norm: Callable) -> Oracle:
    """The global maximizer of ‖∇f‖ over {f ≤ f(w)} in the plane, by brute force on the boundary.

    For strictly convex f the maximizer lies on the boundary, which is star-shaped about w*: one radius per angle.
    """

    def boundary(angles: np.ndarray, level: float) -> np.ndarray:
        directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        low, high = np.zeros(len(angles)), np.full(len(angles), 1e-8)
        while (inside := value(centre + high[:, None] * directions) <= level).any():
            high = np.where(inside, 2.0 * high, high)
        for _ in range(54):
            middle = 0.5 * (low + high)
            inside = value(centre + middle[:, None] * directions) <= level
            low, high = np.where(inside, middle, low), np.where(inside, high, middle)
        return centre + low[:, None] * directions

    def oracle(point: Point) -> Point:
        angles, width = np.linspace(-np.pi, np.pi, 145), 2 * np.pi / 144
        while True:
            # NumPy and torch differ in the last places of f: aim a little inside.
            W = boundary(angles, point.value * (1.0 - 2e-15))
            norms = gradient_norm(W)
            best = int(norms.argmax())
            if width < 1e-8:
                break
            angles = np.linspace(angles[best] - width, angles[best] + width, 21)
            width /= 10
        landed = objective.at(torch.from_numpy(W[best].copy()), curvature=True)
        # At the bottom of double precision the boundary may be lost in rounding; the theorems need this much.
        return landed if landed.value <= point.value and landed.gradient_norm >= point.gradient_norm else point

    return oracle


@cache
def cases() -> tuple[Case, ...]:
    return (
        quadratic_case("sphere", [2.0, 2.0, 2.0], 0),
        quadratic_case("condition 10", [0.5, 5.0], 1),
        quadratic_case("condition 1e2", [0.1, 0.3, 1.0, 4.0, 10.0], 2, scale=3.0),
        quadratic_case("condition 1e4", [1e-3, 1e-2, 0.1, 1.0, 2.0, 10.0], 3),
        quadratic_case("clusters", [1.0, 1.0, 1.01, 50.0, 50.0, 51.0, 51.0], 4, scale=0.1),
        least_squares_case("least squares", 30, 5, 0.0, 5),
        least_squares_case("ridge", 40, 8, 0.05, 6),
        logistic_case("logistic, strong penalty", 30, 0.1, 0),
        logistic_case("logistic, penalty 1e-2", 60, 1e-2, 1),
        logistic_case("logistic, penalty 1e-3", 80, 1e-3, 2, nearness=0.5),
        logistic_case("logistic, near", 50, 1e-2, 3, nearness=0.1),
        logistic_case("logistic, ill conditioned", 60, 1e-3, 4, nearness=0.1, squeeze=0.2),
        logistic_case("logistic, nearly quadratic", 40, 0.05, 5, nearness=0.01),
    )


def schedules(iterations: int) -> dict[str, frozenset[int]]:
    return {
        "never": frozenset(),
        "always": frozenset(range(iterations)),
        "alternating": frozenset(range(1, iterations, 2)),
        "alternating from 0": frozenset(range(0, iterations, 2)),
        "once": frozenset({iterations // 2}),
        "blocks": frozenset({2, 3, 4, 7, 8} | set(range(10, iterations))),
        "first": frozenset({0, 1}),
    }
