"""Bounds beside measurements: the gaps of a run, and every bound that the theorems give for it."""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass

from torch import Tensor

from levelport.numerics.newton import Minimum
from levelport.objective import Objective
from levelport_lab.problems.minimum import find_minimum
from levelport_lab.problems.spectrum import extremes
from levelport_lab.theory import rates, rates_stable
from levelport_lab.theory.certificates import StepCertificate, certify
from levelport_lab.theory.constants import (
    Constants,
    Kind,
    constant_hessian,
    constants_of,
    convex_by_construction,
    negligible_share,
    unchanging_hessian,
)
from levelport_lab.theory.lemmas import LemmaCheck, check_lemmas
from levelport_lab.theory.steps import Rate, alternating, recursion
from levelport_lab.theory.trajectory import (
    Iteration,
    Oracle,
    Trajectory,
    descend,
    largest_armijo_step,
    quadratic_oracle,
    solver_oracle,
)

HORIZON = 131072
"""How far ahead :attr:`Audit.break_even` looks for the iteration from which on teleports have the better bound."""

SMALLEST = 1e-290
"""Bounds below this, where floats end, are not compared."""


@dataclass(frozen=True)
class Bound:
    """A rate, the runs that it is for (plain descent, with teleports, with Newton steps), and why it is no guarantee.

    Without ``caveats`` it is one.
    """

    label: str
    measured: str
    rate: Rate
    caveats: tuple[str, ...] = ()


