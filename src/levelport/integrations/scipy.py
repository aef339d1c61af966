"""``scipy.optimize.minimize(fun, x0, jac=..., hessp=..., method=levelport.integrations.scipy.scipy_method)``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from levelport.objective import Point
from levelport.objectives.numpy import NumpyObjective
from levelport.optim._minimize import minimize
from levelport.optim.defaults import MINIMIZE_SCHEDULE
from levelport.optim.result import MinimizeRow, MinimizeStatus
from levelport.optim.schedules import Schedule
from levelport.optim.step_rule import StepRule


def scipy_method(
    fun: Callable[..., Any],
    x0: Any,
    args: tuple[Any, ...] = (),
    jac: Callable[..., Any] | bool | None = None,
    hess: Callable[..., Any] | None = None,
    hessp: Callable[..., Any] | None = None,
    bounds: Any = None,
    constraints: Any = (),
    callback: Callable[..., Any] | None = None,
    *,
    tol: float | None = None,
    gtol: float = 1e-5,
    maxiter: int | None = None,
    disp: bool = False,
    descent: str | StepRule = "auto",
    schedule: Schedule = MINIMIZE_SCHEDULE,
    **options: Any,
) -> Any:
    """Descent with teleports, as a method for ``scipy.optimize.minimize``.

    Args:
        tol, gtol: stop when the 2-norm of the gradient is at most this (absolute; ``tol`` wins).
        maxiter: budget of steps; 200 per variable if None.
        disp: print a summary.
        descent: the step rule, ``method`` of :func:`levelport.minimize`.
        options: other arguments of :func:`levelport.minimize`, such as ``max_cost`` or ``solver``.

    The others are SciPy's own. Returns an ``OptimizeResult`` with nfev, njev, nhev and nteleports.
    """
    from scipy.optimize import OptimizeResult

    if bounds is not None or constraints:
        raise ValueError("levelport minimises without bounds and constraints; SciPy's 'trust-constr' takes them.")
    if not callable(jac) and jac is not True:
        raise ValueError("levelport needs the gradient: pass jac=, or jac=True if fun returns (f, g).")
    if hessp is None and not callable(hess):
        raise ValueError("levelport needs Hessian-vector products: pass hessp=lambda x, v: ..., or hess=.")
    product = hessp if hessp is not None else _times_vector(hess)
    start = torch.as_tensor(x0, dtype=torch.float64).reshape(-1).clone()
    objective = NumpyObjective(fun, jac, product, start.numel(), args)
    watcher = _Watcher(callback)
    result = minimize(
        objective,
        start,
        method=descent,
        schedule=schedule,
        gtol=0.0,
        gtol_absolute=gtol if tol is None else tol,
        max_iterations=200 * start.numel() if maxiter is None else maxiter,
        callback=watcher,
        **options,
    )
    if disp:
        print(f"{result.message}: f = {result.value:.6g} after {result.iterations} steps, {result.cost}")
    return OptimizeResult(
        x=_array(result.x),
        fun=result.value,
        jac=_array(watcher.last.gradient) if watcher.last is not None else None,
        success=result.success,
        status=0 if result.success else 1 + list(MinimizeStatus).index(result.status),
        message=result.message,
        nit=result.iterations,
        nfev=result.cost.values + result.cost.gradients,
        njev=result.cost.gradients,
        nhev=result.cost.hvps,
        nteleports=result.teleports,
    )


class _Watcher:
    """Calls back as SciPy does, once per step, and keeps the last point."""

    def __init__(self, callback: Callable[..., Any] | None) -> None:
        self.last: Point | None = None
        self._callback = callback
        self._by_result = callback is not None and set(inspect.signature(callback).parameters) == {
            "intermediate_result"
        }

    def __call__(self, row: MinimizeRow, point: Point) -> bool:
        self.last = point
        if self._callback is None or row.iteration == 0 or row.teleported:
            return False
        try:
            if self._by_result:
                from scipy.optimize import OptimizeResult

                return bool(self._callback(intermediate_result=OptimizeResult(x=_array(point.x), fun=row.value)))
            return bool(self._callback(_array(point.x)))
        except StopIteration:
            return True


def _array(x: Any) -> Any:
    return x.detach().numpy().copy()


def _times_vector(hess: Any) -> Callable[..., Any]:
    return lambda x, v, *args: hess(x, *args) @ v
