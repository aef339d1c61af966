"""levelport: move a point to where the gradient is largest without raising the loss, then go on descending."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from levelport.objective import Cost, Objective, ObjectiveError, Point
from levelport.objectives import FunctionObjective, LinearObjective, ModuleObjective, NumpyObjective
from levelport.objectives.distributed import DistributedObjective
from levelport.optim import (
    Armijo,
    ArmijoSGD,
    At,
    AtStart,
    Batches,
    Blocks,
    Every,
    FixedStep,
    Jump,
    MinimizeResult,
    MinimizeStatus,
    Momentum,
    Never,
    Newton,
    NewtonCG,
    Normalized,
    NormalizedSGD,
    Polyak,
    PolyakSGD,
    Teleported,
    WhenItPays,
    WhenStalled,
    minimize,
    scipy_method,
)
from levelport.solvers import SQP, Auto, Certificate, Recycled, Status, Teleporter, TeleportResult, teleport

if TYPE_CHECKING:
    from levelport.problems import problem

__version__ = "0.1.0"

__all__ = [
    "SQP",
    "Armijo",
    "ArmijoSGD",
    "At",
    "AtStart",
    "Auto",
    "Batches",
    "Blocks",
    "Certificate",
    "Cost",
    "DistributedObjective",
    "Every",
    "FixedStep",
    "FunctionObjective",
    "Jump",
    "LinearObjective",
    "MinimizeResult",
    "MinimizeStatus",
    "ModuleObjective",
    "Momentum",
    "Never",
    "Newton",
    "NewtonCG",
    "Normalized",
    "NormalizedSGD",
    "NumpyObjective",
    "Objective",
    "ObjectiveError",
    "Point",
    "Polyak",
    "PolyakSGD",
    "Recycled",
    "Status",
    "TeleportResult",
    "Teleported",
    "Teleporter",
    "WhenItPays",
    "WhenStalled",
    "minimize",
    "problem",
    "scipy_method",
    "teleport",
]


def __getattr__(name: str) -> Any:
    """``levelport.problem`` is imported on first use: the named problems need NumPy, the core does not."""
    if name == "problem":
        from levelport.problems import problem

        return problem
    raise AttributeError(f"module 'levelport' has no attribute {name!r}")
