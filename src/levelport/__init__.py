"""levelport: move a point to where the gradient is largest without raising the loss, then go on descending.

The names below are all that most people need; each is imported when it is first used. The rest lives in the packages:
step rules and torch optimizers in :mod:`levelport.optim`, what a solver is made of in :mod:`levelport.solvers`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from levelport.goals import contour, improve, interval, profile
    from levelport.objective import Cost, Objective, ObjectiveError, Point
    from levelport.objectives import FunctionObjective, LinearObjective, ModuleObjective, NumpyObjective
    from levelport.objectives.batches import Batches
    from levelport.objectives.distributed import DistributedObjective
    from levelport.optim import (
        At,
        Every,
        MinimizeResult,
        MinimizeStatus,
        Never,
        Teleported,
        Teleporter,
        TeleportStep,
        WhileAffordable,
        minimize,
    )
    from levelport.solvers import SQP, Auto, Krylov, Solver, TeleportResult, TeleportStatus, teleport

__version__ = "0.1.0"

_HOMES = {
    "goals": ("contour", "improve", "interval", "profile"),
    "objective": ("Cost", "Objective", "ObjectiveError", "Point"),
    "objectives": ("FunctionObjective", "LinearObjective", "ModuleObjective", "NumpyObjective"),
    "objectives.distributed": ("DistributedObjective",),
    "objectives.batches": ("Batches",),
    "optim": (
        "At",
        "Every",
        "MinimizeResult",
        "MinimizeStatus",
        "Never",
        "TeleportStep",
        "Teleported",
        "Teleporter",
        "WhileAffordable",
        "minimize",
    ),
    "solvers": ("SQP", "Auto", "Krylov", "Solver", "TeleportResult", "TeleportStatus", "teleport"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "SQP",
    "At",
    "Auto",
    "Batches",
    "Cost",
    "DistributedObjective",
    "Every",
    "FunctionObjective",
    "Krylov",
    "LinearObjective",
    "MinimizeResult",
    "MinimizeStatus",
    "ModuleObjective",
    "Never",
    "NumpyObjective",
    "Objective",
    "ObjectiveError",
    "Point",
    "Solver",
    "TeleportResult",
    "TeleportStatus",
    "TeleportStep",
    "Teleported",
    "Teleporter",
    "WhileAffordable",
    "contour",
    "improve",
    "interval",
    "minimize",
    "profile",
    "teleport",
]


def __getattr__(name: str) -> Any:
    """Import ``name`` from its package on first use."""
    if name not in _HOME:
        raise AttributeError(f"module 'levelport' has no attribute {name!r}")
    value = getattr(import_module(f"levelport.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
