"""The algorithm of the paper: sequential quadratic programming with the identity as Hessian model.

Mishkin, Bietti and Gower, "Level Set Teleportation: An Optimization Perspective", section 3. At an iterate x with
g = ∇f(x), q = ∇²f(x) g and the level f(w), one update (their update-rule proposition) is

    c  = (ρ ⟨g, q⟩/‖g‖² + f(x) - f(w))/‖g‖,
    x⁺ = x + ρ q/‖g‖² - c₊ g/‖g‖,

which maximizes the linearized ½ log ‖∇f‖² minus ‖x⁺ - x‖²/(2ρ) over the linearized sub-level set. The step ρ is
shrunk until the merit function φ(x) = log ‖∇f(x)‖ - γ p(x), with the violation p(x) = (f(x) - f(w))₊, has grown enough.
What "enough" is, what γ is and what happens where no ρ will do is told twice, in the text and by the released code, and
the two differ in ways that decide whether the solver converges. Both are here, as two modes.

================  =============================================  ===============================================
matter            ``SQP()``, as the text has it                  ``SQP(mode="released", final="last")``
================  =============================================  ===============================================
γ where p > 0     s ⟨q, g⟩ c₊/(‖g‖³ p), their penalty-strength   s ⟨q, g⟩ c/(‖g‖⁵ p): another ‖g‖² below, and the
                  proposition times the scale s                  sign of c kept
γ where p = 0     s (the proposition is void there)              s
φ must grow by    ½ (⟨q, x⁺ - x⟩/‖g‖² + γ p), half of its        ¼ ⟨q, x⁺ - x⟩/‖g‖² + ½ γ p
                  directional derivative
ρ grows           never                                          by the inverse of the factor, where the left side
                                                                 of the test is ≥ 5 times the right side
a search begins   where the last one ended, or at the first ρ    where the last one ended
                  again: see ``search`` below
no ρ will do      the step with ρ = 1e-16 is taken; the next     the last trial is taken; the next search starts
                  search starts from 2⁵ times the last ρ, or     from the factor to the power -5 times the last ρ,
                  from the first one                             or (Figure 1) from the first one
gives up          never                                          where ρ ≤ 1e-16
returns           the best feasible point                        the last iterate
================  =============================================  ===============================================

*Two readings of the text.* The listing of Algorithm 2 is not in the TeX source that is public. The prose says to
initialize ρ at 0.1 and to backtrack at most 25 times; whether each search begins at ρ again (``search="restart"``) or
goes on from where the last one ended (``search="continue"``, the default here) it does not say. It matters: on
Goldstein-Price the first reading reaches a KKT point in 16 iterations, the second stalls.

Why the penalty decides: the proposition's γ is proportional to 1/p and grows without bound as the level is approached,
so that only ρ of the order √p is accepted and the steps die out. The released γ is smaller by ‖g‖² where gradients are
long (Figures 1 and 3), and there the solver converges; where gradients are short it is larger, and the solver stalls
sooner.

Two things of the released code are not copied, because they are slips. On giving up it loses its iterate; here the
iterate is returned. After a failed search it goes back to x but goes on with the value and the gradient of the last
trial; here a point and its gradient are one thing, and it is the last trial's (with its tiny ρ a step back towards the
level, as in the text). So from the row after the first failed search on, its curves and these part. Failed searches are
rare: one in twenty teleports of ReLU networks on five of the paper's data sets.

Where text and code are silent, or agree, this file decides as follows.

* *KKT test.* ‖P q‖²/‖g‖⁴ ≤ ε and p ≤ δ: the residual is normalized and squared as in the released runs.
* *Level-set mode.* c is not clipped, and p = |f(x) - f(w)|.
* *Trust radius.* Unknown to the text; where the caller sets one, a step that leaves it is rejected like one that fails
  the merit test, and the solve ends at 99 % of it.
* *The point returned.* ``final="feasible"`` puts the last iterate back onto the level (a few gradients, counted) and
  returns the best feasible point, so that the guarantee of :func:`levelport.teleport` holds; ``final="last"`` returns
  the last iterate, whatever its value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from levelport import checks
from levelport.objective import Point
from levelport.solvers.contract import Monitor, Outcome, Solver
from levelport.solvers.problem import Certificate, TeleportProblem, retract
from levelport.solvers.result import TeleportStatus
from levelport.vectors import norm

GROWTH_RATIO = 5.0
"""Released mode: ρ grows where the left side of the merit test is at least this many times the right side.