@dataclass(frozen=True)
class Audit:
    """Runs from the same start with the largest Armijo steps, and the bounds on them.

    ``descent`` is plain; ``teleported`` teleports at the iterations in ``schedule``; ``newton`` takes a Newton step at
    each of them instead. ``certificates`` say what the theory knows of every single step after a teleport, ``lemmas``
    whether the lemmas behind the rates were kept.
    """

    constants: Constants
    schedule: frozenset[int]
    descent: Trajectory
    teleported: Trajectory
    newton: Trajectory
    bounds: tuple[Bound, ...]
    certificates: tuple[StepCertificate, ...]
    lemmas: tuple[LemmaCheck, ...]

    @property
    def worst_alignment(self) -> float:
        """The least cos ∠(g, Hg) over the teleports: 1 for exact ones; nan without teleports."""
        return min((row.alignment for row in _resolved_teleports(self.teleported)), default=math.nan)

    @property
    def payoff_gap(self) -> float:
        """Below this gap a free teleport has a better bound than a gradient step; 0 without stability.

        A gradient step is taken at its best: it adds 1/(2R²L) to 1/δ, and multiplies it by 1/(1 - μ/L).
        """
        constants, stability = self.constants, self.constants.stability
        if stability is None:
            return 0.0
        if self.outdone and math.isfinite(stability.surplus):
            return 0.0
        return rates_stable.payoff_gap(constants.L.value, constants.radius.value, stability)

    @property
    def outdone(self) -> bool:
        """True if the contraction 1 - μ/L of every step is as good as the 1 - μ̃/L̃ of a teleport, at any gap."""
        constants, stability = self.constants, self.constants.stability
        return stability is not None and (
            max(0.0, constants.mu.value) / constants.L.value >= stability.lower / stability.upper
        )

    @property
    def break_even(self) -> float | None:
        """From this K on, teleporting every other iteration has the better guarantee than GD with the same steps.

        The best that is known of both: :func:`~levelport_lab.theory.steps.recursion` for the teleports; for GD the same
        without teleports and with ‖w_0 - w*‖ for R, and L‖w_0 - w*‖²/(2K).

        ``inf`` if it never has: nothing is known of teleports, or μ/L ≥ μ̃/L̃, where a teleport adds nothing to GD's
        recursion, and R ≥ ‖w_0 - w*‖ takes away. Otherwise a pair of steps multiplies 1/δ by at least
        L̃/(L̃ - μ̃) · L/(L - μ), which overtakes any sum and the powers of (L/(L - μ))². ``None`` if that takes more than
        :data:`HORIZON` iterations, or bounds below :data:`SMALLEST`.
        """
        constants, stability = self.constants, self.constants.stability
        L, R, gap = constants.L.value, constants.radius.value, constants.initial_gap
        if stability is None or math.isinf(R) or math.isinf(stability.upper) or self.outdone:
            return math.inf
        mu = max(0.0, min(constants.mu.value, L))
        for horizon in (HORIZON // 32, HORIZON):  # mostly the first is enough
            ours = rates_stable.armijo_sharp(horizon, alternating(horizon), L, R, stability, gap, mu)
            theirs = _best_of_descent(constants, horizon)
            underflow = next((K for K, bound in enumerate(theirs) if bound < SMALLEST), len(theirs))
            lead = rates_stable.first_lead(ours[:underflow], theirs[:underflow])
            if lead is not None:
                return lead
        return None

    def run_of(self, bound: Bound) -> Trajectory:
        """The measured run that ``bound`` speaks of."""
        return {"descent": self.descent, "teleported": self.teleported, "newton": self.newton}[bound.measured]

    def vacuous(self, bound: Bound, K: int) -> bool:
        """Return True if the bound says less than δ_K ≤ δ_0, which needs no theorem."""
        return not bound.rate[K] < self.constants.initial_gap * (1.0 - 1e-12)

    def violations(self) -> list[str]:
        """Labels of guarantees that the measured gaps exceed by more than rounding: none, if all is well."""
        broken = []
        for bound in self.bounds:
            run = self.run_of(bound)
            exceeded = any(g > b * (1.0 + 1e-6) + run.rounding for g, b in zip(run.gaps, bound.rate, strict=True))
            if exceeded and not bound.caveats:
                broken.append(bound.label)
        return broken


def warm_start(objective: Objective, start: Tensor, steps: int) -> Tensor:
    """The point after that many gradient steps of the largest Armijo size: where the theorems' w_0 may be put."""
    point = objective.at(start)
    for _ in range(steps):
        point = objective.at(point.x - largest_armijo_step(objective, point) * point.gradient)
    return point.x


def exact_or_solved(objective: Objective, start: Tensor, minimum: Minimum) -> Oracle:
    """The closed-form teleport of a quadratic, or the default solver."""
    hessian = constant_hessian(objective)
    if hessian is None:
        hessian = unchanging_hessian(objective, start, minimum)
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

    def run(when: frozenset[int], *, newton: bool = False) -> Trajectory:
        return descend(
            objective,
            start,
            iterations,
            minimum=found.value,
            minimizer=found.x,
            schedule=when,
            oracle=exact_or_solved(objective, start, found),
            newton=newton,
        )

    descent, teleported, newton = run(frozenset()), run(teleports), run(teleports, newton=True)
    return Audit(
        constants,
        teleports,
        descent,
        teleported,
        newton,
        tuple(_bounds(constants, teleports, teleported, iterations)),
        certify(objective, teleported, constants),
        check_lemmas(teleported, constants),
    )


def _refuse_negative_curvature(objective: Objective, start: Tensor) -> None:
    if convex_by_construction(objective):
        return
    ends = extremes(objective.at(start, curvature=True))
    if ends.smallest < -max(1e-8, negligible_share(start)) * abs(ends.largest):
        raise ValueError(
            f"f has negative curvature ({ends.smallest:.3g}) at the start, so it is not convex there and the theorems "
            "do not apply. Start elsewhere, or ask for a diagnosis instead."
        )


def _best_of_descent(constants: Constants, iterations: int) -> Rate:
    """The best bound on plain descent with the largest Armijo steps that is known here."""
    L, distance, mu = constants.L.value, constants.distance, max(0.0, min(constants.mu.value, constants.L.value))
    steps = rates_stable.armijo_steps(iterations, frozenset(), L, distance, mu=mu)
    telescoped = rates.gradient_descent_armijo(iterations, L, distance)
    return [min(pair) for pair in zip(recursion(steps, constants.initial_gap), telescoped, strict=True)]


def _bounds(constants: Constants, schedule: frozenset[int], run: Trajectory, iterations: int) -> list[Bound]:
    L, R, gap = constants.L.value, constants.radius.value, constants.initial_gap
    gain = rates.armijo_gain(L)

    def because(*names: str) -> tuple[str, ...]:
        return tuple(constants.caveats(*names))

    found = [
        Bound(
            "GD: 2L‖w₀-w*‖²/K", "descent", rates.gradient_descent(iterations, gain, constants.distance), because("L")
        ),
        Bound(
            "GD, Armijo: L‖w₀-w*‖²/2K",
            "descent",
            rates.gradient_descent_armijo(iterations, L, constants.distance),
            because("L"),
        ),
    ]
    if math.isfinite(R):
        found.append(Bound("teleports: 2LR²/K", "teleported", rates.convex(iterations, gain, R), because("L", "R")))
    mu = constants.mu.value if constants.mu.not_too_large or constants.mu.kind is Kind.ESTIMATE else 0.0
    if mu > 0.0:
        curve = rates.strongly_convex(gap, [1.0 / L] * iterations, L, mu)
        found.append(Bound("strongly convex: (1-μ/L)ᴷ δ₀", "teleported", curve, because("L", "μ")))
    stability = constants.stability
    if stability is not None and math.isfinite(R):
        why = because("L", "R", "L̃", "μ̃")
        # An inexact teleport voids the theorems on exact ones, however good the constants are.
        inexact = [row for row in _resolved_teleports(run) if not row.alignment > 1.0 - 1e-6]
        tele = (*why, f"{len(inexact)} teleports were not solved exactly") if inexact else why
        # A gap below rounding is no more than that; taken at its word it would imply a minimum.
        resolved = [max(gap, run.rounding) for gap in run.gaps]
        measured = rates_stable.armijo_measured(resolved, schedule, L, R, stability)
        explicit = rates_stable.armijo_explicit(iterations, schedule, L, R, stability)
        sharp = rates_stable.armijo_sharp(iterations, schedule, L, R, stability, gap, mu)
        newton = recursion(rates_stable.newton_steps(iterations, schedule, L, R, stability, mu), gap)
        found += [
            Bound("teleports, measured gaps", "teleported", measured, tele),
            Bound("teleports, explicit", "teleported", explicit, tele),
            Bound("teleports, recursion", "teleported", sharp, tele),
            Bound("Newton steps, recursion", "newton", newton, why),
        ]
    return found


def _resolved_teleports(run: Trajectory) -> list[Iteration]:
    """Teleports from gaps that double precision still resolves; below them the level set is lost in rounding."""
    return [row for row in run.rows if row.teleported and row.gap > 1e-9 * run.rows[0].gap]
