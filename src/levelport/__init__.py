"""levelport: move a point to where the gradient is largest without raising the loss, then go on descending."""

from levelport.objective import Cost, Objective, ObjectiveError, Point
from levelport.objectives import AutogradObjective, LinearObjective, ModuleObjective, NumpyObjective
from levelport.teleport import SQP, Auto, Certificate, Status, Teleporter, TeleportResult, teleport

__version__ = "0.1.0"

__all__ = [
    "SQP",
    "Auto",
    "AutogradObjective",
    "Certificate",
    "Cost",
    "LinearObjective",
    "ModuleObjective",
    "NumpyObjective",
    "Objective",
    "ObjectiveError",
    "Point",
    "Status",
    "TeleportResult",
    "Teleporter",
    "teleport",
]
