"""The lemmas behind the rates, checked along a run: each says by how much it holds.

*Diameter lemma.* With teleports and steps that descend, δ_{k+1} ≤ δ_k, every iterate stays in {f ≤ f(w_0)}, and
within R of w*. *Relaxation lemma.* For convex f, f and ‖∇f‖ both grow along +∇f, so a maximizer of ‖∇f‖ over {f ≤
f(w)} lies on the level set, and for strictly convex f every one does: the teleport itself does not lower f.
*Steps.* The largest Armijo step is at least 1/L, and at least 1/(λL̃) after an exact teleport.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from levelport_lab.theory.constants import Constants
from levelport_lab.theory.trajectory import Trajectory


@dataclass(frozen=True)
class LemmaCheck:
    """``worst`` is the largest value met of a quantity that the lemma bounds by ``limit``."""

    name: str
    worst: float
    limit: float

    @property
    def holds(self) -> bool:
        """True if the lemma was kept."""
        return self.worst <= self.limit

    def __str__(self) -> str:
        return f"{self.name}: {self.worst:.4g}, at most {self.limit:.4g}: {'holds' if self.holds else 'BROKEN'}"


def check_lemmas(trajectory: Trajectory, constants: Constants) -> tuple[LemmaCheck, ...]:
    """All that can be checked with these constants, over the iterations whose gaps are more than rounding."""
    gaps, rows = trajectory.gaps, trajectory.rows
    known = [k for k in range(len(rows)) if trajectory.resolved(k)]
    if not known:
        return ()
    slack = 1.0 + 1e-9
    rises = max((gaps[k + 1] - gaps[k]) / constants.initial_gap for k in known)
    found = [LemmaCheck("diameter lemma, rise of f - f* in units of δ₀", rises, trajectory.rounding / gaps[0])]
    if constants.radius.not_too_small and math.isfinite(constants.radius.value):
        farthest = max(max(rows[k].distance, rows[k].distance_after_teleport) for k in known)
        found.append(
            LemmaCheck("diameter lemma, distance from w* in units of R", farthest / constants.radius.value, slack)
        )
    teleports = [k for k in known if rows[k].teleported]
    if teleports:
        # The boundary is found to about the accuracy of the solve, and to rounding where the gap is small.
        drops = max((abs(rows[k].drop) - trajectory.rounding) / gaps[k] for k in teleports)
        found.append(LemmaCheck("relaxation lemma, distance from the level in units of δ_k", max(0.0, drops), 1e-6))
        shrinking = max(1.0 / rows[k].growth for k in teleports)
        found.append(LemmaCheck("teleports, gradient norm before over after", shrinking, slack))
    if constants.L.not_too_small:
        shortest = max((1.0 / (rows[k].step * constants.L.value) for k in known if _plain(trajectory, k)), default=0.0)
        found.append(LemmaCheck("Armijo steps, 1/(ηL)", shortest, slack))
    stability = constants.stability
    if teleports and stability is not None and constants.stability_upper.not_too_small:
        exact = [k for k in teleports if rows[k].alignment > 1.0 - 1e-9 and rows[k].step > 0.0]
        shortest = max((1.0 / (rows[k].step * rows[k].curvature * stability.upper) for k in exact), default=0.0)
        found.append(LemmaCheck("steps after teleports, 1/(ηλL̃)", shortest, 1.0 + 1e-6))
    return tuple(found)


def _plain(trajectory: Trajectory, k: int) -> bool:
    """A gradient step that the line search could still resolve."""
    row = trajectory.rows[k]
    return row.step > 0.0 and not row.newton and row.gap > 1e3 * trajectory.rounding
