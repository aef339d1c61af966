"""Teleports inside the experiments: when, by which solver, how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from torch import Tensor

from levelport.objective import Objective
from levelport.solvers import SQP, Auto, Solver, TeleportResult, teleport
from levelport_lab.choices import Protocol, SolverName

SOLVER_NAMES: tuple[SolverName, ...] = get_args(SolverName)

SOLVER_TITLES: Mapping[str, str] = {"published": "published solver", "ours": "our solver"}
"""For pictures and pages."""

SolverSetting = Literal["text", "text-restart", "released", "ours"]
"""The published solver in one of its two modes, the text's with both readings of its search, or ours."""


def solver_setting(solver: SolverName, protocol: Protocol) -> SolverSetting:
    """Which solver a protocol means by a name: the published one has a mode per protocol, ours is one."""
    return "ours" if solver == "ours" else protocol


@dataclass(frozen=True)
class TeleportPlan:
    """Teleports of a run.

    Attributes:
        solver: "text" and "released" are the modes of the paper's algorithm (its last iterate is taken, whatever its
            value), "text-restart" the text's with searches that begin at ρ again; "ours" is the library's default.
        at: iterations, or epochs, before which to teleport.
        limit: iterations of the published solver, Hessian-vector products of ours.
        rho: first step of the published solver.
        backtracks: how often the published solver may shrink a step.
    """

    solver: SolverSetting
    at: tuple[int, ...]
    limit: int = 50
    rho: float = 0.1
    backtracks: int = 25

    def teleporter(self) -> Solver:
        """The configured solver."""
        return Auto() if self.solver == "ours" else self.published()

    def published(self) -> SQP:
        """The paper's algorithm in the mode that is planned."""
        search: Literal["restart", "continue"] = "restart" if self.solver == "text-restart" else "continue"
        mode: Literal["released", "text"] = "released" if self.solver == "released" else "text"
        return SQP(
            mode=mode,
            search=search,
            final="last",
            rho=self.rho,
            max_iterations=self.limit,
            max_backtracks=self.backtracks,
        )

    def apply(self, objective: Objective, x: Tensor) -> TeleportResult:
        """Teleport ``x``."""
        # The published solver counts iterations, one HVP each; the certificate of the result takes one more.
        return teleport(objective, x, replace(self.teleporter(), max_hvps=self.limit + (self.solver != "ours")))


def every(period: int, start: int, stop: int) -> tuple[int, ...]:
    """start, start + period, ... below stop."""
    return tuple(range(start, stop, period))


def as_scheduled(at: tuple[int, ...], protocol: Protocol) -> tuple[int, ...]:
    """Steps before which to teleport, from the paper's schedule.

    The text teleports before step k. The released scripts do it after iteration k, counted from 0, has been done.
    """
    return at if protocol == "text" else tuple(k + 1 for k in at)
