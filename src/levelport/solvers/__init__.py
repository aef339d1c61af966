"""Solving the teleportation problem: one solver per file behind one protocol."""

from levelport.solvers._teleport import SOLVERS, solver_named, teleport
from levelport.solvers.auto import Auto
from levelport.solvers.contract import Outcome, Progress, Task, Teleporter
from levelport.solvers.recycled import Recycled
from levelport.solvers.result import Certificate, Status, TeleportResult, TraceRow
from levelport.solvers.sqp import SQP

__all__ = [
    "SOLVERS",
    "SQP",
    "Auto",
    "Certificate",
    "Outcome",
    "Progress",
    "Recycled",
    "Status",
    "Task",
    "TeleportResult",
    "Teleporter",
    "TraceRow",
    "solver_named",
    "teleport",
]
