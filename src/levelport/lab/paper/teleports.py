"""Teleports inside the experiments: when, by which solver, how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from torch import Tensor

from levelport.lab.choices import SolverName
from levelport.objective import Objective
from levelport.solvers import SQP, Auto, Solver, TeleportResult, teleport

SOLVER_NAMES: tuple[SolverName, ...] = get_args(SolverName)

SOLVER_TITLES: Mapping[str, str] = {"published": "published solver", "ours": "our solver"}
"""For pictures and pages."""


@dataclass(frozen=True)
class TeleportPlan:
    """Teleports of a run.

    Attributes:
        solver: "published" is the paper's algorithm as its experiments ran it (its last iterate is taken, whatever its
            value); "ours" is the library's default with one basin explored, as inside the optimizers.
        at: iterations, or epochs, before which to teleport.
        limit: iterations of the published solver, Hessian-vector products of ours.
        rho: first step of the published solver.
    """

    solver: SolverName
    at: tuple[int, ...]
    limit: int = 50
    rho: float = 0.1

    def teleporter(self) -> Solver:
        """The configured solver."""
        if self.solver == "published":
            return SQP(rho=self.rho, max_iterations=self.limit, final="last")
        return Auto(explore=1)

    def apply(self, objective: Objective, x: Tensor) -> TeleportResult:
        """Teleport ``x``."""
        # The published solver counts iterations, one HVP each; the certificate of the result takes one more.
        return teleport(objective, x, self.teleporter(), max_hvps=self.limit + (self.solver == "published"))


def every(period: int, start: int, stop: int) -> tuple[int, ...]:
    """start, start + period, ... below stop."""
    return tuple(range(start, stop, period))
