"""Deciding whether a curve of bounds holds, and the sequences that test it hardest."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from levelport_lab.theory.steps import Steps


def violations(curve: Sequence[float], gaps: Sequence[float], rounding: float = 0.0) -> list[int]:
    """The K at which the gap exceeds the bound by more than rounding and underflow explain."""
    assert len(curve) <= len(gaps)
    rounding += sys.float_info.min
    return [k for k, bound in enumerate(curve) if not gaps[k] <= bound * (1.0 + 1e-9) + rounding]


def hardest_sequence(steps: Steps, initial_gap: float) -> list[float]:
    """Gaps that fall no faster than the one-step lemmas force them to.

    A gradient step satisfies δ⁺ = δ - ξδ²/(2R²) with equality, a teleport the better of this and δ⁺ = δ/β. The proofs
    of the combined rates use nothing else, so the rates must hold here, and they have little to spare.
    """
    gaps = [initial_gap]
    for k in range(steps.iterations):
        share = steps.gains[k] * gaps[-1] / (2 * steps.radius**2)
        assert share < 1.0, "the initial gap is larger than smoothness allows"
        descended = gaps[-1] * (1.0 - share)
        if k in steps.growths:
            descended = min(descended, gaps[-1] / steps.growths[k])
        gaps.append(descended)
    return gaps
