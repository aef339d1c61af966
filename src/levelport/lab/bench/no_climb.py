"""The ablation: the loop of :class:`~levelport.solvers.recycled.Recycled` without the climb.

    x⁺ = x + s_N   in place of   x⁺ = x + s_N + a v.

What is left are quasi-Newton steps followed by a gradient step. It is no teleport, since the gradient may shrink; the
difference to the real thing is what the climb is worth.
"""

from __future__ import annotations

from dataclasses import dataclass

from levelport.objective import Objective, Point
from levelport.solvers.recycled import IsEnough, Recycled, RecycledRun, never


@dataclass(frozen=True)
class DescentOnly(Recycled):
    """Descend to the bottom of the model and stay there."""

    def begin(self, enough: IsEnough = never) -> RecycledRun:
        """A fresh memory for one run."""
        return _DescentOnlyRun(self, enough)


class _DescentOnlyRun(RecycledRun):
    def _climb(self, objective: Objective, start: Point, here: Point) -> Point | None:
        end = self._step_down(objective, here)
        if end is not None:
            self._learn(here, end)
        return end
