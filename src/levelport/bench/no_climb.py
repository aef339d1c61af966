"""The ablation: the loop of :class:`~levelport.teleport.recycled.Recycled` without the climb.

    x⁺ = w + s_N   in place of   x⁺ = w + s_N + a v.

What is left is a quasi-Newton step followed by a gradient step. It is no teleport, since the gradient may shrink; the
difference to the real thing is what the climb is worth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from levelport.objective import Objective, Point
from levelport.teleport.recycled import Recycled, RecycledRun


@dataclass(frozen=True)
class DescentOnly(Recycled):
    """Descend to the bottom of the model and stay there."""

    def begin(self) -> RecycledRun:
        """A fresh memory for one run."""
        return _DescentOnlyRun(self)


class _DescentOnlyRun(RecycledRun):
    def _land(self, objective: Objective, start: Point, step: Tensor, decrease: float) -> tuple[Point | None, bool]:
        fraction = 1.0
        for attempt in range(6):
            end = objective.at(start.x + fraction * step)
            if math.isfinite(end.value) and end.value <= start.value and end.finite:
                self._learn(start, end)
                return end, attempt == 0
            fraction *= 0.4
        self._model.forget()
        return None, False
