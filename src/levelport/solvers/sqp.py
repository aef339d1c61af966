"""The algorithm of the paper: sequential quadratic programming with the identity as Hessian model.

Mishkin, Bietti and Gower, "Level Set Teleportation: An Optimization Perspective", section 3. At an iterate x with
g = ∇f(x), q = ∇²f(x) g and the level f(w), one update (their update-rule proposition) is

    v  = (ρ ⟨g, q⟩/‖g‖² + f(x) - f(w))₊ g,
    x⁺ = x + (ρ q - v)/‖g‖²,

which maximises the linearised ½ log ‖∇f‖² minus ‖x⁺ - x‖²/(2ρ) over the linearised sub-level set. The step ρ is
halved until the merit function φ(x) = ½ log ‖∇f(x)‖² - γ (f(x) - f(w))₊ satisfies

    φ(x⁺) ≥ φ(x) + ½ D,     D = ⟨q, x⁺ - x⟩/‖g‖² + γ (f(x) - f(w))₊,

with γ = scale · ⟨q, v⟩ / (‖g‖⁴ (f(x) - f(w))₊), the bound of their penalty-strength proposition times a scale. (The
released runs divide γ by another ‖g‖²; this file follows the proposition.)

Where the text is silent, this file decides as follows.

* *Growth of ρ.* The text only backtracks. The released runs also double ρ when the left side of the test is at least
  five times the right side. Both are logarithms of either sign, so this rarely fires; ``growth_ratio`` keeps it,
  ``None`` switches it off.
* *γ where f(x) ≤ f(w).* The bound is void; the scale itself is used, as in the released runs.
* *Failed backtracking.* After ``max_backtracks`` rejections the step with ρ = ``fallback_rho`` is taken, and the next
  search starts from 2⁵ times the last trial ρ.
* *KKT test.* ‖P q‖²/‖g‖⁴ ≤ ε and violation ≤ δ: the residual is normalised and squared as in the released runs.
* *Level-set mode.* The positive part in v is dropped and the penalty is |f(x) - f(w)|.
* *Trust radius.* Unknown to the text; where the caller sets one, a step that leaves it is rejected like one that fails
  the merit test, and the solve ends at 99 % of it.
* *Relaxation.* x̂ = α x⁺ + (1-α) x after each accepted step; α = 1 by default, as in all their experiments.
* *The point returned.* ``final="feasible"`` puts the last iterate back onto the level (a few gradients, counted) and
  returns the best feasible point, so that the guarantee of :func:`levelport.teleport` holds; ``final="last"`` returns
  the last iterate, whatever its value, as published.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from levelport.objective import Point, norm
from levelport.solvers.contract import Outcome, Progress, Task
from levelport.solvers.result import Certificate, Status
from levelport.solvers.retraction import retract


@dataclass(frozen=True)
class SQP:
    """The published solver; the defaults are the published settings.

    Args:
        rho: first step ρ.
        epsilon, delta: tolerances on the squared KKT residual and on the violation, both absolute as published.
        gamma_scale: multiplies the penalty bound.
        max_iterations: updates; the HVP budget of the caller applies as well.
        max_backtracks: halvings of ρ per update.
        fallback_rho: ρ of the update taken when all were rejected, and the smallest ρ ever tried.
        growth_ratio: double ρ when the merit test holds by this ratio; None never does.
        relaxation: α in (0, 1].
        final: which iterate to return, see the module's text.
    """

    rho: float = 0.1
    epsilon: float = 1e-6
    delta: float = 1e-6
    gamma_scale: float = 0.1
    max_iterations: int = 50
    max_backtracks: int = 25
    fallback_rho: float = 1e-16
    growth_ratio: float | None = 5.0
    relaxation: float = 1.0
    final: Literal["feasible", "last"] = "feasible"

    def __post_init__(self) -> None:
        for name in ("rho", "epsilon", "delta", "gamma_scale", "fallback_rho"):
            if not getattr(self, name) > 0.0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}.")
        for name in ("max_iterations", "max_backtracks"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}.")
        if not 0.0 < self.relaxation <= 1.0:
            raise ValueError(f"relaxation must be in (0, 1], not {self.relaxation}.")
        if self.final not in ("feasible", "last"):
            raise ValueError(f"final must be 'feasible' or 'last', not {self.final!r}.")

    def solve(self, task: Task, progress: Progress) -> Outcome:
        """Iterate from the start until KKT, the budget or the iteration limit."""
        point, rho = task.start, self.rho
        edge = math.inf if task.radius is None else 0.99 * task.radius
        status = Status.BUDGET_SPENT
        for _ in range(self.max_iterations):
            # One HVP for this iterate and one for the certificate of the point returned.
            if (stop := progress.should_stop(hvps_needed=2)) is not None:
                status = stop
                break
            certificate = Certificate.at(point)
            progress.record(point, certificate, rho)
            excess = point.value - task.level
            violation = abs(excess) if task.level_set else max(0.0, excess)
            if certificate.kkt_residual * certificate.kkt_residual <= self.epsilon and violation <= self.delta:
                status = Status.CONVERGED
                break
            if task.meets_target(point, certificate):
                status = Status.TARGET_REACHED
                break
            trial, rho = self._search(task, point, certificate, rho)
            if trial is None:
                status = Status.STALLED
                break
            progress.offer(trial)
            point = trial
            if float(norm(point.x - task.start.x)) >= edge:
                status = Status.TRUST_RADIUS
                break
        if self.final == "last":
            return Outcome(point, status)
        progress.offer(retract(task, point))
        return Outcome(progress.best, status)

    def _search(self, task: Task, point: Point, certificate: Certificate, rho: float) -> tuple[Point | None, float]:
        """Backtrack on ρ; the accepted point (None if nothing finite was found) and the ρ for the next search."""
        size, normal = point.gradient_norm, point.normal
        ascent = point.hessian_normal / size  # q/‖g‖²; powers of ‖g‖ are avoided because they leave the range
        slope = certificate.curvature  # ⟨g, q⟩/‖g‖²
        excess = point.value - task.level

        def penalty(value_excess: float) -> float:
            return abs(value_excess) if task.level_set else max(0.0, value_excess)

        def update(rho: float) -> tuple[Point, float]:
            """The trial point and the multiplier c of n in x⁺ = x + ρ q/‖g‖² - c n."""
            c = (rho * slope + excess) / size
            if not task.level_set:
                c = max(0.0, c)
            x = point.x + rho * ascent - c * normal
            if self.relaxation < 1.0:
                x = torch.lerp(point.x, x, self.relaxation)
            return task.objective.at(x, curvature=True), c

        for _ in range(self.max_backtracks):
            trial, c = update(rho)
            gamma = self.gamma_scale
            if penalty(excess) > 0.0:
                gamma *= (slope / size) * c / penalty(excess)  # ⟨q, v⟩/‖g‖⁴ = c ⟨q, g⟩/‖g‖³
            if trial.finite and trial.gradient_norm > 0.0 and task.within_radius(trial):
                directional = float(torch.dot(ascent, trial.x - point.x)) + gamma * penalty(excess)
                left = math.log(trial.gradient_norm) - gamma * penalty(trial.value - task.level)
                right = math.log(point.gradient_norm) - gamma * penalty(excess) + 0.5 * directional
                if left >= right:
                    grow = self.growth_ratio is not None and right != 0.0 and left / right >= self.growth_ratio
                    return trial, 2.0 * rho if grow else rho
            rho *= 0.5
            if rho <= self.fallback_rho:
                break
        trial, _ = update(self.fallback_rho)
        usable = trial.finite and trial.gradient_norm > 0.0 and task.within_radius(trial)
        return (trial if usable else None), max(rho * 2.0**5, self.fallback_rho)
