"""General-purpose solvers of SciPy on the teleportation problem, behind the same front door and the same ledger.

They get what our own solvers get: the objective ½ log ‖∇f(x)‖² with its gradient ∇²f ∇f/‖∇f‖² (one HVP), and the
constraint f(x) ≤ f(w) with its gradient. What they return lies near the level, on either side; like the published
solver's, their last point is put back onto it, for a few gradients that are counted.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from levelport.checks import unknown_name
from levelport.objective import Point
from levelport.solvers import SOLVERS, Certificate, Monitor, Outcome, Solver, TeleportProblem, TeleportStatus
from levelport.solvers.problem import retract

Vector = NDArray[np.float64]


class _Halt(Exception):
    """Leaves SciPy's loop when the budget is spent."""


@dataclass(frozen=True)
class ScipySolver(Solver):
    """``scipy.optimize.minimize`` as a solver of the teleportation problem.

    Args:
        method: "SLSQP" or "trust-constr". Both keep dense d×d matrices, so they serve a few hundred variables,
            or a few thousand.
        tol: SciPy's own tolerance.
    """

    method: Literal["SLSQP", "trust-constr"] = "SLSQP"
    _: KW_ONLY
    tol: float = 1e-9

    def solve(self, problem: TeleportProblem, monitor: Monitor) -> Outcome:
        """Run SciPy until it is content or the budget is spent."""
        from scipy.optimize import NonlinearConstraint, minimize

        bridge = _Problem(problem, monitor)
        options: dict[str, Any] = {"maxiter": 10 * problem.max_hvps}
        if self.method == "SLSQP":
            constraints: Any = {
                "type": "eq" if problem.level_set else "ineq",
                "fun": lambda x: problem.level - bridge.at(x).value,
                "jac": lambda x: -bridge.gradient(x),
            }
            options["ftol"] = self.tol
        else:
            lowest = problem.level if problem.level_set else -math.inf
            constraints = NonlinearConstraint(
                lambda x: bridge.at(x).value,
                lowest,
                problem.level,
                jac=lambda x: bridge.gradient(x)[None],
            )
            options |= {"gtol": self.tol, "xtol": self.tol}
        status = TeleportStatus.STALLED
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a quasi-Newton update that is skipped is no news to the user
            try:
                minimize(
                    bridge.merit,
                    problem.start.x.double().cpu().numpy(),
                    jac=bridge.merit_gradient,
                    method=self.method,
                    constraints=constraints,
                    options=options,
                )
            except _Halt as halt:
                status = halt.args[0]
        monitor.offer(retract(problem, bridge.newest))
        if status is TeleportStatus.STALLED and bridge.converged:
            # SciPy does not know of the radius: points beyond it are discarded.
            inside = problem.within_radius(bridge.newest)
            status = TeleportStatus.CONVERGED if inside else TeleportStatus.TRUST_RADIUS
        return Outcome(monitor.best, status)


class _Problem:
    """½ log ‖∇f‖² to be maximized, as SciPy asks for it: function by function, often at the same x."""

    def __init__(self, problem: TeleportProblem, monitor: Monitor) -> None:
        self.problem = problem
        self.monitor = monitor
        self.newest = problem.start
        self.converged = False
        self._last: tuple[bytes, Point] = (b"", problem.start)

    def at(self, x: Vector) -> Point:
        """The point at x; the last one is kept, so that SciPy's calls share one evaluation."""
        key = x.tobytes()
        if key != self._last[0]:
            if (stop := self.monitor.should_stop(hvps_needed=2)) is not None:
                raise _Halt(stop)
            start = self.problem.start.x
            vector = torch.tensor(x, dtype=start.dtype, device=start.device)
            self._last = (key, self.problem.objective.at(vector, curvature=True))
            point = self._last[1]
            if point.finite:
                self.monitor.offer(point)
        return self._last[1]

    def gradient(self, x: Vector) -> Vector:
        """∇f."""
        return _as_numpy(self.at(x).gradient)

    def merit(self, x: Vector) -> float:
        """-½ log ‖∇f‖², to be minimized."""
        size = self.at(x).gradient_norm
        return -math.log(size) if size > 0.0 and math.isfinite(size) else math.inf

    def merit_gradient(self, x: Vector) -> Vector:
        """-∇²f n/‖∇f‖ with the unit normal n; SciPy asks for it at accepted points only, so these are the iterates."""
        point = self.at(x)
        certificate = Certificate.at(point)
        step = float(torch.linalg.vector_norm(point.x - self.newest.x))
        self.newest = point
        self.converged = certificate.misalignment <= self.problem.tol
        self.monitor.record(point, certificate, step)
        if self.problem.meets_target(point, certificate):
            raise _Halt(TeleportStatus.TARGET_REACHED)
        if (stop := self.monitor.should_stop(hvps_needed=2)) is not None:
            raise _Halt(stop)
        return _as_numpy(point.hessian_normal) / -point.gradient_norm


def _as_numpy(v: torch.Tensor) -> Vector:
    vector: Vector = v.double().cpu().numpy()
    return vector


ALL_SOLVERS: dict[str, Callable[[], Solver]] = {
    **SOLVERS,
    "slsqp": lambda: ScipySolver("SLSQP"),
    "trust-constr": lambda: ScipySolver("trust-constr"),
}
"""The solvers of :func:`levelport.teleport` and SciPy's, by name."""


def any_solver(name: str) -> Solver:
    """The solver called ``name``, SciPy's included, or an error with a suggestion."""
    if name not in ALL_SOLVERS:
        raise unknown_name("solver", name, ALL_SOLVERS)
    return ALL_SOLVERS[name]()
