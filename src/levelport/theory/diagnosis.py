"""Does teleporting suit this problem, here and now? Measurements, what the theory says of them, and the caveats."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from levelport.numerics.lanczos import extremes
from levelport.numerics.newton import find_minimum, newton_step
from levelport.objective import Cost, Objective, Point
from levelport.objectives.linear import LinearObjective
from levelport.solvers._teleport import teleport
from levelport.solvers.result import TeleportResult, TeleportStatus
from levelport.theory import rates_stable
from levelport.theory.coercivity import Coercivity, probe_coercivity
from levelport.theory.constants import Constants, constants_of
from levelport.theory.trajectory import largest_armijo_step

_SMALL = 200  # dimension up to which constants are worth computing for any objective
_STEP_COST = 1.5  # gradient equivalents of a gradient step with line search: one gradient, about one trial value


@dataclass(frozen=True)
class NewtonAlignment:
    """How near the gradient is to the Newton direction H⁻¹g.

    ``angle`` is in degrees. ``squared`` is a = ‖g‖⁴/((gᵀHg)(gᵀH⁻¹g)): the largest Armijo step from here lowers f -
    f* by a factor 1 - a·μ̃/L̃, see :func:`levelport.theory.rates_approximate.aligned_armijo`.
    """

    angle: float
    squared: float


@dataclass(frozen=True)
class Race:
    """What a teleport and one step win against gradient steps that cost as much."""

    teleport_decrease: float
    teleport_cost: Cost
    descent_decrease: float
    descent_steps: int

    @property
    def teleport_wins(self) -> bool:
        """Whether the teleport lowered f further."""
        return self.teleport_decrease > self.descent_decrease


@dataclass(frozen=True)
class Diagnosis:
    """Everything found. ``sentences`` says it in words."""

    value: float
    gradient_norm: float
    coercivity: Coercivity
    before: NewtonAlignment | None
    after: NewtonAlignment | None
    teleport: TeleportResult
    race: Race
    convex: bool
    constants: Constants | None
    payoff_gap: float | None

    @property
    def gap(self) -> float | None:
        """f(x) - f*, where f* was computed."""
        return None if self.constants is None else self.constants.initial_gap

    @property
    def expected_to_pay(self) -> bool:
        """The measured verdict: a teleport from here beats gradient steps of the same cost."""
        return self.race.teleport_wins and not self.coercivity.refuted

    def sentences(self) -> list[str]:
        """The findings in plain words, then the verdict, then what to keep in mind."""
        return [
            f"f = {self.value:.8g}, ‖∇f‖ = {self.gradient_norm:.4g}.",
            self.coercivity.sentence(),
            *_about_stability(self.constants),
            _about_direction("Before the teleport", self.before),
            f"The teleport multiplied the gradient norm by {self.teleport.gain:.4g}: {self.teleport.message}.",
            _about_direction("After it", self.after),
            *_about_guarantee(self.constants, self.payoff_gap, self.race.teleport_cost),
            _about_race(self.race),
            *self.caveats(),
        ]

    def caveats(self) -> list[str]:
        """Why the figures may mislead."""
        found = []
        if self.teleport.status is TeleportStatus.TRUST_RADIUS:
            found.append("Caveat: the solver ran into its trust radius; the problem may have no finite solution.")
        elif not self.teleport.success:
            found.append("Caveat: the teleport was not solved to its tolerance, so its effect may be understated.")
        if not self.convex:
            found.append("Caveat: negative curvature was met: f is not convex, and the theorems do not apply.")
        elif self.constants is None:
            found.append("Caveat: constants and f* were not computed for a problem of this size and kind.")
        else:
            found += _about_constants(self.constants)
        found.append(
            "Caveat: the race is one comparison at one point; the solver finds a local maximiser, and later steps "
            "count too."
        )
        return found


def diagnose(objective: Objective, x: Tensor, *, max_hvps: int = 100, seed: int = 0) -> Diagnosis:
    """Measure everything at ``x``: one teleport, a few rays, two Newton directions, and a short race."""
    start = objective.at(x, curvature=True)
    if not start.finite or start.gradient_norm == 0.0:
        raise ValueError("x must be a point with a finite value and a gradient that does not vanish.")
    result = teleport(objective, x, max_hvps=max_hvps)
    assert isinstance(result.x, Tensor)
    landed = objective.at(result.x, curvature=True)
    convex, constants = _constants(objective, start)
    stability = None if constants is None else constants.stability
    payoff = None
    if constants is not None and stability is not None and math.isfinite(constants.radius.value):
        extra = result.cost.gradient_equivalents / _STEP_COST
        payoff = rates_stable.payoff_gap(constants.L.value, constants.radius.value, stability, extra)
    return Diagnosis(
        value=start.value,
        gradient_norm=start.gradient_norm,
        coercivity=probe_coercivity(objective, x, seed=seed),
        before=newton_alignment(start),
        after=newton_alignment(landed),
        teleport=result,
        race=_race(objective, start, landed, result.cost),
        convex=convex,
        constants=constants,
        payoff_gap=payoff,
    )


def newton_alignment(point: Point, *, max_products: int = 500) -> NewtonAlignment | None:
    """Angle and squared H-cosine between gradient and Newton direction; None where H is not positive definite."""
    g = point.gradient
    solved = newton_step(point, tolerance=1e-8, max_hvps=min(max_products, 2 * g.numel() + 10))
    newton = -solved.step
    curvature, decrement = float(g @ point.hvp(g)), float(g @ newton)
    if solved.negative or curvature <= 0.0 or decrement <= 0.0:
        return None
    size = float(torch.linalg.vector_norm(newton))
    cosine = min(1.0, decrement / (size * point.gradient_norm))
    return NewtonAlignment(math.degrees(math.acos(cosine)), min(1.0, point.gradient_norm**4 / (curvature * decrement)))


def _constants(objective: Objective, start: Point) -> tuple[bool, Constants | None]:
    """Whether f may be convex, and its constants where they mean something and are affordable."""
    if isinstance(objective, LinearObjective):
        minimum = find_minimum(objective, start.x)
    elif objective.dimension > _SMALL:
        return extremes(start, max_products=30).smallest >= 0.0, None
    else:
        minimum, ends = find_minimum(objective, start.x), extremes(start)
        if not minimum.convex or ends.smallest < -1e-10 * abs(ends.largest):
            return False, None
    if not start.value > minimum.value:  # a minimiser already, as far as f can tell
        return True, None
    constants = constants_of(objective, start.x, minimum)
    return constants.convex, constants


def _race(objective: Objective, start: Point, landed: Point, cost: Cost) -> Race:
    after = objective.at(landed.x - largest_armijo_step(objective, landed) * landed.gradient)
    steps = 1 + math.ceil(cost.gradient_equivalents / _STEP_COST)
    point = start
    for _ in range(steps):
        point = objective.at(point.x - largest_armijo_step(objective, point) * point.gradient)
    return Race(start.value - after.value, cost, start.value - point.value, steps)


def _about_direction(when: str, alignment: NewtonAlignment | None) -> str:
    if alignment is None:
        return f"{when} the Hessian is not positive definite, so there is no Newton direction to compare with."
    return (
        f"{when} the gradient is {alignment.angle:.2f}° from the Newton direction "
        f"(squared cosine in the metric of the Hessian {alignment.squared:.4f})."
    )


def _about_stability(constants: Constants | None) -> list[str]:
    if constants is None:
        return []
    upper, lower = constants.stability_upper, constants.stability_lower
    if constants.stability is None or math.isinf(upper.value):
        return ["The Hessian is not stable on the sub-level set: it vanishes, or changes sign, between sampled points."]
    proved = upper.not_too_small and lower.not_too_large
    word = "is Hessian stable" if proved else "was Hessian stable wherever sampled"
    factor = rates_stable.teleport_factor_armijo(constants.stability)
    return [
        f"f {word} with L̃ = {upper.value:.4g}, μ̃ = {lower.value:.4g}: an exact teleport and its step multiply "
        f"f - f* by at most {factor:.6g}{'' if proved else ' if the samples were the worst'}."
    ]


def _about_constants(constants: Constants) -> list[str]:
    if not (doubtful := constants.doubtful()):
        return []
    return [f"Caveat: {', '.join(doubtful)} were sampled, so bounds made of them are no guarantees."]


def _about_guarantee(constants: Constants | None, payoff: float | None, cost: Cost) -> list[str]:
    if constants is None or payoff is None or not constants.convex:
        return []
    gap = constants.initial_gap
    if math.isinf(payoff):
        return [
            "f is quadratic: a teleport and one step reach the minimum, so its guarantee beats any other at any gap."
        ]
    verdict = "below" if gap < payoff else "above"
    return [
        f"The gap f - f* = {gap:.4g} is {verdict} {payoff:.4g}, where the guarantee for a teleport of this cost "
        f"({cost.gradient_equivalents:.0f} gradient equivalents) overtakes that of gradient steps."
    ]


def _about_race(race: Race) -> str:
    verdict = "A teleport pays here" if race.teleport_wins else "A teleport does not pay here"
    return (
        f"{verdict}: with one step it lowered f by {race.teleport_decrease:.4g}, {race.descent_steps} gradient steps "
        f"of the same cost by {race.descent_decrease:.4g}."
    )
