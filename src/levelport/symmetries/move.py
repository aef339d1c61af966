"""A move along a symmetry as a solver: it proposes a point, and what it promised is checked there.

Whether the answer is held to the guarantee of :func:`levelport.teleport` (f not raised, gradient not shrunk) depends on
the goal. Moves for a larger gradient are held to it. Those with another goal (balance, a random basis, the predicted
decrease) may shrink the gradient: they declare ``keeps_guarantee = False``. What every move keeps is f and the radius;
a point that breaks either is replaced by the start here, whatever was declared.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

import torch
from torch import Tensor

from levelport.objective import Point
from levelport.solvers.certificate import Certificate
from levelport.solvers.contract import Monitor, Outcome, Solver, TeleportProblem
from levelport.solvers.result import TeleportStatus
from levelport.vectors import all_finite

Exactness = Literal["all inputs", "these inputs", "approximately"]

_ROUNDING = {torch.float64: 1e-13, torch.float32: 1e-6}


class SymmetrySolver(Solver):
    """Moves along a symmetry. Subclasses say where to."""

    @property
    def exact_on(self) -> Exactness:
        """On what the network computes the same after the move, but for rounding: all inputs, or those of the loss."""
        return "all inputs"

    @property
    def seeks_gradient(self) -> bool:
        """Whether the move is made for a larger gradient; the guarantee follows from it."""
        return True

    @property
    def keeps_guarantee(self) -> bool:
        """Whether a smaller gradient is refused; f is kept in any case."""
        return self.seeks_gradient

    def slack(self, level: float, dtype: torch.dtype) -> float:
        """What rounding may do to f: 1e-13 of it in float64, 1e-6 in float32.

        Where f is small beside what it is computed from, as near an exact fit, it does more, and moves are refused.
        """
        relative = _ROUNDING.get(dtype, 16.0 * torch.finfo(dtype).eps)
        return relative * max(abs(level), torch.finfo(dtype).tiny)

    @abstractmethod
    def propose(self, problem: TeleportProblem, monitor: Monitor | None = None) -> Tensor:
        """Where to move. Asks for nothing but the start's gradient unless the class says so."""

    def solve(self, problem: TeleportProblem, monitor: Monitor) -> Outcome:
        """Propose, evaluate, check."""
        start = problem.start
        monitor.record(start, Certificate.at(start), 0.0)
        if (stop := monitor.should_stop(hvps_needed=1)) is not None:
            return Outcome(start, stop, "one product is needed for the certificate")
        x = self.propose(problem, monitor)
        if torch.equal(x, start.x):
            if problem.meets_target(start, Certificate.at(start)):
                return Outcome(start, TeleportStatus.TARGET_REACHED)
            # One more for the certificate: none was left to look around with.
            if (stop := monitor.should_stop(hvps_needed=2)) is not None:
                return Outcome(start, stop)
            return Outcome(start, TeleportStatus.STALLED, "no move of this family was found to be better")
        return self.judge(problem, monitor, problem.objective.at(x, curvature=True))

    def judge(self, problem: TeleportProblem, monitor: Monitor, point: Point) -> Outcome:
        """The point if it keeps f and the radius, the start otherwise."""
        start = problem.start
        broken = ""
        if not (point.finite and all_finite(point.x)):
            broken = "the value or the gradient there is not finite"
        elif not problem.feasible(point.value):
            broken = f"it would change f = {start.value:.6g} by {point.value - start.value:.2g}"
        elif not problem.within_radius(point):
            broken = "it would leave the trust radius"
        if broken:
            return Outcome(start, TeleportStatus.NO_FEASIBLE_GAIN, f"the move was not made: {broken}")
        certificate = Certificate.at(point)
        monitor.offer(point)
        monitor.record(point, certificate, float((point.x - start.x).norm()))
        if not self.seeks_gradient:
            return Outcome(point, TeleportStatus.MOVED)
        if problem.meets_target(point, certificate):
            return Outcome(point, TeleportStatus.TARGET_REACHED)
        return Outcome(point, TeleportStatus.TRUST_RADIUS, "the largest gradient found within the bounds of the move")
