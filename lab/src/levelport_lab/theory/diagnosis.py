"""Does a teleport help on this problem? Measurements, what the theory says of them, and the caveats."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from levelport.numerics.newton import newton_step
from levelport.objective import Cost, Objective, Point
from levelport.objectives.function import as_objective
from levelport.objectives.module import ModuleObjective
from levelport.objectives.structure import Variables
from levelport.solvers import Auto
from levelport.solvers._teleport import teleport
from levelport.solvers.result import TeleportResult, TeleportStatus
from levelport_lab.problems.minimum import find_minimum
from levelport_lab.problems.spectrum import extremes
from levelport_lab.theory import rates_stable
from levelport_lab.theory.certificates import NewtonAlignment, StepCertificate, certify, newton_alignment
from levelport_lab.theory.coercivity import Coercivity, probe_coercivity
from levelport_lab.theory.constants import (
    DIMENSION_WRITTEN_OUT,
    Constants,
    constants_of,
    convex_by_construction,
    negligible_share,
)
from levelport_lab.theory.local_sqp import LocalSQP, local_sqp_condition
from levelport_lab.theory.trajectory import descend, largest_armijo_step

_STEP_COST = 1.5  # gradient equivalents of a gradient step with line search: one gradient, about one trial value


@dataclass(frozen=True)
class Race:
    """A teleport and one step, compared with gradient steps and with a Newton step of the same cost.

    The Newton step is one of conjugate gradients with as many Hessian-vector products as the teleport spent.
    """

    teleport_decrease: float
    descent_decrease: float
    descent_steps: int
    newton_decrease: float
    rounding: float = 0.0

    @property
    def teleport_wins(self) -> bool:
        """True if the teleport lowered f further than gradient steps did, by more than rounding."""
        return self.teleport_decrease > self.descent_decrease + self.rounding


@dataclass(frozen=True)
class Diagnosis:
    """Everything found. ``sentences`` says it in words, and ``print`` of it does, too.

    Attributes:
        value, gradient_norm: f and ‖∇f‖ at x.
        coercivity: what rays and rescalings did.
        before, after: how near the gradient is to the Newton direction, before and after the teleport.
        teleport: the teleport itself.
        certificate: what the theory says of the step after it, and what happened; None where f* is not known.
        local_sqp: the local condition of the SQP theorem, where the teleport ended at a KKT point of the level set.
        race: what it won at equal cost.
        convex: False if negative curvature was met.
        constants: where they mean something and are affordable.
        inside: whether the teleport ended below the level, by more than the accuracy of its solve.
    """

    value: float
    gradient_norm: float
    coercivity: Coercivity
    before: NewtonAlignment | None
    after: NewtonAlignment | None
    teleport: TeleportResult[Tensor]
    certificate: StepCertificate | None
    local_sqp: LocalSQP | None
    race: Race
    convex: bool
    constants: Constants | None
    inside: bool = False

    @property
    def gap(self) -> float | None:
        """f(x) - f*, where f* was computed."""
        return None if self.constants is None else self.constants.initial_gap

    @property
    def expected_to_pay(self) -> bool:
        """The measured verdict: a teleport from here beats gradient steps of the same cost."""
        return self.race.teleport_wins and not self.coercivity.refuted

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    def sentences(self) -> list[str]:
        """The findings in plain words, then the verdict, then what to keep in mind."""
        return [
            f"f = {self.value:.8g}, ‖∇f‖ = {self.gradient_norm:.4g}.",
            self.coercivity.sentence(),
            *_about_function(self.constants),
            _about_direction("Before the teleport", self.before),
            f"The teleport multiplied the gradient norm by {self.teleport.gain:.4g}: {self.teleport.message}.",
            _about_direction("After it", self.after),
            *_about_certificate(self.certificate),
            *_about_stability(self.constants),
            *_about_local_sqp(self.local_sqp, inside=self.inside),
            *_about_race(self.race, self.gap),
            *self.caveats(),
        ]

    def caveats(self) -> list[str]:
        """Return the reasons why the figures may mislead."""
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
            found += [f"Caveat: {text}." for text in self.constants.caveats()]
        found.append(
            "Caveat: the race is one comparison at one point; the solver finds a local maximizer, and later steps "
            "count too."
        )
        return found


def diagnose(
    fun: Callable[[Any], Tensor] | Objective, x: Variables | None = None, *, max_hvps: int = 100, seed: int = 0
) -> Diagnosis:
    """Would a teleport help here? One teleport, a few rays, two Newton directions and a short race, in plain words.

    Args:
        fun: f, a differentiable function of ``x`` that returns a scalar tensor, or an :class:`Objective`.
        x: where to look: what ``fun`` takes. For a :class:`ModuleObjective` the present parameters by default.
        max_hvps: budget of the teleport in Hessian-vector products.
        seed: decides the random rays.

    Returns:
        A :class:`Diagnosis`; print it.

    Example:
        >>> import torch
        >>> booth = lambda w: (w[0] + 2 * w[1] - 7) ** 2 + (2 * w[0] + w[1] - 5) ** 2
        >>> found = diagnose(booth, torch.tensor([7.5, -4.0], dtype=torch.float64))
        >>> found.certificate.measured < 1e-9  # the gradient step after the teleport leaves nothing of f - f*
        True
    """
    if isinstance(fun, nn.Module):
        raise ValueError("a module needs its loss and data: diagnose(ModuleObjective(module, loss, inputs, targets)).")
    if x is None:
        if not isinstance(fun, ModuleObjective):
            raise ValueError("x is missing: the point at which to look. Only a ModuleObjective has one of its own.")
        x = fun.initial_point()
    objective, _, flat = as_objective(fun, x)
    if objective.dtype.itemsize < 4:
        raise ValueError(
            f"a diagnosis takes Hessians apart, for which {objective.dtype} has too few digits. Convert the variables "
            "and the data by .double() or .float()."
        )
    start = objective.at(flat, curvature=True)
    if not start.finite or start.gradient_norm == 0.0:
        raise ValueError("x must be a point with a finite value and a gradient that does not vanish.")
    result = teleport(objective, flat, Auto(max_hvps=max_hvps))
    landed = objective.at(result.x, curvature=True)
    inside = _inside(start, landed)
    on_level = result.status is TeleportStatus.CONVERGED and not inside
    convex, constants = _constants(objective, start)
    return Diagnosis(
        value=start.value,
        gradient_norm=start.gradient_norm,
        coercivity=probe_coercivity(objective, flat, seed=seed),
        before=newton_alignment(start),
        after=newton_alignment(landed),
        teleport=result,
        certificate=_certificate(objective, start, landed, constants),
        local_sqp=local_sqp_condition(objective, landed.x) if on_level else None,
        race=_race(objective, start, landed, result.cost),
        convex=convex,
        constants=constants,
        inside=inside,
    )


def _constants(objective: Objective, start: Point) -> tuple[bool, Constants | None]:
    """Return True if f may be convex, and its constants where they mean something and are affordable."""
    negligible = negligible_share(start.x)
    if convex_by_construction(objective):
        minimum = find_minimum(objective, start.x)
    elif objective.dimension > DIMENSION_WRITTEN_OUT:
        ends = extremes(start, max_products=30)
        return ends.smallest >= -negligible * abs(ends.largest), None
    else:
        minimum, ends = find_minimum(objective, start.x), extremes(start)
        if not minimum.convex or ends.smallest < -negligible * abs(ends.largest):
            return False, None
    if not start.value > minimum.value:  # a minimizer already, as far as f can tell
        return True, None
    constants = constants_of(objective, start.x, minimum)
    return constants.convex, constants


def _certificate(
    objective: Objective, start: Point, landed: Point, constants: Constants | None
) -> StepCertificate | None:
    if constants is None or not constants.convex:
        return None
    run = descend(
        objective,
        start.x,
        1,
        minimum=constants.minimum.value,
        minimizer=constants.minimum.x,
        schedule={0},
        oracle=lambda point: landed,
    )
    found = certify(objective, run, constants)
    return found[0] if found else None


def _race(objective: Objective, start: Point, landed: Point, cost: Cost) -> Race:
    after = objective.at(landed.x - largest_armijo_step(objective, landed) * landed.gradient)
    steps = 1 + math.ceil(cost.gradient_equivalents / _STEP_COST)
    point = start
    for _ in range(steps):
        point = objective.at(point.x - largest_armijo_step(objective, point) * point.gradient)
    direction = -newton_step(start, tolerance=1e-10, max_hvps=max(1, cost.hvps)).or_downhill(start.gradient)
    newton = objective.at(start.x - largest_armijo_step(objective, start, direction) * direction)
    value, rounding = start.value, 16.0 * torch.finfo(objective.dtype).eps * abs(start.value)
    return Race(value - after.value, value - point.value, steps, value - newton.value, rounding)


def _about_function(constants: Constants | None) -> list[str]:
    if constants is None or not constants.convex:
        return []
    L, mu = constants.L, constants.mu
    sure = L.not_too_small and mu.not_too_large
    if constants.stability_upper.value == constants.stability_lower.value == 1.0:
        condition = f"{L.value / mu.value:.4g}" if mu.value > 0.0 else "infinite: it has flat directions"
        return [f"f {'is' if sure else 'looks like'} a quadratic (condition {condition})."]
    if sure and mu.value > 0.0:
        ratio = L.value / mu.value
        return [f"f is strongly convex, with curvatures between {mu.value:.4g} and {L.value:.4g} (ratio {ratio:.4g})."]
    return [f"f is convex as far as it was looked at, with curvatures between {mu.value:.4g} and {L.value:.4g}."]


def _about_direction(when: str, alignment: NewtonAlignment | None) -> str:
    if alignment is None:
        return f"{when} the Hessian is not positive definite, so there is no Newton direction to compare with."
    doubt = "" if alignment.solved else ", roughly: the Hessian is too badly conditioned to solve for it"
    return (
        f"{when} the gradient is {alignment.angle:.2f}° from the Newton direction "
        f"(squared cosine in the metric of the Hessian {alignment.squared:.4f}){doubt}."
    )


def _about_certificate(certificate: StepCertificate | None) -> list[str]:
    if certificate is None:
        return []
    happened = "reached the minimum"
    if certificate.measured > 0.0:
        happened = f"multiplied f - f* by {certificate.measured:.3g}"
    known = []
    if certificate.proved < 1.0 - 1e-9:
        known.append(f"at most {certificate.proved:.3g} is proved from where the points lie")
    if certificate.pair > 0.0:
        known.append(f"at most {certificate.pair:.3g} follows from the curvature between them")
    return [f"The step after it {happened}" + (f"; {', and '.join(known)}." if known else ".")]


def _about_stability(constants: Constants | None) -> list[str]:
    if constants is None or not constants.convex:
        return []
    upper, lower = constants.stability_upper, constants.stability_lower
    if upper.value == lower.value == 1.0:
        return []
    proved = upper.not_too_small and lower.not_too_large
    if constants.stability is None:
        return ["The Hessian vanished, or changed sign, between sampled points: it is not stable on the sub-level set."]
    if math.isinf(upper.value):
        return ["No finite constant L̃ of Hessian stability could be proved; that says nothing of f itself."]
    word = "is Hessian stable" if proved else "was Hessian stable wherever sampled"
    factor = rates_stable.teleport_factor_armijo(constants.stability)
    trivial = 1.0 - constants.mu.value / constants.L.value
    beaten = trivial <= factor and not {"L", "μ"} & set(constants.doubtful())
    remark = f", a weaker bound than the {trivial:.4g} that strong convexity gives to every step" if beaten else ""
    condition = "" if proved else " if the samples were the worst"
    return [
        f"Over its whole sub-level set f {word} with L̃ = {upper.value:.4g}, μ̃ = {lower.value:.4g}: an exact teleport "
        f"and its step multiply f - f* by at most {factor:.4g}{condition}{remark}."
    ]


def _inside(start: Point, landed: Point) -> bool:
    """Return True if the level is farther away than a millionth of the way from the start."""
    way = float(torch.linalg.vector_norm(landed.x - start.x))
    return start.value - landed.value > 1e-6 * landed.gradient_norm * way


def _about_local_sqp(condition: LocalSQP | None, *, inside: bool) -> list[str]:
    if inside:
        return [
            "The point reached lies inside the sub-level set, not on its level: the level holds nothing back there, "
            "and the SQP theorem, which is about points on it, says nothing."
        ]
    return [] if condition is None else [condition.sentence()]


def _about_race(race: Race, gap: float | None) -> list[str]:
    """Return the winner: by f - f* at the end where f* is known, by the decrease of f otherwise."""
    verdict = "A teleport pays here" if race.teleport_wins else "A teleport does not pay here"

    def result(decrease: float) -> str:
        if gap is None:
            return f"lowered f by {decrease:.4g}"
        left = gap - decrease
        return f"left f - f* = {left:.3g}" if left > race.rounding else "reached the minimum"

    return [
        f"{verdict}: with one step it {result(race.teleport_decrease)}, {race.descent_steps} gradient steps of the "
        f"same cost {result(race.descent_decrease)}; a Newton step with as many Hessian-vector products "
        f"{result(race.newton_decrease)}."
    ]
