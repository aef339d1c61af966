"""Solving the teleportation problem: one solver per file behind one protocol."""

from levelport.teleport.auto import Auto
from levelport.teleport.base import Outcome, Progress, Task, Teleporter
from levelport.teleport.front_door import SOLVERS, solver_named, teleport
from levelport.teleport.recycled import Recycled
from levelport.teleport.result import Certificate, Status, TeleportResult, TraceRow
from levelport.teleport.sqp import SQP

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
