"""One step after a teleport that was not solved exactly (Mishkin, Bietti and Gower, section 3.2).

Let g = ∇f(w⁺), H = ∇²f(w⁺) and suppose

    H g - λ g = e,        f(w⁺) - f(w) ≤ r.

With s = ‖g‖²_{H⁻¹}, E = ‖e‖²_{H⁻¹} and c = ⟨g, H⁻¹e⟩ one has ‖g‖² = λs + c and gᵀHg = λ²s + 2λc + E, so the upper
stability inequality at w⁺ - ηg and s ≥ 2μ̃δ⁺ give, for 0 ≤ η ≤ 2/(λL̃),

    δ_{k+1} ≤ (1 + μ̃λη(ηλL̃ - 2))(δ_k + r) + L̃η²/2 · E + η(L̃ηλ - 1) · c.

The published bound has the first two terms only. The last one is of *first* order in the error and vanishes only
for the ideal step η = 1/(λL̃); without it the bound fails for short steps. The published norm, ‖e⁺‖_{∇²f}, is the
same as ‖e‖_{H⁻¹} if e⁺ stands for H⁻¹e, which is not said. Stability must hold on {f ≤ f(w_0) + r}, since w⁺ may
lie outside the initial sub-level set.

With the Rayleigh quotient λ = ⟨g, Hg⟩/‖g‖², which is what our certificates report, e is orthogonal to g and c = -E/λ:
one number, E, says all.
"""

from __future__ import annotations

import math

from levelport_lab.theory.rates_stable import Stability, teleport_factor


def approximate_step(
    gap: float, step: float, curvature: float, stability: Stability, *, error: float, cross: float, excess: float = 0.0
) -> float:
    """The bound on δ_{k+1} above for any λ. ``error`` is E = ‖e‖²_{H⁻¹}, ``cross`` is c = ⟨g, H⁻¹e⟩, ``excess`` r."""
    _check_step(step, curvature, stability)
    t = stability.upper * step
    return (
        teleport_factor(step, curvature, stability) * (gap + max(0.0, excess))
        + 0.5 * t * step * error
        + step * (t * curvature - 1.0) * cross
    )


def approximate_armijo_rayleigh(
    gap: float, curvature: float, stability: Stability, *, error: float, excess: float = 0.0
) -> float:
    """δ_{k+1} ≤ (1 - μ̃/L̃)(δ_k + r) + E/(2L̃λ²) for the largest Armijo step and λ = ⟨g, Hg⟩/‖g‖².

    Not in the paper. gᵀHg = λ‖g‖² makes the step at least 1/(L̃λ), so f falls by ‖g‖²/(2L̃λ), and ‖g‖² = λs - E/λ ≥
    2λμ̃δ⁺ - E/λ.
    """
    ratio = stability.lower / stability.upper
    return (1.0 - ratio) * (gap + max(0.0, excess)) + error / (2.0 * stability.upper * curvature**2)


def _check_step(step: float, curvature: float, stability: Stability) -> None:
    if not curvature > 0.0:
        raise ValueError(f"curvature must be positive, not {curvature}: without it there is no Newton direction.")
    limit = 2.0 / (curvature * stability.upper)
    if not 0.0 <= step <= limit or math.isnan(step):
        raise ValueError(f"step must lie between 0 and 2/(λ L̃) = {limit}, not {step}.")
