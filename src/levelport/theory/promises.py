"""Theory against practice: measured gaps of a problem beside everything the theorems promise for it."""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass

from torch import Tensor

from levelport.numerics.lanczos import extremes
from levelport.numerics.newton import Minimum, find_minimum
from levelport.objective import Objective
from levelport.objectives.linear import LinearObjective
from levelport.theory import rates, rates_stable
from levelport.theory.constants import Constants, constant_hessian, constants_of
from levelport.theory.stability import sampled_stability
from levelport.theory.steps import Rate, alternating
from levelport.theory.trajectory import (
    Iteration,
    Oracle,
    Trajectory,
    descend,
    largest_armijo_step,
    quadratic_oracle,
    solver_oracle,
)


@dataclass(frozen=True)
class Bound:
    """A curve of bounds on δ_K, who it is for, and why it might be no guarantee (empty if it is one)."""

    label: str
    teleports: bool
    rate: Rate
    caveats: tuple[str, ...] = ()


@dataclass(frozen=True)
class Audit:
    """Runs with and without teleports from the same start, with the largest Armijo steps, and the bounds on both."""

    constants: Constants
    schedule: frozenset[int]
    descent: Trajectory
    teleported: Trajectory
    bounds: tuple[Bound, ...]

    @property
    def worst_alignment(self) -> float:
        """The least cos ∠(g, Hg) over the teleports: 1 for exact ones; nan without teleports."""
        return min((row.alignment for row in _resolved_teleports(self.teleported)), default=math.nan)

    @property
    def payoff_gap(self) -> float:
        """Below this gap a free teleport promises more than a gradient step; 0 without stability."""
        stability = self.constants.stability
        if stability is None:
            return 0.0
        return rates_stable.payoff_gap(self.constants.L.value, self.constants.radius.value, stability)

    @property
    def break_even(self) -> float:
        """From this even K on, alternating teleports have the better guarantee than GD's own 2L‖w_0 - w*‖²/K."""
        stability = self.constants.stability
        if stability is None or math.isinf(self.constants.radius.value):
            return math.inf
        advantage = max(1.0, (self.constants.radius.value / self.constants.distance) ** 2)
        return rates_stable.alternating_break_even(stability, advantage)

    def violations(self) -> list[str]:
        """Labels of guarantees that the measured gaps exceed by more than rounding: none, if all is well."""
        rounding = 1e-12 * max(1.0, abs(self.constants.minimum.value), self.constants.initial_gap)
        broken = []
        for bound in self.bounds:
            gaps = (self.teleported if bound.teleports else self.descent).gaps
            exceeded = any(g > b * (1.0 + 1e-6) + rounding for g, b in zip(gaps, bound.rate, strict=True))
            if exceeded and not bound.caveats:
                broken.append(bound.label)
        return broken


def warm_start(objective: Objective, start: Tensor, steps: int) -> Tensor:
    """The point after that many gradient steps of the largest Armijo size: where the theorems' w_0 may be put."""
    point = objective.at(start)
    for _ in range(steps):
        point = objective.at(point.x - largest_armijo_step(objective, point) * point.gradient)
    return point.x


def exact_or_solved(objective: Objective, minimum: Minimum) -> Oracle:
    """The closed-form teleport of a quadratic, or the default solver."""
    hessian = constant_hessian(objective)
    if hessian is not None:
        return quadratic_oracle(objective, hessian, minimum.x)
    return solver_oracle(objective)


def audit(
    objective: Objective,
    start: Tensor,
    iterations: int,
    *,
    schedule: Set[int] | None = None,
    minimum: Minimum | None = None,
) -> Audit:
    """Measure and bound ``iterations`` steps from ``start``; teleports every other iteration unless told otherwise."""
    if iterations < 2:
        raise ValueError(f"iterations must be at least 2, not {iterations}.")
    _refuse_negative_curvature(objective, start)
    found = find_minimum(objective, start) if minimum is None else minimum
    constants = constants_of(objective, start, found)
    teleports = alternating(iterations) if schedule is None else frozenset(schedule)

    def run(when: frozenset[int]) -> Trajectory:
        return descend(
            objective,
            start,
            iterations,
            minimum=found.value,
            minimiser=found.x,
            schedule=when,
            oracle=exact_or_solved(objective, found),
        )

    descent, teleported = run(frozenset()), run(teleports)
    bounds = _bounds(objective, constants, teleports, teleported, iterations)
    return Audit(constants, teleports, descent, teleported, tuple(bounds))


