"""What ``minimize(f, x0)`` and ``Teleported(optimizer)`` do when nothing else is said. All defaults are here."""

from __future__ import annotations

import torch

from levelport.optim.armijo import ArmijoSGD
from levelport.optim.lbfgs import LBFGS
from levelport.optim.loss_account import Horizon, LossAccount
from levelport.optim.polyak import PolyakSGD
from levelport.optim.probes import Probes
from levelport.optim.schedules import Never, Schedule
from levelport.optim.step_rule import StepRule
from levelport.solvers import Krylov, Solver

METHOD: StepRule = LBFGS()
"""Of ``minimize``."""

MINIMIZE_SCHEDULE: Schedule = Probes()
"""Of ``minimize`` with ``method="auto"``; every other method teleports only if told when."""

MINIMIZE_SOLVER: Solver = Krylov()
"""How ``minimize`` teleports: the Krylov solver stops by itself, long before that."""

GRADIENT_SCHEDULE: Schedule = LossAccount()
"""Of ``Teleported`` and ``Teleporter`` around a gradient method."""

MOMENTUM_SCHEDULE: Schedule = Horizon()
"""The same around SGD with momentum."""

OTHER_SCHEDULE: Schedule = Never(
    "no rule was found that keeps such an optimizer within 5 % of itself without teleports; name a schedule to teleport"
)
"""The same around all others: Adam's second moments, for instance, are those of the place that a teleport leaves."""

RANKS_SCHEDULE: Schedule = Never("ranks would decide differently; name a schedule that is fixed in advance")
"""The same with ``distribute``."""


def schedule_for(optimizer: torch.optim.Optimizer) -> Schedule:
    """By the kind of the optimizer."""
    if isinstance(optimizer, (ArmijoSGD, PolyakSGD)):
        return GRADIENT_SCHEDULE
    if isinstance(optimizer, torch.optim.SGD):
        with_momentum = any(group["momentum"] for group in optimizer.param_groups)
        return MOMENTUM_SCHEDULE if with_momentum else GRADIENT_SCHEDULE
    return OTHER_SCHEDULE


SOLVER: Solver = Krylov()
"""How ``Teleported`` teleports: the solver stops by itself, and the default schedules allow it less than that."""


def gtol_for(dtype: torch.dtype) -> float:
    """‖∇f‖ relative to its value at x0, as small as it gets in this precision.

    Once it is √u, u the unit roundoff, f itself changes by rounding alone: 1e-8 in float64, 3e-4 in float32, where
    gradients have some digits left to go on with.
    """
    return {torch.float64: 1e-8, torch.float32: 1e-5}.get(dtype, 1e-3)


MAX_ITERATIONS = 10_000
