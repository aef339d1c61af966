"""The schedule of ``minimize``: Krylov teleports as probes of the curvature, for as long as they pay.

A probe costs as much as tens of L-BFGS steps, lowers f and leaves Ritz pairs to the L-BFGS memory. It *pays* if f falls
by more than plain steps would have brought at the same cost. Between two probes there is a pause of p gradient
equivalents of plain steps:

    p₀ = 80;      after a probe of cost c that paid,  p ← max(p/2, c/2);      otherwise  p ← 2 max(p, c).

So most problems, which L-BFGS solves within 80 gradient equivalents, never see a probe. A probe takes at most a product
for every four gradient equivalents spent before it, and where probes do not pay, their share of the cost falls to zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from levelport.optim.schedules import History, Schedule
from levelport.solvers import Solver

_START = 80.0  # gradient equivalents before the first probe
_MOST_VECTORS = 64  # of the Krylov space of a probe


@dataclass(frozen=True)
class Probes(Schedule):
    """Krylov teleports as probes, after a pause that adapts to what they bring."""

    watches = True

    def limit(self, solver: Solver, history: History) -> Solver:
        vectors = max(1, min(_MOST_VECTORS, int(0.25 * history.costs[-1])))
        return solver.within(vectors + 1, 0.0)  # solvers keep one product in reserve for a certificate

    def due(self, step: int, history: History) -> bool:
        pause = due_at = _START
        for trial in history.trials:
            if math.isnan(trial.decrease):
                return False  # it has not been followed by a step yet
            plain = trial.cost * trial.plain_rate if math.isfinite(trial.plain_rate) else 0.0
            pays = trial.decrease > plain
            pause = max(0.5 * pause, 0.5 * trial.cost) if pays else 2.0 * max(pause, trial.cost)
            due_at = trial.cost_before + trial.cost + pause
        return history.costs[-1] >= due_at

    def __str__(self) -> str:
        return f"probes of the curvature from {_START:g} gradient equivalents on, while they pay"
