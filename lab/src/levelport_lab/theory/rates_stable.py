"""Rates under Hessian stability: where a teleport turns the next gradient step into a Newton step.

f is (L̃, μ̃) Hessian stable over 𝒬 if for all x ≠ y in 𝒬, with H = ∇²f(x) and H(y - x) ≠ 0,

    μ̃/2 ‖y - x‖²_H  ≤  f(y) - f(x) - ⟨∇f(x), y - x⟩  ≤  L̃/2 ‖y - x‖²_H.

(The published definition says "for all x, y" and means x ≠ y.) Letting y → x shows μ̃ ≤ 1 ≤ L̃; quadratics have μ̃
= L̃ = 1. After an exact teleport ∇²f(w⁺)∇f(w⁺) = λ∇f(w⁺), and a gradient step is a Newton step of length ηλ.
Everything below holds on 𝒬 = {f ≤ f(w_0)} for convex, L-smooth f; a local maximizer of the teleportation problem
that keeps f and does not shrink the gradient is enough.

A Newton step -γH⁻¹∇f from *any* point does the same without a teleport: with γ = 1/L̃, or the largest γ of an
Armijo search along it, f falls by ‖∇f‖²_{H⁻¹}/(2L̃), hence δ_{k+1} ≤ (1 - μ̃/L̃)δ_k. So all combined rates hold for
gradient descent with intermittent Newton steps, too, as a remark of the paper says; :func:`newton_steps` has the
one thing that changes.

From Mishkin, Bietti and Gower, section 2.3 and appendix A.2; what differs from the text is named where it does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from levelport_lab.theory.rates import armijo_gain, step_gain
from levelport_lab.theory.steps import Rate, Steps, explicit_form, measured_form, recursion


@dataclass(frozen=True)
class Stability:
    """The constants L̃ ≥ 1 ≥ μ̃ of Hessian stability."""

    upper: float
    lower: float

    def __post_init__(self) -> None:
        if not (self.upper >= 1.0 >= self.lower > 0.0):
            raise ValueError(
                f"Hessian stability needs L̃ ≥ 1 ≥ μ̃ > 0, not L̃ = {self.upper} and μ̃ = {self.lower}. "
                "The inequalities tend to equality as y → x, so other values cannot occur for a C² function."
            )

    @property
    def surplus(self) -> float:
        """ρ - 1 = μ̃/(L̃ - μ̃), without cancellation; ∞ for quadratics."""
        return math.inf if self.upper == self.lower else self.lower / (self.upper - self.lower)

    @property
    def growth(self) -> float:
        """ρ = L̃/(L̃ - μ̃): by this factor 1/δ grows at a teleported Armijo step; ∞ for quadratics."""
        return 1.0 + self.surplus

    @property
    def log_growth(self) -> float:
        """log ρ."""
        return math.inf if self.upper == self.lower else -math.log1p(-self.lower / self.upper)


def teleport_factor(step: float, curvature: float, stability: Stability) -> float:
    """δ_{k+1} ≤ (1 + μ̃λη(ηλL̃ - 2)) δ_k for the step η after an exact teleport with multiplier λ.

    It is below 1 for η < 2/(λL̃); the text asks for η < 2/(L L̃), which implies this whatever λ ≤ L is.
    """
    t = step * curvature
    return 1.0 + stability.lower * t * (t * stability.upper - 2.0)


def teleport_factor_armijo(stability: Stability) -> float:
    """δ_{k+1} ≤ (1 - μ̃/L̃) δ_k for the largest Armijo step after an exact teleport.

    That step is at least 1/(λL̃), without λ being known.
    """
    return 1.0 - stability.lower / stability.upper


def armijo_steps(
    iterations: int,
    schedule: Set[int],
    L: float,
    radius: float,
    stability: Stability | None = None,
    mu: float = 0.0,
) -> Steps:
    """The guarantees of K largest Armijo steps with tele-schedule 𝒯; without stability, teleports add nothing."""
    teleports = {} if stability is None else {k: stability.growth for k in schedule if 0 <= k < iterations}
    return Steps([armijo_gain(L)] * iterations, teleports, radius, mu)


def newton_steps(
    iterations: int, schedule: Set[int], L: float, radius: float, stability: Stability, mu: float = 0.0
) -> Steps:
    """The guarantees of largest Armijo steps along -∇f, and along the Newton direction at the iterations in 𝒯.

    The growth is that of a teleport, ρ = L̃/(L̃ - μ̃). The gain is smaller: a Newton step lowers f by ‖∇f‖²_{H⁻¹}/(2L̃) ≥
    ‖∇f‖²/(2LL̃), so ξ = 1/(LL̃) there. With Newton steps only, δ_K ≤ (1 - μ̃/L̃)ᴷδ_0, the rate of Karimireddy, Stich and
    Jaggi (2018). Use it with :func:`~levelport_lab.theory.steps.measured_form`, ``explicit_form`` or ``recursion``.
    """
    newton = {k: stability.growth for k in schedule if 0 <= k < iterations}
    gains = [armijo_gain(L * stability.upper) if k in newton else armijo_gain(L) for k in range(iterations)]
    return Steps(gains, newton, radius, mu)


def fixed_steps(
    iterations: int,
    curvatures: Mapping[int, float],
    L: float,
    radius: float,
    stability: Stability,
    step: float,
    teleport_step: float | None = None,
) -> Steps:
    """The guarantees of K steps of fixed size, where ``curvatures`` maps 𝒯 to the multipliers λ_k.

    ``teleport_step`` is used after teleports if it differs, for example step = 1/L and teleport_step = 1/(L L̃).
    β_k = 1/(1 + λ_kημ̃(L̃λ_kη - 2)) is at least 1; the text claims β_k ∈ (0, 1), which is true of its inverse.

    The rates are :func:`~levelport_lab.theory.steps.measured_form`, where the theorem has ψ = 1 - Πβ for the Πβ - 1 of
    its own proof, and ``explicit_form``, whose published product runs over i ∉ 𝒯 and gains nothing from teleports.
    """
    after = step if teleport_step is None else teleport_step
    if after > 2.0 / (L * stability.upper):
        raise ValueError(
            f"the step after teleports, {after}, exceeds 2/(L L̃) = {2.0 / (L * stability.upper)}. Choose a smaller one."
        )
    teleports = {k: lam for k, lam in curvatures.items() if 0 <= k < iterations}
    gains = [step_gain(after if k in teleports else step, L) for k in range(iterations)]
    growths = {k: _inverse(teleport_factor(after, lam, stability)) for k, lam in teleports.items()}
    return Steps(gains, growths, radius)


def armijo_measured(gaps: Sequence[float], schedule: Set[int], L: float, radius: float, stability: Stability) -> Rate:
    """δ_K ≤ 2R²L / (M + 2R²L Σ_{k ∈ ℬ} (ρ^{b_k} - 1)/δ_{k-1}), ρ = L̃/(L̃ - μ̃), M the steps without teleport.

    If 0 ∈ 𝒯 the step k = 0 counts as a gradient step, in M and not in ℬ, as the proof in the appendix says.
    """
    return measured_form(armijo_steps(len(gaps) - 1, schedule, L, radius, stability), gaps)


def armijo_explicit(iterations: int, schedule: Set[int], L: float, radius: float, stability: Stability) -> Rate:
    """δ_K ≤ 2R²L / Σ_{e ∉ 𝒯, 0 < e ≤ K} ρ^{n_e}, n_e = |{i ∈ 𝒯 : i > e}|.

    This is the sum of the appendix, e the end of a gradient step and its block. The main text's sum over k ∉ 𝒯 is
    true for 0 ≤ k < K as well, and better: :func:`armijo_sharp`.
    """
    return explicit_form(armijo_steps(iterations, schedule, L, radius, stability))


def armijo_sharp(
    iterations: int,
    schedule: Set[int],
    L: float,
    radius: float,
    stability: Stability | None,
    initial_gap: float = math.inf,
    mu: float = 0.0,
) -> Rate:
    """The recursion of :func:`levelport_lab.theory.steps.recursion` for Armijo steps: never above the explicit form."""
    return recursion(armijo_steps(iterations, schedule, L, radius, stability, mu), initial_gap)


def armijo_alternating(iterations: int, L: float, radius: float, stability: Stability) -> float:
    """δ_K ≤ 2R²L(ρ - 1)/(ρ^{K/2} - 1) for even K and 𝒯 = {1, 3, …, K - 1}: linear without strong convexity.

    :func:`armijo_explicit` with its geometric sum 1 + ρ + … + ρ^{K/2-1} = (ρ^{K/2} - 1)/(ρ - 1). With ρ - 1 = μ̃/(L̃ - μ̃)
    the constant in front is 2R²L μ̃/(L̃ - μ̃). The text has its inverse, (L̃ - μ̃)/μ̃: larger, hence true and loose, for L̃ ≥
    2μ̃. Below that the argument does not give it, but with δ_0 ≤ LR²/2 the one-step facts do as long as u = μ̃/(L̃ - μ̃)
    satisfies u² ≤ 5u + 1, that is L̃/μ̃ ≥ 1.193. For functions still nearer to quadratics it is unproved, and we know of
    none that violates it.
    """
    if iterations < 2 or iterations % 2:
        raise ValueError(f"iterations must be even and positive, not {iterations}.")
    half, surplus, exponent = iterations // 2, stability.surplus, iterations // 2 * stability.log_growth
    if half == 1:
        return 2.0 * radius**2 * L
    if surplus == 0.0:  # L̃ beyond the range of floats: the sum has K/2 terms of 1
        return 2.0 * radius**2 * L / half
    if exponent > 700.0:  # ρ^{K/2} overflows, also for ρ = ∞
        return 0.0
    return 2.0 * radius**2 * L * surplus / math.expm1(exponent)


def alternating_break_even(stability: Stability) -> float:
    """The least even K from which on the alternating bound is strictly below GD's 2R²L/K.

    That is ρ^{K/2} > 1 + K(ρ - 1), or K > 2 log(1 + Kμ̃/(L̃ - μ̃))/log ρ. The corollary has (L̃ - μ̃)/μ̃ in the
    logarithm, see :func:`armijo_alternating`, and lacks the 2 of its own proof. For μ̃ ≪ L̃ the answer is about
    2.5 L̃/μ̃, and ``inf`` where that is beyond the range of floats.

    Compared are *bounds*, and GD with the same Armijo steps has a better one than 2R²L/K,
    :func:`levelport_lab.theory.rates.gradient_descent_armijo`. :func:`first_lead` compares any two rates.
    """
    if math.isinf(stability.surplus):
        return 4  # the bound is that of GD's first step at K = 2, and 0 from then on
    if stability.surplus == 0.0:
        return math.inf

    def faster(half: int) -> bool:
        return half * stability.log_growth > math.log1p(2.0 * half * stability.surplus)

    # ρˣ is convex and 1 + 2x(ρ - 1) affine, equal at x = 0 with the steeper slope: they cross once more.
    high = 1
    while not faster(high):
        high *= 2
        if high > 1e300:
            return math.inf
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if faster(middle) else (middle, high)
    return 2 * high


def first_lead(ours: Sequence[float], theirs: Sequence[float]) -> int | None:
    """The least K from which on ``ours`` lies below ``theirs``, at every K that both know; None if it does not at the
    last."""
    lead = None
    for K in range(min(len(ours), len(theirs)) - 1, -1, -1):
        if not ours[K] < theirs[K] * (1.0 - 1e-12):
            break
        lead = K
    return lead


def payoff_gap(L: float, radius: float, stability: Stability) -> float:
    """Below this δ a teleport has a better bound than gradient steps: δ < 2R²L μ̃/(L̃ - μ̃), ∞ for quadratics.

    A teleported step adds (ρ - 1)/δ_k to 1/δ, a gradient step 1/(2R²L). The text has δ_{k-1} ≤ this and takes the
    teleport as free, which is right; by the one-step facts the smaller δ_k, the gap now, decides. For a teleport at the
    price of c gradient steps the threshold is smaller by a factor 1 + c. Guarantees are compared, not outcomes.
    """
    return 2.0 * radius**2 * L * stability.surplus


def fixed_simplified(
    gaps: Sequence[float], curvatures: Mapping[int, float], L: float, radius: float, stability: Stability
) -> Rate:
    """δ_K ≤ 2R²LL̃ / (M + 2R²LL̃ Σ_{k ∈ ℬ} (Π_i LL̃/(LL̃ - λ_iμ̃) - 1)/δ_{k-1}) for η = 1/(LL̃).

    A weaker, simpler form of the measured one: 1/ξ ≤ LL̃ and β_i ≥ LL̃/(LL̃ - λ_iμ̃). The corollary has β_i ≤
    and 1 - Π, both the wrong way round; its last display, for alternating steps, has the right sign again.
    """
    scale = L * stability.upper
    growths = {k: _inverse(1.0 - lam * stability.lower / scale) for k, lam in curvatures.items() if k < len(gaps) - 1}
    return measured_form(Steps([1.0 / scale] * (len(gaps) - 1), growths, radius), gaps)


def fixed_alternating(curvatures: Sequence[float], L: float, radius: float, stability: Stability) -> float:
    """δ_K ≤ 4R²Lμ̃ Π_{i ∈ 𝒯} (1 - λ_iμ̃/(LL̃)) for η = 1/(LL̃), 𝒯 = {1, 3, …, K - 1} and K ≥ 2 log 2 · L̃/μ̃.

    ``curvatures`` are λ_1, λ_3, …, λ_{K-1}. With q_i = 1/β_i ≥ 1 - μ̃/L̃ =: c the recursion gives

        1/δ_K ≥ ξ/(2R²) Π q_i⁻¹ Σ_{j<K/2} q_1 ⋯ q_j,     Σ ≥ (1 - c^{K/2})/(1 - c) ≥ L̃/(2μ̃)  once c^{K/2} ≤ ½.

    The proposition has 4R²LL̃²/μ̃ in front: L̃/μ̃ went into the numerator instead of the denominator, a loss of
    (L̃/μ̃)². It also bounds q_i by 1 - 2μ̃/L̃, which may be negative, asks for K ≥ 4L̃/μ̃, and multiplies over even
    i, where nothing teleports. With η = 1/L at the other iterations the bound is smaller by a factor L̃.
    """
    iterations = 2 * len(curvatures)
    needed = 2.0 * math.log(2.0) * stability.upper / stability.lower
    if iterations < needed:
        raise ValueError(f"this bound starts at K = {math.ceil(needed)} iterations, not {iterations}.")
    scale = stability.lower / (L * stability.upper)
    product = math.prod(max(0.0, 1.0 - lam * scale) for lam in curvatures)  # rounding may put λ above L
    return 4.0 * radius**2 * L * stability.lower * product


def _inverse(factor: float) -> float:
    """β = 1/factor, mending what rounding did to factors of 0 and 1."""
    if factor <= 0.0:
        return math.inf
    return 1.0 if 1.0 < factor < 1.0 + 1e-9 else 1.0 / factor
