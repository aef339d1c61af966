"""How to teleport: the solver and its limits, checked once for every door.

:func:`levelport.teleport`, :func:`levelport.minimize`, :class:`levelport.Teleporter` and :class:`levelport.Teleported`
take the same arguments under the same names, and hold them in one :class:`Settings`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from levelport import checks
from levelport.solvers.auto import Auto
from levelport.solvers.contract import Solver
from levelport.solvers.krylov import Krylov
from levelport.solvers.sqp import SQP

SOLVERS: dict[str, Callable[[], Solver]] = {"auto": Auto, "krylov": Krylov, "sqp": SQP}
"""Solvers by name, with their default settings."""


def solver_named(solver: str | Solver) -> Solver:
    """The solver itself, by name or as it is; anything else is answered by a sentence."""
    if isinstance(solver, str):
        if solver not in SOLVERS:
            raise checks.unknown_name("solver", solver, SOLVERS)
        return SOLVERS[solver]()
    if isinstance(solver, type):
        raise ValueError(f"solver is the class {solver.__name__}; pass an instance of it: {solver.__name__}().")
    if not isinstance(solver, Solver):
        raise ValueError(
            f"solver must be one of the names {', '.join(SOLVERS)} or a levelport.solvers.Solver, not the "
            f"{type(solver).__name__} {solver!r}."
        )
    return solver


@dataclass(frozen=True)
class Settings:
    """A solver and the limits within which it works.

    Args:
        solver: "auto" (ours), "krylov" (ours, brief), "sqp" (the paper's), or a configured :class:`Solver`.
        level_set: stay on {f = f(w)} instead of {f ≤ f(w)}.
        max_hvps: budget of Hessian-vector products per teleport, certificate included.
        max_seconds: budget of time per teleport, checked between evaluations.
        tol: KKT tolerance on sin ∠(∇f, ∇²f ∇f), free of units.
        radius: largest distance from w; None lets the solver derive it.
        target_gain: stop once ‖∇f‖ has grown by this factor.
        target_alignment: stop once cos ∠(∇f, ∇²f ∇f) is at least this.
        least_decrease: do not move where the solver's model promises less decrease of f than this from the teleport and
            the step after it; for optimizers that know what plain steps would bring.
    """

    solver: str | Solver = "auto"
    level_set: bool = False
    max_hvps: int = 50
    max_seconds: float = math.inf
    tol: float = 1e-6
    radius: float | None = None
    target_gain: float = math.inf
    target_alignment: float = math.inf
    least_decrease: float = 0.0

    def __post_init__(self) -> None:
        solver_named(self.solver)
        if not isinstance(self.level_set, bool):
            raise ValueError(f"level_set must be True or False, not {self.level_set!r}.")
        checks.whole("max_hvps", self.max_hvps, at_least=1, why="the certificate alone takes one")
        checks.number("max_seconds", self.max_seconds, above=0.0)
        checks.number("tol", self.tol, above=0.0, below=1.0, why="it bounds the sine of an angle")
        if self.radius is not None:
            checks.number("radius", self.radius, above=0.0, why="it is a distance; None has it derived")
        checks.number("target_gain", self.target_gain, above=1.0, why="it is the growth of the gradient norm")
        if self.target_alignment != math.inf:
            checks.number("target_alignment", self.target_alignment, above=-1.0, at_most=1.0, why="it is a cosine")

    def begin(self) -> Solver:
        """The solver with an empty memory, for one run."""
        return solver_named(self.solver).begin()
