"""Gradient descent with teleports exactly as the theorems mean it: the yardstick for the bounds.

Not an optimizer for use (:mod:`levelport.optim` has those): the line search finds the *largest* Armijo step, which the
theorems need and which is expensive, and everything the theorems speak of is recorded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Set
from dataclasses import dataclass

import torch
from torch import Tensor

from levelport import checks
from levelport.numerics.newton import newton_step
from levelport.objective import Objective, ObjectiveError, Point
from levelport.solvers import Auto
from levelport.solvers._teleport import teleport
from levelport.solvers.problem import Certificate

Oracle = Callable[[Point], Point]
"""Maps the point w to a point w⁺ with f(w⁺) ≤ f(w) and a gradient at least as large."""

StepSize = Callable[[Objective, Point], float]
"""Chooses the step η at a point."""


@dataclass(frozen=True)
class Iteration:
    """Iteration k: δ_k, ‖w_k - w*‖, and what the step from w_k⁺ (w_k itself without a teleport) was like.

    ``curvature`` is λ_k = ⟨g, Hg⟩/‖g‖² and ``alignment`` cos ∠(g, Hg), both at w_k⁺; ``growth`` is ‖∇f(w_k⁺)‖ over
    ‖∇f(w_k)‖ and ``drop`` is f(w_k) - f(w_k⁺), what the teleport itself won. ``newton`` says that the step went along
    the Newton direction.
    """

    gap: float
    distance: float
    gradient_norm: float
    teleported: bool
    step: float
    curvature: float
    alignment: float
    distance_after_teleport: float
    landed: Tensor
    growth: float = 1.0
    drop: float = 0.0
    newton: bool = False


@dataclass(frozen=True)
class Trajectory:
    """The iterations k = 0, …, K - 1, and the end.

    ``rounding`` is what f and f* may be off by: a smaller gap is noise.
    """

    rows: tuple[Iteration, ...]
    final_gap: float
    final: Tensor
    rounding: float = 0.0

    @property
    def gaps(self) -> list[float]:
        """δ_0, …, δ_K."""
        return [row.gap for row in self.rows] + [self.final_gap]

    @property
    def steps(self) -> list[float]:
        """η_0, …, η_{K-1}."""
        return [row.step for row in self.rows]

    @property
    def curvatures(self) -> dict[int, float]:
        """λ_k of the iterations that teleported."""
        return {k: row.curvature for k, row in enumerate(self.rows) if row.teleported}

    def resolved(self, k: int) -> bool:
        """Return True if δ_k is more than rounding."""
        return self.gaps[k] > self.rounding


def fixed_step(step: float, teleport_step: float | None = None) -> tuple[StepSize, StepSize]:
    """η at every iteration; a different one after teleports if given."""
    after = step if teleport_step is None else teleport_step
    return (lambda objective, point: step), (lambda objective, point: after)


def largest_armijo_step(objective: Objective, point: Point, direction: Tensor | None = None) -> float:
    """max{η : f(w - ηp) ≤ f(w) - η/2 ⟨g, p⟩} for convex f, from below; p is the gradient g unless given.

    For convex f the admissible η form an interval [0, η̄]: doubling brackets its end, bisection finds it, and the
    lower end of the last bracket is returned, so that the step itself passes the test.
    """
    p = point.gradient if direction is None else direction
    slope = 0.5 * float(torch.dot(point.gradient, p))
    if not slope > 0.0:
        return 0.0

    def admissible(step: float) -> bool:
        value = objective.at(point.x - step * p).value
        return math.isfinite(value) and value <= point.value - step * slope

    step = 1.0
    while not admissible(step):
        step *= 0.5
        if step < 1e-30:  # decreases are below rounding: we are at the minimum
            return 0.0
    while admissible(2.0 * step):
        step *= 2.0
        if step > 1e30:
            raise ObjectiveError("f falls without end along its gradient, so there is no largest Armijo step.")
    low, high = step, 2.0 * step
    while high - low > 1e-12 * low:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if admissible(middle) else (low, middle)
    return low


def solver_oracle(objective: Objective) -> Oracle:
    """Teleports by :func:`levelport.teleport`: to a KKT point, not always to the global maximizer."""
    solver = Auto(max_hvps=200, tol=1e-8)
    return lambda point: objective.at(teleport(objective, point.x, solver).x, curvature=True)


def quadratic_oracle(objective: Objective, hessian: Tensor, minimizer: Tensor) -> Oracle:
    """The exact teleport w* ± sqrt(2δ/λ_max) v_max of a convex quadratic, to the nearer of the two maximizers."""
    eigenvalues, vectors = torch.linalg.eigh(hessian)
    top, direction = float(eigenvalues[-1]), vectors[:, -1]

    def oracle(point: Point) -> Point:
        residual = point.x - minimizer
        gap = 0.5 * float(residual @ (hessian @ residual))
        sign = -1.0 if float(residual @ direction) < 0.0 else 1.0
        return objective.at(minimizer + sign * math.sqrt(2.0 * gap / top) * direction, curvature=True)

    return oracle


def descend(
    objective: Objective,
    start: Tensor,
    iterations: int,
    *,
    minimum: float,
    minimizer: Tensor,
    schedule: Set[int] = frozenset(),
    oracle: Oracle | None = None,
    newton: bool = False,
    rules: tuple[StepSize, StepSize] = (largest_armijo_step, largest_armijo_step),
) -> Trajectory:
    """K iterations from ``start``; those in ``schedule`` teleport first. ``rules``: plain and teleported steps.

    With ``newton`` the iterations in ``schedule`` take the largest Armijo step along the Newton direction instead.
    """
    checks.whole("iterations", iterations, at_least=1)
    if schedule and oracle is None and not newton:
        raise ValueError("a schedule with teleports needs an oracle: pass quadratic_oracle(...) or solver_oracle(...).")
    rows: list[Iteration] = []
    point = objective.at(start, curvature=True)
    for k in range(iterations):
        scheduled = k in schedule and point.gradient_norm > 0.0
        landed = oracle(point) if scheduled and oracle is not None and not newton else point
        direction = _newton_direction(objective, point) if scheduled and newton else landed.gradient
        if scheduled and newton:
            step = largest_armijo_step(objective, point, direction)
        else:
            step = rules[scheduled](objective, landed)
        certificate = Certificate.at(landed)
        rows.append(
            Iteration(
                gap=point.value - minimum,
                distance=float(torch.linalg.vector_norm(point.x - minimizer)),
                gradient_norm=landed.gradient_norm,
                teleported=scheduled and not newton,
                step=step,
                curvature=certificate.curvature,
                alignment=certificate.alignment,
                distance_after_teleport=float(torch.linalg.vector_norm(landed.x - minimizer)),
                landed=landed.x,
                growth=landed.gradient_norm / point.gradient_norm if point.gradient_norm > 0.0 else 1.0,
                drop=point.value - landed.value,
                newton=scheduled and newton,
            )
        )
        point = objective.at(landed.x - step * direction, curvature=True)
    # f carries some units in the last place, f* as many, and the value they are differences of sets the scale.
    rounding = 16.0 * torch.finfo(objective.dtype).eps * max(abs(minimum), abs(minimum + rows[0].gap))
    return Trajectory(tuple(rows), point.value - minimum, point.x, rounding)


def _newton_direction(objective: Objective, point: Point) -> Tensor:
    """H⁻¹g to ten digits."""
    return -newton_step(point, tolerance=1e-10, max_hvps=20 * objective.dimension).or_downhill(point.gradient)
