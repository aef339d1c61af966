"""``scipy.optimize.minimize(fun, x0, jac=..., method=levelport.integrations.scipy.scipy_method)``, and intervals.

Hessian-vector products come from ``hessp``, or from ``hess``, evaluated once per point, or else from differences of
gradients; gradients from ``jac``, or else from differences of f (:mod:`levelport.objectives.numpy`).
"""

from __future__ import annotations

import inspect
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

from levelport import checks
from levelport.objective import Point
from levelport.objectives.numpy import NumpyObjective, products
from levelport.optim._minimize import minimize
from levelport.optim.result import MinimizeRow, MinimizeStatus
from levelport.optim.schedules import Schedule
from levelport.optim.step_rule import StepRule

_OPTIONS = {"solver", "metric", "first_step", "f_target", "max_cost", "max_seconds"}
"""Of :func:`levelport.minimize`, beside those that SciPy has a name for."""


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
    schedule: Schedule | None = None,
    **options: Any,
) -> Any:
    """Descent with teleports, as a method for ``scipy.optimize.minimize``.

    Args:
        jac: the gradient; True if ``fun`` returns it as well; None for forward differences of ``fun``, which is also
            what SciPy makes of "2-point", "3-point" and "cs". Central ones ("3-point") are for direct calls.
        hess, hessp: where given, what products with the Hessian are made of; otherwise differences of gradients.
        tol, gtol: stop when the 2-norm of the gradient is at most this (absolute; ``tol`` wins).
        maxiter: budget of steps; 200 per variable if None.
        callback: called once per step, in either of SciPy's forms; ``StopIteration`` ends the run.
        disp: print a summary.
        descent: the step rule, ``method`` of :func:`levelport.minimize`.
        options: other arguments of :func:`levelport.minimize`, such as ``max_cost`` or ``solver``; SciPy's warning for
            any that there is not.

    The others are SciPy's own. Returns an ``OptimizeResult``; nfev, njev and nhev count calls of the functions given,
    ngev gradients however they were made, nteleports teleports.
    """
    import numpy as np
    from scipy.optimize import OptimizeResult, OptimizeWarning

    if bounds is not None or constraints:
        raise ValueError("levelport minimizes without bounds and constraints; SciPy's 'trust-constr' takes them.")
    if maxiter is not None:
        checks.whole("maxiter", maxiter)
    checks.number("gtol" if tol is None else "tol", gtol if tol is None else tol, at_least=0.0)
    known = {name: value for name, value in options.items() if name in _OPTIONS}
    if unknown := [name for name in options if name not in _OPTIONS]:
        warnings.warn(f"Unknown solver options: {', '.join(unknown)}", OptimizeWarning, stacklevel=3)
    start = np.array(x0, dtype=np.float64).reshape(-1)
    calls: Counter[str] = Counter()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            calls[name] += 1
            return function(*given)

        return call

    product = None
    if hessp is not None:
        product = counted("hess", hessp)
    elif callable(hess):
        product = products(counted("hess", hess))
    objective = NumpyObjective(
        counted("fun", fun), counted("jac", jac) if callable(jac) else jac, product, start.size, args
    )
    result = minimize(
        objective,
        start,
        method=descent,
        schedule=schedule,
        gtol=0.0,
        gtol_absolute=gtol if tol is None else tol,
        max_iterations=200 * start.size if maxiter is None else maxiter,
        callback=None if callback is None else _once_per_step(callback),
        **known,
    )
    message = result.message.replace("max_iterations", "maxiter")
    if disp:
        print(f"{message}: f = {result.value:.6g} after {result.iterations} steps, {result.cost}")
    return OptimizeResult(
        x=result.x,
        fun=result.value,
        jac=result.gradient,
        success=result.success,
        status=0 if result.success else 1 + list(MinimizeStatus).index(result.status),
        message=message,
        nit=result.iterations,
        nfev=calls["fun"],
        njev=calls["fun" if jac is True else "jac"],
        nhev=calls["hess"],
        ngev=result.cost.gradients,
        nteleports=result.teleports,
        execution_time=result.cost.seconds,
    )


def _once_per_step(callback: Callable[..., Any]) -> Callable[[MinimizeRow, Point], bool]:
    """Call back as SciPy does, once per step, where it ended.

    Of the rows of one iteration the first is the step that led to it. Those that follow precede the next step: a
    teleport made or not, its first step, a move undone.
    """
    from scipy.optimize import OptimizeResult

    by_result = set(inspect.signature(callback).parameters) == {"intermediate_result"}
    steps = 0

    def call(row: MinimizeRow, point: Point) -> bool:
        nonlocal steps
        if row.iteration == steps:
            return False
        steps, x = row.iteration, point.x.detach().numpy().copy()
        try:
            if by_result:
                return bool(callback(intermediate_result=OptimizeResult(x=x, fun=row.value)))
            return bool(callback(x))
        except StopIteration:
            return True

    return call


def interval(
    result: Any,
    fun: Callable[..., Any],
    quantity: Any = None,
    *,
    jac: Callable[..., Any] | None = None,
    hess: Callable[..., Any] | None = None,
    args: tuple[Any, ...] = (),
    bounds: Any = None,
    rise: float | None = None,
    confidence: float | None = None,
    names: list[str] | None = None,
    **options: Any,
) -> Any:
    """Likelihood intervals of the parameters of a negative log-likelihood that SciPy has minimized.

    Args:
        result: what ``scipy.optimize.minimize`` returned; its ``x`` is the minimizer.
        fun: the summed negative log-likelihood, ``fun(x, *args)``.
        quantity: a torch function of the parameters, positions of parameters, or None for all of them.
        jac, hess: derivatives, or None for differences.
        bounds: as in ``scipy.optimize.minimize``: a ``Bounds`` object, or a pair (lower, upper) per parameter.
        names: of the quantities.
        options: others of :func:`levelport.interval`, such as ``refine`` or ``max_cost``.

    Returns:
        An :class:`~levelport.goals.IntervalResult`.
    """
    import numpy as np

    from levelport.goals.setup import rise_of
    from levelport.integrations.likelihood import Likelihood

    if not hasattr(result, "x"):
        kind = type(result).__name__
        raise ValueError(f"result must be what scipy.optimize.minimize returned, not a {kind}: interval(result, fun).")
    x = np.array(result.x, dtype=np.float64).reshape(-1)
    limits = None
    if hasattr(bounds, "lb"):
        limits = np.stack([np.broadcast_to(side, x.shape) for side in (bounds.lb, bounds.ub)], axis=1)
    elif bounds is not None:
        if np.shape(bounds) != (x.size, 2):
            raise ValueError(f"bounds must have a pair (lower, upper) for each of {x.size} entries, not {bounds!r}.")
        limits = np.array([[-np.inf if low is None else low, np.inf if up is None else up] for low, up in bounds])
    likelihood = Likelihood(
        lambda z: float(np.asarray(fun(z, *args)).item()),
        x,
        rise_of(rise, confidence),
        jac=None if jac is None else lambda z: jac(z, *args),
        hess=None if hess is None else lambda z: hess(z, *args),
        limits=limits,
    )
    known = [f"x[{index}]" for index in range(x.size)]
    return likelihood.interval(quantity, known, names, rise=rise, confidence=confidence, **options)
