"""The published solver for all members of a grid at once.

The members of a grid differ in their point alone, so an update of :class:`levelport.solvers.SQP` is made for all of
them in one go: one product with the data, and one line of Python, where there were ten. Whatever the solver compares is
a vector with an entry per member. A member that has accepted its trial waits until the others have found theirs; one
that is done leaves.

The equations are those of :mod:`levelport.solvers.sqp`, in the case that the paper's experiments need: the sub-level
set, no trust radius, the last iterate returned.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from levelport.solvers import SQP
from levelport.solvers.sqp import GROWTH_RATIO, RECOVERY
from levelport_lab.paper.batched import BatchedProblem
from levelport_lab.paper.member_points import MemberPoints, Numbers, Rows, column, row_norms


@dataclass(frozen=True)
class TogetherResult:
    """The ends of the members, and what each has spent."""

    W: Tensor
    gradients: Numbers
    hvps: Numbers


def teleport_together(problem: BatchedProblem, W: Tensor, regs: Tensor, solver: SQP) -> TogetherResult:
    """Teleport every row of ``W``, with a penalty each; one whose gradient vanishes or is no number stays."""
    if solver.final != "last":
        raise ValueError("members are teleported together by an SQP with final='last' only.")
    with np.errstate(all="ignore"):  # numbers that leave the range fail their comparisons, as they should
        done = [
            _Together(problem, W[group], regs[group], solver).solve() for group in problem.groups(torch.arange(len(W)))
        ]
    spent = (np.concatenate([getattr(some, name) for some in done]) for name in ("gradients", "hvps"))
    return TogetherResult(torch.cat([some.W for some in done]), *spent)


class _Together:
    """An entry, or a row, per member that is still on its way; ``ids`` are their rows in the result."""

    def __init__(self, problem: BatchedProblem, W: Tensor, regs: Tensor, solver: SQP) -> None:
        self.problem, self.solver = problem, solver
        self.W = W
        self.gradients, self.hvps = np.ones(len(W)), np.zeros(len(W))
        self.ids = np.arange(len(W))
        self.points = problem.points(W, regs)
        self.levels = self.points.values
        self.rho = np.full(len(W), solver.rho)

    def solve(self) -> TogetherResult:
        self._leave(~self.points.usable)
        for iteration in range(self.solver.max_iterations):
            if not len(self.ids):
                break
            points = self.points
            normals = points.gradients / column(points.sizes, self.W)
            images = points.hvps(normals)
            self.hvps[self.ids] += 1
            slopes = _row_dots(normals, images)  # ⟨g, q⟩/‖g‖²
            residuals = row_norms(images - column(slopes, self.W) * normals) / points.sizes
            done = (residuals * residuals <= self.solver.epsilon) & (points.values - self.levels <= self.solver.delta)
            if iteration == 0:
                done |= ~np.isfinite(residuals)
            if done.any():
                going = np.flatnonzero(~done)
                normals, images, slopes = normals[going], images[going], slopes[going]
                self._leave(done)
            if len(self.ids):
                if self.solver.search == "restart":
                    self.rho[:] = self.solver.rho
                ascents = images / column(self.points.sizes, self.W)
                self._leave(_Search(self, normals, ascents, slopes).run())
        self._leave(np.ones(len(self.ids), dtype=bool))
        return TogetherResult(self.W, self.gradients, self.hvps)

    def _leave(self, who: NDArray[np.bool_]) -> None:
        """Members that are done take their place in the result."""
        if not who.any():
            return
        self.W[self.ids[who]] = self.points.W[np.flatnonzero(who)]
        staying = np.flatnonzero(~who)
        self.ids, self.levels, self.rho = self.ids[staying], self.levels[staying], self.rho[staying]
        if len(staying):
            self.points = self.points.take(staying)


class _Search:
    """One backtracking search on ρ per member: the point where it ends, and the ρ to begin the next one with."""

    def __init__(self, grid: _Together, normals: Tensor, ascents: Tensor, slopes: Numbers) -> None:
        self.grid, self.solver = grid, grid.solver
        self.before = grid.points
        self.places = [(grid.points, row) for row in range(len(slopes))]
        self.normals, self.ascents, self.slopes = normals, ascents, slopes
        self.steepness = _row_dots(ascents, ascents)
        self.excess = grid.points.values - grid.levels
        self.released = grid.solver.mode == "released"

    def run(self) -> NDArray[np.bool_]:
        """Move the members, and say which of them have to stop there."""
        grid, solver = self.grid, self.solver
        rho = grid.rho
        pending, failed = np.arange(len(rho)), np.arange(0)
        for _ in range(solver.max_backtracks):
            trials = self._trials(pending, rho[pending])
            accepted, grows = self._verdicts(pending, trials, rho[pending])
            self._arrive(pending, trials, accepted)
            rho[pending[grows]] /= solver.shrink
            rho[pending[~accepted]] *= solver.shrink
            hopeless = ~accepted & (rho[pending] <= solver.smallest_rho) & (not self.released)
            failed, last = np.concatenate([failed, pending[hopeless]]), (pending, trials, ~accepted & trials.usable)
            pending = pending[~accepted & ~hopeless]
            if not len(pending):
                break
        failed, stops = np.concatenate([failed, pending]), np.zeros(len(rho), dtype=bool)
        if len(failed):
            if not self.released:
                trials = self._trials(failed, np.full(len(failed), solver.smallest_rho))
                rho[failed] = np.maximum(rho[failed], solver.smallest_rho * solver.shrink**RECOVERY)
                last = failed, trials, trials.usable
            self._arrive(*last)
            stops[failed] = True
            stops[last[0][last[2]]] = False
            rho[failed] = solver.rho if solver.first_rho_after_failure else rho[failed] / solver.shrink**RECOVERY
        if self.released:
            stops |= rho <= solver.smallest_rho
        grid.points = self.before.assembled(self.places)
        return stops

    def _trials(self, members: Rows, rho: Numbers) -> MemberPoints:
        """x + ρ q/‖g‖² - c₊ g/‖g‖."""
        grid = self.grid
        grid.gradients[grid.ids[members]] += 1
        c = np.maximum(0.0, self._multipliers(members, rho))
        x = self.before.W[members]
        W = torch.addcmul(x, column(rho, x), self.ascents[members])
        W.addcmul_(column(c, x), self.normals[members], value=-1.0)
        return grid.problem.points(W, self.before.regs[members])

    def _multipliers(self, members: Rows, rho: Numbers) -> Numbers:
        """c."""
        return (rho * self.slopes[members] + self.excess[members]) / self.before.sizes[members]

    def _strengths(self, members: Rows, rho: Numbers) -> Numbers:
        """γ; ⟨q, g⟩/‖g‖³ = slope/‖g‖."""
        c, size, violation = self._multipliers(members, rho), self.before.sizes[members], self.excess[members]
        if not self.released:
            c = np.maximum(0.0, c)
        gamma = self.solver.gamma_scale * (self.slopes[members] / size) * c / violation
        return np.where(violation > 0.0, gamma / size / size if self.released else gamma, self.solver.gamma_scale)

    def _verdicts(
        self, members: Rows, trials: MemberPoints, rho: Numbers
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Whose merit has grown enough, and whose ρ may grow."""
        gamma = self._strengths(members, rho)
        # Along its step, ρ q/‖g‖² - c₊ g/‖g‖, log ‖g‖ is expected to grow by the product of the step with q/‖g‖².
        c = np.maximum(0.0, self._multipliers(members, rho))
        growth = rho * self.steepness[members] - c * self.slopes[members] / self.before.sizes[members]
        left = np.log(trials.sizes) - gamma * np.maximum(0.0, trials.values - self.grid.levels[members])
        right = np.log(self.before.sizes[members]) - 0.5 * gamma * np.maximum(0.0, self.excess[members])
        right += (0.25 if self.released else 0.5) * growth
        accepted = trials.usable & (left >= right)
        grows = accepted & (right != 0.0) & (left / right >= GROWTH_RATIO) & self.released
        return accepted, grows

    def _arrive(self, members: Rows, trials: MemberPoints, which: NDArray[np.bool_]) -> None:
        """Those of ``members`` that ``which`` marks are at their trials now."""
        for row in np.flatnonzero(which):
            self.places[members[row]] = (trials, int(row))


def _row_dots(A: Tensor, B: Tensor) -> Numbers:
    return torch.linalg.vecdot(A, B).double().numpy()
