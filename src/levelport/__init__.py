"""Optimization over sub-level sets {f ≤ level} of a smooth function, in PyTorch.

Four verbs take a function and a point, and return a result with a status and its cost:

* :func:`teleport`: the largest gradient at no higher a value.
* :func:`minimize`: a local minimum.
* :func:`interval`: the range of a quantity while f rises by at most a given amount; also :func:`profile` and
  :func:`contour`.
* :func:`improve`: the best value of a second function at no more than a given rise of f.

For training, :class:`Teleported` wraps a torch optimizer, and :class:`Teleporter` fits into a loop of your own.

Names and packages are imported when they are first used. Step rules and torch optimizers are in
:mod:`levelport.optim`, the contract of a solver in :mod:`levelport.solvers`, adapters in :mod:`levelport.integrations`.
"""

from __future__ import annotations

import sys
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


_PACKAGES = ("goals", "integrations", "objectives", "optim", "solvers", "symmetries")


def __getattr__(name: str) -> Any:
    """Import ``name`` from its package, or the package ``name``, on first use."""
    if name in _PACKAGES:
        return import_module(f"levelport.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'levelport' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    value = getattr(import_module(f"levelport.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
