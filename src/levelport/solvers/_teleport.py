"""``levelport.teleport``: checks what goes in and translates between the user's variables and flat vectors."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from levelport.objective import Objective
from levelport.objectives.distributed import DistributedObjective
from levelport.objectives.function import as_objective
from levelport.objectives.structure import Variables
from levelport.solvers.auto import Auto
from levelport.solvers.contract import Callback, Teleporter
from levelport.solvers.guarantee import teleport_from
from levelport.solvers.result import TeleportResult
from levelport.solvers.sqp import SQP

SOLVERS: dict[str, Callable[[], Teleporter]] = {"auto": Auto, "sqp": SQP}
"""Solvers by name, with their default settings."""


def solver_named(name: str) -> Teleporter:
    """The solver called ``name``, or an error with a suggestion."""
    if name not in SOLVERS:
        near = difflib.get_close_matches(name, SOLVERS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"there is no solver called {name!r}.{hint} Choose from: {', '.join(SOLVERS)}.")
    return SOLVERS[name]()


def _method(solver: str | Teleporter) -> Teleporter:
    """The solver itself, by name or as given."""
    if isinstance(solver, str):
        return solver_named(solver)
    if isinstance(solver, type):
        raise ValueError(f"solver is the class {solver.__name__}; pass an instance of it: {solver.__name__}().")
    if not callable(getattr(solver, "solve", None)):
        raise ValueError(
            f"solver must be one of the names {', '.join(SOLVERS)} or have a method solve(task, progress); "
            f"{type(solver).__name__} has none."
        )
    return solver


def teleport(
    fun: Callable[[Any], Tensor] | Objective,
    x: Variables,
    solver: str | Teleporter = "auto",
    *,
    level_set: bool = False,
    max_hvps: int = 50,
    max_seconds: float = math.inf,
    tol: float = 1e-6,
    radius: float | None = None,
    target_gain: float = math.inf,
    target_alignment: float = math.inf,
    callback: Callback | None = None,
) -> TeleportResult:
    """Move ``x`` to where the gradient is largest without raising the loss.

    Solves max ‖∇f(y)‖ subject to f(y) ≤ f(x) locally, with Hessian-vector products only.

    Args:
        fun: f, a differentiable function of ``x`` that returns a scalar tensor, or an :class:`Objective`.
        x: a tensor, or a list or dict of tensors; for an Objective, a flat vector. Never modified.
        solver: "auto" (ours), "sqp" (the paper's), or a configured :class:`Teleporter`.
        level_set: stay on the level set {f = f(x)} instead of the sub-level set {f ≤ f(x)}.
        max_hvps: budget of Hessian-vector products, certificate included.
        max_seconds: budget of time, checked between evaluations.
        tol: KKT tolerance on sin ∠(∇f, ∇²f ∇f), free of units.
        radius: largest distance from ``x``; derived from the problem's own scale if None.
        target_gain: stop once ‖∇f‖ has grown by this factor.
        target_alignment: stop once cos ∠(∇f, ∇²f ∇f) is at least this.
        callback: called as ``callback(row, point)`` in every iteration; a true answer stops the solve.

    Returns:
        A point with f(y) ≤ f(x) + slack and ‖∇f(y)‖ ≥ ‖∇f(x)‖, both evaluated at the very tensor returned, or ``x``
        itself with a status that says why. The slack is 0 for "auto" and ``1e-6·max(|f(x)|, tiny)`` for "sqp", whose
        iterates approach the level from outside; in level-set mode it is the allowed distance from the level.

    Raises:
        ObjectiveError: the function is not a deterministic, twice differentiable scalar.
        ValueError: an argument makes no sense.

    Example:
        >>> import torch
        >>> booth = lambda w: (w[0] + 2 * w[1] - 7) ** 2 + (2 * w[0] + w[1] - 5) ** 2
        >>> result = teleport(booth, torch.tensor([7.5, -4.0], dtype=torch.float64))
        >>> result.success, round(result.gradient_norm, 4)
        (True, 57.6281)
    """
    _check_limits(max_hvps, max_seconds, tol, radius, target_gain, target_alignment)
    if callback is not None and not callable(callback):
        raise ValueError(f"callback must be a function of (row, point), not {type(callback).__name__}.")
    method = _method(solver)
    objective, structure, flat = as_objective(fun, x)
    if isinstance(objective, DistributedObjective) and math.isfinite(max_seconds):
        raise ValueError("max_seconds cannot be used across ranks, whose clocks differ; use max_hvps.")
    result, point = teleport_from(
        objective.at(flat, curvature=True),
        objective,
        method,
        level_set=level_set,
        max_hvps=max_hvps,
        max_seconds=max_seconds,
        tol=tol,
        radius=radius,
        target_gain=target_gain,
        target_alignment=target_alignment,
        callback=callback,
    )
    return replace(result, x=structure.assemble(structure.leaves(point.x)))


def _check_limits(
    max_hvps: int,
    max_seconds: float,
    tol: float,
    radius: float | None,
    target_gain: float,
    target_alignment: float,
) -> None:
    if not _is_whole(max_hvps):
        raise ValueError(f"max_hvps must be a whole number, not {max_hvps!r}.")
    limits = {"max_seconds": max_seconds, "tol": tol, "target_gain": target_gain, "target_alignment": target_alignment}
    for name, value in {**limits, "radius": 1.0 if radius is None else radius}.items():
        if not _is_number(value):
            raise ValueError(f"{name} must be a number, not the {type(value).__name__} {value!r}.")
    if max_hvps < 1:
        raise ValueError(f"max_hvps must be at least 1, not {max_hvps}: the certificate alone takes one.")
    if not max_seconds > 0:
        raise ValueError(f"max_seconds must be positive, not {max_seconds}.")
    if not 0.0 < tol < 1.0:
        raise ValueError(f"tol must lie between 0 and 1, not {tol}: it bounds the sine of an angle.")
    if radius is not None and not radius > 0.0:
        raise ValueError(f"radius must be positive, or None to have it derived, not {radius}.")
    if not target_gain > 1.0:
        raise ValueError(f"target_gain must exceed 1, not {target_gain}: it is the growth of the gradient norm.")
    if not target_alignment > -1.0:
        raise ValueError(f"target_alignment must exceed -1, not {target_alignment}: it is a cosine.")


def _is_whole(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
