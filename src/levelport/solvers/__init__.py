"""Solving the teleportation problem: one solver per file behind one contract."""

from levelport.solvers._teleport import teleport
from levelport.solvers.auto import Auto
from levelport.solvers.certificate import Certificate
from levelport.solvers.contract import Monitor, Outcome, Solver, TeleportProblem
from levelport.solvers.guarantee import Move, move_from, teleport_from
from levelport.solvers.krylov import Krylov
from levelport.solvers.result import TeleportResult, TeleportStatus, TraceRow
from levelport.solvers.settings import SOLVERS, Settings, solver_named
from levelport.solvers.sqp import SQP

__all__ = [
    "SOLVERS",
    "SQP",
    "Auto",
    "Certificate",
    "Krylov",
    "Monitor",
    "Move",
    "Outcome",
    "Settings",
    "Solver",
    "TeleportProblem",
    "TeleportResult",
    "TeleportStatus",
    "TraceRow",
    "move_from",
    "solver_named",
    "teleport",
    "teleport_from",
]
