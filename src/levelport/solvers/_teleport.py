"""``levelport.teleport``: checks what goes in and translates between the user's variables and flat vectors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from torch import Tensor

from levelport import checks
from levelport.objective import Objective
from levelport.objectives.distributed import DistributedObjective
from levelport.objectives.function import as_objective
from levelport.objectives.metric import InMetric
from levelport.objectives.structure import X
from levelport.solvers.contract import Callback, Solver
from levelport.solvers.guarantee import teleport_from
from levelport.solvers.result import TeleportResult
from levelport.solvers.settings import Settings


def teleport(
    fun: Callable[[Any], Tensor] | Objective,
    x: X,
    solver: str | Solver = "auto",
    *,
    level_set: bool = False,
    max_hvps: int = 50,
    max_seconds: float = math.inf,
    tol: float = 1e-6,
    radius: float | None = None,
    target_gain: float = math.inf,
    target_alignment: float = math.inf,
    metric: X | None = None,
    callback: Callback | None = None,
) -> TeleportResult[X]:
    """Move ``x`` to where the gradient is largest without raising the loss.

    Solves max ‖∇f(y)‖ subject to f(y) ≤ f(x) locally, with Hessian-vector products only.

    Args:
        fun: f, a differentiable function of ``x`` that returns a scalar tensor, or an :class:`Objective`.
        x: a tensor, or a list or dict of tensors; for an Objective, a flat vector. Never modified.
        solver: "auto" (ours), "sqp" (the paper's), "krylov" (cheap and rough: what optimizers take before a step), or a
            configured :class:`Solver`.
        level_set: stay on the level set {f = f(x)} instead of the sub-level set {f ≤ f(x)}.
        max_hvps: budget of Hessian-vector products, certificate included.
        max_seconds: budget of time, checked between evaluations.
        tol: KKT tolerance on sin ∠(∇f, ∇²f ∇f), free of units; "sqp" has an absolute one of its own.
        radius: largest distance from ``x``; derived from the problem's own scale if None.
        target_gain: stop once ‖∇f‖ has grown by this factor.
        target_alignment: stop once cos ∠(∇f, ∇²f ∇f) is at least this.
        metric: positive weights m in the structure of ``x``: lengths are √(Σ mᵢ sᵢ²) and gradient norms √(Σ gᵢ²/mᵢ), in
            the result as well; None takes the ordinary norm.
        callback: called as ``callback(row, point)`` in every iteration; a true answer stops the solve.

    Returns:
        A point with f(y) ≤ f(x) + slack and ‖∇f(y)‖ ≥ ‖∇f(x)‖, both evaluated at the very tensor returned, or ``x``
        itself with a status that says why. The slack is the solver's own: 0 for "auto", ``1e-6·max(|f(x)|, tiny)`` for
        "sqp", whose iterates approach the level from outside; in level-set mode it is the allowed distance from the
        level.

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
    settings = Settings(
        solver=solver,
        level_set=level_set,
        max_hvps=max_hvps,
        max_seconds=max_seconds,
        tol=tol,
        radius=radius,
        target_gain=target_gain,
        target_alignment=target_alignment,
    )
    if callback is not None:
        checks.function("callback", callback, of="row, point")
    objective, structure, flat = as_objective(fun, x)
    if isinstance(objective, DistributedObjective) and math.isfinite(max_seconds):
        raise ValueError("max_seconds cannot be used across ranks, whose clocks differ; use max_hvps.")
    start = objective.at(flat, curvature=True)
    if metric is None:
        result, point = teleport_from(start, objective, settings.begin(), settings, callback)
    else:
        weighted = InMetric.like(x, objective, metric)
        seen = None if callback is None else lambda row, point: callback(row, weighted.underneath(point))
        result, point = teleport_from(weighted.around(start), weighted, settings.begin(), settings, seen)
        point = weighted.underneath(point)
    # The same result around the user's own kind of variables.
    return cast("TeleportResult[X]", replace(result, x=structure.assemble(structure.leaves(point.x))))  # type: ignore[arg-type]
