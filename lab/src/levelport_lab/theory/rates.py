"""Rates that need smoothness and convexity only: what teleporting cannot spoil, and cannot improve.

From Mishkin, Bietti and Gower, section 2 and appendix A. All take plain numbers; :mod:`levelport_lab.theory.constants`
says where the numbers come from and on which side of the truth they lie. δ_k = f(w_k) - f* throughout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from levelport_lab.theory.steps import Rate


def step_gain(step: float, L: float) -> float:
    """ξ = η(2 - Lη): a fixed step η lowers f by at least ξ/2 ‖∇f‖² (positive for η < 2/L)."""
    _check_positive(step=step, L=L)
    if step > 2.0 / L:
        raise ValueError(f"step = {step} exceeds 2/L = {2.0 / L}: descent is not guaranteed. Choose a smaller step.")
    return step * (2.0 - L * step)


def armijo_gain(L: float) -> float:
    """ξ = 1/L, the gain of the largest Armijo step.

    The largest η with f(w - ηg) ≤ f(w) - η/2 ‖g‖² is at least 1/L, because the descent lemma proves the test for every
    η ≤ 1/L; so f falls by at least ‖g‖²/(2L).
    """
    _check_positive(L=L)
    return 1.0 / L


def descent_lemma(value: float, gradient_norm: float, step: float, L: float) -> float:
    """f(w - η∇f(w)) ≤ f(w) - η(1 - ηL/2)‖∇f(w)‖², for any L-smooth f, convex or not, and any η ≥ 0."""
    _check_positive(L=L)
    return value - step * (1.0 - 0.5 * step * L) * gradient_norm**2


def contraction(step: float, L: float, mu: float) -> float:
    """max{(1 - ηL)², (1 - ημ)²}: ‖w⁺ - η∇f(w⁺) - w*‖² is at most this multiple of ‖w⁺ - w*‖².

    For L-smooth, μ-strongly convex f. It holds wherever the step starts, teleported or not.
    """
    _check_condition(L, mu)
    return max((1.0 - step * L) ** 2, (1.0 - step * mu) ** 2)


def strongly_convex(initial_gap: float, steps: Sequence[float], L: float, mu: float) -> Rate:
    """δ_K ≤ Π (1 - 2μη_i(1 - η_i L/2)) δ_0 for any tele-schedule and steps η_i ≤ 2/L.

    The descent lemma with the Polyak-Łojasiewicz inequality; a teleport enlarges the gradient and does not raise f,
    so it cannot hurt this bound. Armijo steps satisfy it with η_i = 1/L.
    """
    _check_condition(L, mu)
    curve = [initial_gap]
    for step in steps:
        curve.append(curve[-1] * (1.0 - mu * step_gain(step, L)))
    return curve


def strongly_convex_non_expansive(initial_gap: float, steps: Sequence[float], L: float, mu: float) -> Rate:
    """δ_K ≤ (L/μ) Π max{(1 - η_i L)², (1 - η_i μ)²} δ_0, for any steps, if teleports do not move away from w*.

    The text asks for a non-expansive operator, ‖M(x) - M(y)‖ ≤ ‖x - y‖, which is enough; its proof uses only ‖M(w)
    - w*‖ ≤ ‖w - w*‖, and so does this. Quadratics qualify: the teleport goes to the end of the *shortest* axis of
    the ellipsoid.

    Tightness: ½‖w‖² attains it (L = μ = 1), as the text shows. It is attained up to L/μ for *every* condition number
    (and without L/μ, see :func:`strongly_convex_sharp`):
    a quadratic teleports onto the eigenvector of L, and a fixed step there multiplies δ by exactly (1 - ηL)², which
    is the contraction for η ≥ 2/(L + μ). So with fixed steps teleporting does not beat the minimax rate.
    """
    _check_condition(L, mu)
    product = 1.0
    curve = [L / mu * initial_gap]
    for step in steps:
        product *= contraction(step, L, mu)
        curve.append(L / mu * product * initial_gap)
    return curve


def strongly_convex_sharp(initial_gap: float, steps: Sequence[float], L: float, mu: float) -> Rate:
    """δ_K ≤ Π max{(1 - η_i L)², (1 - η_i μ)²} δ_0 for any tele-schedule and steps η_i ≤ 2/L, exact for every L/μ.

    Not in the paper, and better than both of its rates: no L/μ in front, nothing asked of the teleports. One gradient
    step contracts the *gap* by this factor on every L-smooth, μ-strongly convex function (Taylor, Hendrickx and Glineur
    2018, "Exact worst-case convergence rates of the proximal gradient method", objective accuracy), and a teleport does
    not raise the gap. Quadratics that teleport before every step attain it for η ≥ 2/(L + μ).
    """
    _check_condition(L, mu)
    curve = [initial_gap]
    for step in steps:
        step_gain(step, L)  # refuses steps beyond 2/L
        curve.append(curve[-1] * contraction(step, L, mu))
    return curve


def convex(iterations: int, gain: float, radius: float, initial_gap: float = math.inf) -> Rate:
    """δ_K ≤ 2R²/(K ξ) for GD with any tele-schedule, with ξ the gain of one step.

    ``gain`` is :func:`step_gain` for a fixed step (the text's 2R²/(Kη(2 - Lη))), :func:`armijo_gain` for line search.
    ``radius`` is the largest distance from w* in the initial sub-level set. Summing the proof's inequality keeps 1/δ_0,
    which the text drops: δ_K ≤ 1/(1/δ_0 + Kξ/(2R²)). Pass ``initial_gap`` to keep it too.
    """
    _check_positive(gain=gain, radius=radius, initial_gap=initial_gap)
    start = 0.0 if math.isinf(initial_gap) else 1.0 / initial_gap
    curve = [initial_gap]
    curve += [1.0 / (start + k * gain / (2.0 * radius**2)) for k in range(1, iterations + 1)]
    return curve


def gradient_descent(iterations: int, gain: float, distance: float, initial_gap: float = math.inf) -> Rate:
    """δ_K ≤ 2‖w_0 - w*‖²/(K ξ) for GD *without* teleports (Bubeck 2015, theorem 3.3).

    The same proof with ‖w_0 - w*‖ in place of R, because plain GD never moves away from w*. That holds for fixed
    steps up to 2/L and also for Armijo steps: f(w⁺) ≤ f(w) - η/2‖g‖² and convexity give ‖w⁺ - w*‖² ≤ ‖w - w*‖² -
    2ηδ⁺.
    """
    return convex(iterations, gain, distance, initial_gap)


def gradient_descent_armijo(iterations: int, L: float, distance: float) -> Rate:
    """δ_K ≤ L‖w_0 - w*‖²/(2K) for GD with Armijo steps and no teleports.

    Four times better than :func:`gradient_descent`: sum 2ηδ_{k+1} ≤ ‖w_k - w*‖² - ‖w_{k+1} - w*‖² with η ≥ 1/L. Not
    in the paper; it is here so that teleports are compared with what is really known of GD.
    """
    _check_positive(L=L, distance=distance)
    return [math.inf] + [L * distance**2 / (2.0 * k) for k in range(1, iterations + 1)]


def _check_positive(**numbers: float) -> None:
    for name, number in numbers.items():
        if not number > 0.0:
            raise ValueError(f"{name} must be positive, not {number}.")


def _check_condition(L: float, mu: float) -> None:
    _check_positive(L=L, mu=mu)
    if mu > L * (1.0 + 1e-12):
        raise ValueError(f"mu = {mu} exceeds L = {L}; the strong convexity constant cannot be the larger one.")
