"""L-BFGS with a long memory and a strong-Wolfe line search.

    x⁺ = x - t B⁻¹ ∇f(x),

B⁻¹ from pairs of steps and gradient changes (:mod:`levelport.numerics.lbfgs`), t by
:mod:`levelport.numerics.strong_wolfe`, t = 1 first. B⁻¹ begins with γ I, γ = a^¾ b^¼ of the newest pair, a ≤ b its step
sizes of Barzilai and Borwein; the usual γ = a is too short where a long memory has the stiff directions already. Pairs
survive a teleport, because they describe f and not the path.

A Krylov teleport leaves Ritz pairs (v, ∇²f v) behind. They are pairs of the same kind, paid for already, and go into
the same memory (:meth:`LBFGS.learn`); Morales and Nocedal ("Enriched methods for large-scale unconstrained
optimization", 2002) exchange information between L-BFGS and a truncated Newton method in this way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from levelport import checks
from levelport.numerics.lbfgs import QuasiNewton
from levelport.numerics.strong_wolfe import strong_wolfe
from levelport.objective import Objective, Point
from levelport.optim.step_rule import Step, StepRule
from levelport.vectors import norm

_MOST_PAIRS = 400
_MOST_BYTES = 2**28
_FEWEST_PAIRS = 3
_LONGER = 0.25  # see numerics/lbfgs.py; chosen on development problems


@dataclass(frozen=True)
class LBFGS(StepRule):
    """L-BFGS steps, for :func:`levelport.minimize`.

    Args:
        memory: pairs kept, two vectors of x's size each; None takes as many as fit into 256 MiB, at most 400 and at
            least 3.
    """

    memory: int | None = None

    safe_after_teleport = learns = True

    def __post_init__(self) -> None:
        if self.memory is not None:
            checks.whole("memory", self.memory, at_least=1, why="None chooses it by the size of x")

    def advance(self, objective: Objective, point: Point, state: Any, newton: float | None) -> Step:
        model = self._model(objective, state)
        if model.informed:
            found = strong_wolfe(objective.at, point, -model.apply(point.gradient))
            if found is None:
                model.forget()  # the pairs describe other regions
        if not model.informed:
            size = point.gradient_norm
            initial = newton or min(1.0, 1.0 / size if size > 0.0 else 1.0)
            if size > 0.0:  # no less than what shows in x, whatever its unit
                initial = max(initial, math.sqrt(torch.finfo(objective.dtype).eps) * (float(norm(point.x)) / size))
            found = strong_wolfe(objective.at, point, -point.gradient, initial=initial)
        if found is None:
            return Step(None, model, 0.0)
        length, new = found
        model.update(new.x - point.x, new.gradient - point.gradient)
        return Step(new, model, length)

    def learn(self, objective: Objective, state: Any, pairs: tuple[Tensor, Tensor]) -> QuasiNewton:
        """The state with the pairs (v, ∇²f v), rows of two matrices in the order of their curvatures, smallest first.

        Pairs without positive curvature are left out. Of a short memory they take at most one half.
        """
        memory = self._model(objective, state)
        most = max(self.pairs(objective.dimension, objective.dtype) // 2, 1)
        for v, image in zip(*(rows[-most:] for rows in pairs), strict=True):
            memory.update(v, image)
        return memory

    def pairs(self, dimension: int, dtype: torch.dtype) -> int:
        """Pairs kept for x of this size."""
        fitting = _MOST_BYTES // (2 * dimension * dtype.itemsize)
        return self.memory or max(_FEWEST_PAIRS, min(_MOST_PAIRS, fitting))

    def _model(self, objective: Objective, state: Any) -> QuasiNewton:
        if isinstance(state, QuasiNewton):
            return state
        return QuasiNewton(self.pairs(objective.dimension, objective.dtype), longer=_LONGER)