def _refuse_negative_curvature(objective: Objective, start: Tensor) -> None:
    if isinstance(objective, LinearObjective):
        return  # convex by construction
    ends = extremes(objective.at(start, curvature=True))
    if ends.smallest < -1e-8 * abs(ends.largest):
        raise ValueError(
            f"f has negative curvature ({ends.smallest:.3g}) at the start, so it is not convex there and the theorems "
            "do not apply. Start elsewhere, or ask for a diagnosis instead."
        )


def _bounds(
    objective: Objective, constants: Constants, schedule: frozenset[int], run: Trajectory, iterations: int
) -> list[Bound]:
    L, R, gap = constants.L.value, constants.radius.value, constants.initial_gap
    gain, caveats = rates.armijo_gain(L), constants.caveats()

    def because(*names: str) -> tuple[str, ...]:
        return tuple(text for text in caveats if text.startswith(names) or "not convex" in text)

    found = [
        Bound("GD: 2L‖w₀-w*‖²/K", False, rates.gradient_descent(iterations, gain, constants.distance), because("L ")),
        Bound(
            "GD, Armijo: L‖w₀-w*‖²/2K",
            False,
            rates.gradient_descent_armijo(iterations, L, constants.distance),
            because("L "),
        ),
    ]
    if math.isfinite(R):
        found.append(Bound("teleports: 2LR²/K", True, rates.convex(iterations, gain, R), because("L ", "R ")))
    if constants.mu.not_too_large and constants.mu.value > 0.0:
        curve = rates.strongly_convex(gap, [1.0 / L] * iterations, L, constants.mu.value)
        found.append(Bound("strongly convex: (1-μ/L)ᴷ δ₀", True, curve, because("L ", "μ ")))
    stability = constants.stability
    if stability is not None and math.isfinite(R):
        why = because("L ", "R ", "L̃ ", "μ̃ ")
        # An inexact teleport voids the theorems on exact ones, however good the constants are.
        inexact = [row for row in _resolved_teleports(run) if not row.alignment > 1.0 - 1e-6]
        if inexact:
            why = (*why, f"{len(inexact)} teleports were not solved exactly")
        measured = rates_stable.armijo_measured(run.gaps, schedule, L, R, stability)
        explicit = rates_stable.armijo_explicit(iterations, schedule, L, R, stability)
        sharp = rates_stable.armijo_sharp(iterations, schedule, L, R, stability, gap)
        found += [
            Bound("teleports, measured gaps", True, measured, why),
            Bound("teleports, explicit", True, explicit, why),
            Bound("teleports, recursion", True, sharp, why),
        ]
    if constant_hessian(objective) is None and math.isfinite(constants.radius_reached.value):
        found += _sampled(objective, constants, schedule, iterations)
    return found


def _resolved_teleports(run: Trajectory) -> list[Iteration]:
    """Teleports from gaps that double precision still resolves; below them the level set is lost in rounding."""
    return [row for row in run.rows if row.teleported and row.gap > 1e-9 * run.rows[0].gap]


def _sampled(objective: Objective, constants: Constants, schedule: frozenset[int], iterations: int) -> list[Bound]:
    """The recursion with sampled constants: what the theory would promise if the samples were the worst case."""
    level = constants.minimum.value + constants.initial_gap
    sampled = sampled_stability(objective, constants.minimum, level)
    if not (sampled.lower > 0.0 and math.isfinite(sampled.upper)):
        return []
    stability = rates_stable.Stability(sampled.upper, sampled.lower)
    R, gap = constants.radius_reached.value, constants.initial_gap
    curve = rates_stable.armijo_sharp(iterations, schedule, constants.L.value, R, stability, gap)
    return [Bound("recursion, sampled constants", True, curve, ("L̃, μ̃ and R are sampled: no guarantee",))]
