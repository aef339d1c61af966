"""Solving the teleportation problem: one solver per file behind one contract."""

from levelport.solvers._teleport import SOLVERS, Move, move_from, solver_named, teleport
from levelport.solvers.auto import Auto
from levelport.solvers.contract import Monitor, Outcome, Solver
from levelport.solvers.krylov import Krylov
from levelport.solvers.problem import Certificate, State, TeleportProblem
from levelport.solvers.result import TeleportResult, TeleportStatus, TraceRow
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
    "Solver",
    "State",
    "TeleportProblem",
    "TeleportResult",
    "TeleportStatus",
    "TraceRow",
    "move_from",
    "solver_named",
    "teleport",
]
