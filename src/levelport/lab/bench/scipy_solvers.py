"""General-purpose solvers of SciPy on the teleportation problem, behind the same front door and the same ledger.

They get what our own solvers get: the objective ½ log ‖∇f(x)‖² with its gradient ∇²f ∇f/‖∇f‖² (one HVP), and the
constraint f(x) ≤ f(w) with its gradient. What they return lies near the level, on either side; like the published
solver's, their last point is put back onto it, for a few gradients that are counted.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from levelport.objective import Point
from levelport.problems.names import unknown_name
from levelport.solvers import SOLVERS, Certificate, Outcome, Progress, Status, Task, Teleporter
from levelport.solvers.retraction import retract

Vector = NDArray[np.float64]


class _Halt(Exception):
    """Leaves SciPy's loop when the budget is spent."""


@dataclass(frozen=True)
class ScipySolver:
    """``scipy.optimize.minimize`` as a solver of the teleportation problem.

    Args:
        method: "SLSQP" or "trust-constr". Both keep dense d×d matrices, so they serve a few hundred variables,
            or a few thousand.
        tol: SciPy's own tolerance.
    """

    method: Literal["SLSQP", "trust-constr"] = "SLSQP"
    tol: float = 1e-9

    def solve(self, task: Task, progress: Progress) -> Outcome:
        """Run SciPy until it is content or the budget is spent."""
        from scipy.optimize import NonlinearConstraint, minimize

        problem = _Problem(task, progress)
        options: dict[str, Any] = {"maxiter": 10 * task.max_hvps}
        if self.method == "SLSQP":
            constraints: Any = {
                "type": "eq" if task.level_set else "ineq",
                "fun": lambda x: task.level - problem.at(x).value,
                "jac": lambda x: -problem.gradient(x),
            }
            options["ftol"] = self.tol
        else:
            lowest = task.level if task.level_set else -math.inf
            constraints = NonlinearConstraint(
                lambda x: problem.at(x).value, lowest, task.level, jac=lambda x: problem.gradient(x)[None]
            )
            options |= {"gtol": self.tol, "xtol": self.tol}
        status = Status.STALLED
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a quasi-Newton update that is skipped is no news to the user
            try:
                minimize(
                    problem.merit,
                    task.start.x.double().cpu().numpy(),
                    jac=problem.merit_gradient,
                    method=self.method,
                    constraints=constraints,
                    options=options,
                )
            except _Halt as halt:
                status = halt.args[0]
        progress.offer(retract(task, problem.newest))
        if status is Status.STALLED and problem.converged:
            status = Status.CONVERGED
        return Outcome(progress.best, status)


class _Problem:
    """½ log ‖∇f‖² to be maximised, as SciPy asks for it: function by function, often at the same x."""

    def __init__(self, task: Task, progress: Progress) -> None:
        self.task = task
        self.progress = progress
        self.newest = task.start
        self.converged = False
        self._last: tuple[bytes, Point] = (b"", task.start)

    def at(self, x: Vector) -> Point:
        """The point at x; the last one is kept, so that SciPy's calls share one evaluation."""
        key = x.tobytes()
        if key != self._last[0]:
            if (stop := self.progress.should_stop(hvps_needed=2)) is not None:
                raise _Halt(stop)
            start = self.task.start.x
            vector = torch.tensor(x, dtype=start.dtype, device=start.device)
            self._last = (key, self.task.objective.at(vector, curvature=True))
            point = self._last[1]
            if point.finite:
                self.progress.offer(point)
        return self._last[1]

    def gradient(self, x: Vector) -> Vector:
        """∇f."""
        return _as_numpy(self.at(x).gradient)

    def merit(self, x: Vector) -> float:
        """-½ log ‖∇f‖², to be minimised."""
        size = self.at(x).gradient_norm
        return -math.log(size) if size > 0.0 and math.isfinite(size) else math.inf

    def merit_gradient(self, x: Vector) -> Vector:
        """-∇²f n/‖∇f‖ with the unit normal n; SciPy asks for it at accepted points only, so these are the iterates."""
        point = self.at(x)
        certificate = Certificate.at(point)
        step = float(torch.linalg.vector_norm(point.x - self.newest.x))
        self.newest = point
        self.converged = certificate.misalignment <= self.task.tol
        self.progress.record(point, certificate, step)
        if self.task.meets_target(point, certificate):
            raise _Halt(Status.TARGET_REACHED)
        if (stop := self.progress.should_stop(hvps_needed=2)) is not None:
            raise _Halt(stop)
        return _as_numpy(point.hessian_normal) / -point.gradient_norm


def _as_numpy(v: torch.Tensor) -> Vector:
    vector: Vector = v.double().cpu().numpy()
    return vector


ALL_SOLVERS: dict[str, Callable[[], Teleporter]] = {
    **SOLVERS,
    "slsqp": lambda: ScipySolver("SLSQP"),
    "trust-constr": lambda: ScipySolver("trust-constr"),
}
"""The solvers of :func:`levelport.teleport` and SciPy's, by name."""


def any_solver(name: str) -> Teleporter:
    """The solver called ``name``, SciPy's included, or an error with a suggestion."""
    if name not in ALL_SOLVERS:
        raise unknown_name("solver", name, ALL_SOLVERS, see=f"Choose from: {', '.join(ALL_SOLVERS)}.")
    return ALL_SOLVERS[name]()