Both sides are logarithms of either sign, so this fires at few places.
"""

_INWARD = "the algorithm's test is met, but this is no KKT point: λ < 0, so that the gradient grows below the level"

_ELSEWHERE = "the last iterate meets the algorithm's test, but a feasible one before it has the larger gradient"

RECOVERY = 5
"""After a failed search ρ is put back by this many shrinkings."""


@dataclass(frozen=True)
class SQP(Solver):
    """The paper's solver; by default as in its text, with the published settings.

    Args:
        mode: "text" or "released", see the table in :mod:`levelport.solvers.sqp`.
        rho: first step ρ.
        shrink: factor on ρ after a rejected trial.
        epsilon, delta: tolerances on the squared KKT residual and on the violation, both absolute as published; the
            caller's ``tol`` plays no part.
        gamma_scale: s, multiplies the penalty bound.
        max_iterations: updates; the HVP budget of the caller applies as well.
        max_backtracks: trials per update.
        smallest_rho: text: ρ of the update taken when all trials were rejected. Released: where the solver gives up.
        search: "continue" begins a search where the last one ended, "restart" at ``rho`` again.
        first_rho_after_failure: after a failed search start again from the first ρ.
        final: which iterate to return, see the module's text.
    """

    mode: Literal["text", "released"] = "text"
    rho: float = 0.1
    shrink: float = 0.5
    epsilon: float = 1e-6
    delta: float = 1e-6
    gamma_scale: float = 0.1
    max_iterations: int = 50
    max_backtracks: int = 25
    smallest_rho: float = 1e-16
    search: Literal["continue", "restart"] = "continue"
    first_rho_after_failure: bool = False
    final: Literal["feasible", "last"] = "feasible"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.one_of("mode", self.mode, ("text", "released"))
        checks.one_of("search", self.search, ("continue", "restart"))
        for name in ("rho", "epsilon", "delta", "gamma_scale", "smallest_rho"):
            checks.number(name, getattr(self, name), above=0.0)
        for name in ("max_iterations", "max_backtracks"):
            checks.whole(name, getattr(self, name), at_least=1)
        checks.number("shrink", self.shrink, above=0.0, below=1.0)
        checks.flag("first_rho_after_failure", self.first_rho_after_failure)
        checks.one_of("final", self.final, ("feasible", "last"))

    @property
    def keeps_guarantee(self) -> bool:
        """The last iterate is returned as it is, as published; the best feasible one is held to the guarantee."""
        return self.final == "feasible"

    def slack(self, level: float, dtype: torch.dtype) -> float:
        """1e-6 of the value: iterates approach the level from outside."""
        return 1e-6 * max(abs(level), torch.finfo(dtype).tiny)

    def solve(self, problem: TeleportProblem, monitor: Monitor) -> Outcome:
        """Iterate from the start until KKT, the budget or the iteration limit."""
        point, rho = problem.start, self.rho
        edge = math.inf if problem.radius is None else 0.99 * problem.radius
        status, detail = TeleportStatus.BUDGET_SPENT, ""
        for _ in range(self.max_iterations):
            # One HVP for this iterate and one for the certificate of the point returned.
            if (stop := monitor.should_stop(hvps_needed=2)) is not None:
                status = stop
                break
            certificate = Certificate.at(point)
            monitor.record(point, certificate, rho)
            solved = certificate.kkt_residual * certificate.kkt_residual <= self.epsilon
            if solved and problem.violation(point.value) <= self.delta:
                inward = certificate.curvature < 0.0 and not problem.level_set
                status = TeleportStatus.STALLED if inward else TeleportStatus.CONVERGED
                detail = _INWARD if inward else ""
                break
            if problem.meets_target(point, certificate):
                status = TeleportStatus.TARGET_REACHED
                break
            begin = self.rho if self.search == "restart" else rho
            trial, next_rho = self._search(problem, point, certificate, begin)
            if trial is None:
                status = TeleportStatus.STALLED
                break
            point, rho = trial, next_rho
            monitor.offer(point)
            if self.mode == "released" and rho <= self.smallest_rho:
                status = TeleportStatus.STALLED
                break
            if float(norm(point.x - problem.start.x)) >= edge:
                status = TeleportStatus.TRUST_RADIUS
                break
        else:
            detail = f"the solver's own max_iterations={self.max_iterations}"
        if self.final == "last":
            return Outcome(point, status, detail)
        monitor.offer(retract(problem, point))
        if status is TeleportStatus.CONVERGED and Certificate.at(monitor.best).kkt_residual ** 2 > self.epsilon:
            status, detail = TeleportStatus.STALLED, _ELSEWHERE
        return Outcome(monitor.best, status, detail)

    def _search(
        self, problem: TeleportProblem, point: Point, certificate: Certificate, rho: float
    ) -> tuple[Point | None, float]:
        """Backtrack on ρ: where to go (None if nowhere), and the ρ for the next search."""
        size, normal = point.gradient_norm, point.normal
        ascent = point.hessian_normal / size  # q/‖g‖²; powers of ‖g‖ are avoided because they leave the range
        slope = certificate.curvature  # ⟨g, q⟩/‖g‖²
        excess = point.value - problem.level
        released = self.mode == "released"
        violation = problem.violation

        def multiplier(rho: float) -> float:
            """c."""
            return (rho * slope + excess) / size

        def update(rho: float) -> Point:
            c = multiplier(rho) if problem.level_set else max(0.0, multiplier(rho))
            return problem.objective.at(point.x + rho * ascent - c * normal, curvature=True)

        def strength(rho: float) -> float:
            """γ; ⟨q, g⟩/‖g‖³ = slope/‖g‖."""
            if not violation(point.value) > 0.0:
                return self.gamma_scale
            c = multiplier(rho) if released or problem.level_set else max(0.0, multiplier(rho))
            gamma = self.gamma_scale * (slope / size) * c / violation(point.value)
            return gamma / size / size if released else gamma

        def usable(trial: Point) -> bool:
            return trial.finite and trial.gradient_norm > 0.0 and problem.within_radius(trial)

        growth_share = 0.25 if released else 0.5
        for _ in range(self.max_backtracks):
            trial = update(rho)
            if usable(trial):
                gamma, growth = strength(rho), float(torch.dot(ascent, trial.x - point.x))
                left = math.log(trial.gradient_norm) - gamma * violation(trial.value)
                right = math.log(size) - 0.5 * gamma * violation(point.value) + growth_share * growth
                if left >= right:
                    grows = released and right != 0.0 and left / right >= GROWTH_RATIO
                    return trial, rho / self.shrink if grows else rho
            rho *= self.shrink
            if not released and rho <= self.smallest_rho:
                break
        if not released:
            trial, rho = update(self.smallest_rho), max(rho, self.smallest_rho * self.shrink**RECOVERY)
        next_rho = self.rho if self.first_rho_after_failure else rho / self.shrink**RECOVERY
        return (trial if usable(trial) else None), next_rho
