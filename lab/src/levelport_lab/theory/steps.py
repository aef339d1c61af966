"""What every step of gradient descent with teleports is guaranteed to do, in one notation for all theorems.

Write δ_k = f(w_k) - f* and let 𝒯 be the set of iterations that teleport before they step. The proofs of Mishkin, Bietti
and Gower use two facts about a step, and nothing else:

    k any      1/δ_{k+1} ≥ 1/δ_k + ξ_k/(2R²)      descent lemma, convexity, and ‖w_k - w*‖ ≤ R        (gain ξ_k)
    k ∈ 𝒯      1/δ_{k+1} ≥ β_k/δ_k                Hessian stability and the KKT conditions            (growth β_k ≥ 1)

The theorems are different ways of adding these up. Where f is μ-strongly convex a third fact is known, and trivial:

    k any      1/δ_{k+1} ≥ 1/((1 - μξ_k)δ_k)      descent lemma and ‖∇f‖² ≥ 2μδ

R is what the paper calls the diameter: the largest distance of a
point of the initial sub-level set *from w\\**, that is, a radius about w*.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Rate = list[float]
"""A bound on δ_K at index K = 0, 1, 2, …; ``math.inf`` where there is no bound."""


def alternating(iterations: int) -> frozenset[int]:
    """𝒯 = {1, 3, 5, …} below ``iterations``: a gradient step, a teleport, a gradient step, …"""
    return frozenset(range(1, iterations, 2))


@dataclass(frozen=True)
class Steps:
    """The guarantees of K consecutive steps.

    Attributes:
        gains: ξ_k of every step: η(2 - Lη) for a fixed step η, 1/L for the largest Armijo step.
        growths: β_k for every k ∈ 𝒯; the keys are 𝒯.
        radius: R.
        mu: μ, where f is known to be strongly convex; only :func:`recursion` uses it.
    """

    gains: Sequence[float]
    growths: Mapping[int, float]
    radius: float
    mu: float = 0.0

    def __post_init__(self) -> None:
        if not self.radius > 0.0:
            raise ValueError(f"radius must be positive, not {self.radius}.")
        if any(not gain >= 0.0 for gain in self.gains):
            raise ValueError("a step has a negative or undefined gain: keep the step size below 2/L.")
        if any(not growth >= 1.0 for growth in self.growths.values()):
            raise ValueError("a teleport has a growth below 1: keep its step size below 2/(λ L̃).")

    @property
    def iterations(self) -> int:
        """K."""
        return len(self.gains)

    def gain(self, k: int) -> float:
        """ξ_k/(2R²), what step k adds to 1/δ."""
        return self.gains[k] / (2.0 * self.radius**2)

    def blocks(self, horizon: int) -> list[tuple[int, int]]:
        """Maximal runs of teleports (first k, length) before ``horizon``.

        A teleport at k = 0 has no gradient step before it, which the theorems need; as in their proofs it is counted
        as a plain gradient step, so that no block starts before 1.
        """
        return _runs(k for k in self.growths if 0 < k < horizon)


def _runs(iterations: Iterable[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for k in sorted(iterations):
        if runs and k == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((k, 1))
    return runs


def reciprocal(x: float) -> float:
    """1/x for x ≥ 0, with 1/0 = ∞ and 1/∞ = 0."""
    return math.inf if x <= 0.0 else 1.0 / x


def measured_form(steps: Steps, gaps: Sequence[float]) -> Rate:
    """The combined rate in terms of the gaps before each block, for K = 0, …, len(gains).

        1/δ_K ≥ Σ_{k ∉ 𝒯} ξ_k/(2R²) + Σ_{k ∈ ℬ} (β_k ⋯ β_{k+b_k-1} - 1)/δ_{k-1}

    over blocks ℬ with lengths b_k. It looks back at measured gaps, so it explains a run rather than predicts it.
    Adding 1/δ_0 to the right side is allowed and is what the proof gives before dropping the term; it is dropped
    here as in the text.
    """
    if len(gaps) < steps.iterations:
        raise ValueError(f"gaps must hold δ_0 to δ_{{K-1}}: {steps.iterations} entries, not {len(gaps)}.")
    curve = [math.inf]
    for horizon in range(1, steps.iterations + 1):
        plain = sum(steps.gain(k) for k in range(horizon) if k == 0 or k not in steps.growths)
        teleported = 0.0
        for first, length in steps.blocks(horizon):
            growth = math.prod(steps.growths[i] for i in range(first, first + length))
            if growth > 1.0:
                teleported += (growth - 1.0) * reciprocal(gaps[first - 1])
        curve.append(reciprocal(plain + teleported))
    return curve


def explicit_form(steps: Steps) -> Rate:
    """The combined rate without measured gaps, for K = 0, …, len(gains).

        1/δ_K ≥ Σ_e ξ_{s(e)}/(2R²) Π_{i ∈ 𝒯, i > e} β_i

    over the ends e of groups "gradient step s(e), then the block of teleports that follows it". These are exactly the
    e in {1, …, K} that are not in 𝒯. Growth that a block gives to the gradient step just before it is not counted,
    as in the appendix; :func:`recursion` counts it.
    """
    curve = [math.inf]
    for horizon in range(1, steps.iterations + 1):
        blocks = dict(steps.blocks(horizon))
        groups: list[tuple[float, float]] = []  # (gain of the gradient step, growth of its block)
        k = 0
        while k < horizon:
            length = blocks.get(k + 1, 0)
            groups.append((steps.gain(k), math.prod(steps.growths[i] for i in range(k + 1, k + 1 + length))))
            k += 1 + length
        total, later = 0.0, 1.0
        for gain, growth in reversed(groups):
            total += gain * later if gain > 0.0 else 0.0  # later may be ∞
            later *= growth
        curve.append(reciprocal(total))
    return curve


def recursion(steps: Steps, initial_gap: float = math.inf) -> Rate:
    """The sharpest bound that follows from the facts: apply the best one at every step.

        x_0 = 1/δ_0,     x_{k+1} = max(x_k + ξ_k/(2R²), x_k/(1 - μξ_k), β_k x_k if k ∈ 𝒯),     δ_K ≤ 1/x_K.

    This is not in the paper. Unrolled with the first fact off 𝒯 and the second on 𝒯 it gives

        1/δ_K ≥ Σ_{k ∉ 𝒯, k < K} ξ_k/(2R²) Π_{i ∈ 𝒯, i > k} β_i,

    the theorem of the main text with its sum over 0 ≤ k < K; the appendix proves the sum over 1 ≤ k ≤ K. With μ > 0 it
    is never above (1 - μ/L)ᴷδ_0, the bound that holds without any teleport.
    """
    x = reciprocal(initial_gap)
    curve = [reciprocal(x)]
    for k in range(steps.iterations):
        candidates = [x + steps.gain(k), x * reciprocal(1.0 - steps.mu * steps.gains[k]) if x > 0.0 else 0.0]
        if k in steps.growths and x > 0.0:
            candidates.append(steps.growths[k] * x)
        x = max(candidates)
        curve.append(reciprocal(x))
    return curve
