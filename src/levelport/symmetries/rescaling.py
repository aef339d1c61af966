"""Rescaling of hidden units, for the largest gradient in a box or for the smallest weights.

*Largest gradient.* With D as in :mod:`levelport.symmetries.scales`, ‖∇f‖² after the move is Σ_k g_k² r_m(k)²/r_p(k)².
In s = log r this is a sum of exponentials of linear functions, hence convex and without a maximum: a box 1/c ≤ r_i ≤
c bounds it, and the maximum is attained at a vertex. For one unit, the others held fixed, it is A/r² + B r² with the
sums A of g² over what leads into it and B over what comes out, so that r = c where B > A and 1/c otherwise. Units of
one layer do not see each other: with one hidden layer this is the global maximum. With several, layers are swept
until nothing changes, from the first to the last and the other way round, which raises the norm in every sweep and
ends at a vertex that no change of one layer improves. With c a power of two all of it is exact: f is the same to the
bit.

*Smallest weights.* In s = log r the sum Σ_k w_k² r_p(k)²/r_m(k)² is convex; for one unit it is A r² + B/r² with the
sums A of w² over what leads into it and B over what comes out, least at r = (B/A)^¼. Layers are swept in turn, which
converges to the one minimum. At it every unit has as much weight coming in as going out: A = B. Gradient descent with
small steps keeps A - B as it is, so a balanced start stays balanced.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from levelport import checks
from levelport.objective import Point
from levelport.solvers.contract import Monitor, Outcome, Solver
from levelport.solvers.problem import Certificate, TeleportProblem
from levelport.solvers.result import TeleportStatus
from levelport.symmetries.chain import Chain, chain_of
from levelport.symmetries.scales import ScaleGroup
from levelport.vectors import all_finite

_ROUNDING = {torch.float64: 1e-13, torch.float32: 1e-6}


@dataclass(frozen=True, eq=False)
class SymmetrySolver(Solver):
    """Scales hidden units, which leaves the network's function unchanged on all inputs. Subclasses say by how much.

    f, the gradient and the radius are checked where a move ends; one that breaks them is replaced by the start.

    Args:
        module: a chain of Linear and Conv layers with positively homogeneous activations.
        box: no unit is scaled by more than this or by less than its inverse.
        layers: names of the layers, where tracing does not find them, see :func:`chain_of`.
    """

    module: nn.Module = field(repr=False)
    box: float = 2.0
    layers: Sequence[str] | None = None
    chain: Chain = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.number("box", self.box, above=1.0, why="units are scaled by at most this")
        if math.isinf(self.box):
            raise ValueError("box must be finite: without a bound units would be scaled without end.")
        object.__setattr__(self, "chain", chain_of(self.module, self.layers))

    def slack(self, level: float, dtype: torch.dtype) -> float:
        """Bound the rounding error of f: 1e-13 of it in float64, 1e-6 in float32.

        Where f is small beside what it is computed from, as near an exact fit, it does more, and moves are refused.
        """
        relative = _ROUNDING.get(dtype, 16.0 * torch.finfo(dtype).eps)
        return relative * max(abs(level), torch.finfo(dtype).tiny)

    @abstractmethod
    def scales(self, group: ScaleGroup, start: Point) -> Tensor:
        """A factor per hidden unit."""

    def propose(self, problem: TeleportProblem) -> Tensor:
        """Return the point to move to, within the radius."""
        group, x = ScaleGroup.of(self.chain, problem.objective, type(self).__name__), problem.start.x
        return group.move(x, group.within(x, self.scales(group, problem.start), problem.radius))

    def solve(self, problem: TeleportProblem, monitor: Monitor) -> Outcome:
        """Propose, evaluate, check."""
        start = problem.start
        monitor.record(start, Certificate.at(start), 0.0)
        if (stop := monitor.should_stop(hvps_needed=1)) is not None:
            return Outcome(start, stop, "one product is needed for the certificate")
        x = self.propose(problem)
        if torch.equal(x, start.x):
            if problem.meets_target(start, Certificate.at(start)):
                return Outcome(start, TeleportStatus.TARGET_REACHED)
            return Outcome(start, TeleportStatus.STALLED, "no scales were found to be better")
        point = problem.objective.at(x, curvature=True)
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
        if not self.keeps_guarantee:  # the move was made for another goal than the gradient
            return Outcome(point, TeleportStatus.MOVED)
        if problem.meets_target(point, certificate):
            return Outcome(point, TeleportStatus.TARGET_REACHED)
        return Outcome(point, TeleportStatus.TRUST_RADIUS, "the largest gradient found within the bounds of the move")


@dataclass(frozen=True, eq=False)
class Rescaling(SymmetrySolver):
    """Scales hidden units so that the gradient is largest: one gradient, no further pass.

    Args:
        module, layers: see :class:`SymmetrySolver`.
        box: units are scaled by this or by its inverse. A power of two changes f in no bit.

    Example:
        >>> from levelport import ModuleObjective, teleport
        >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
        >>> f = ModuleObjective(model, nn.functional.mse_loss, torch.ones(5, 3), torch.zeros(5, 1))
        >>> result = teleport(f, f.initial_point(), Rescaling(model))
        >>> result.value == result.value_start, result.gain >= 1.0
        (True, True)
    """

    def scales(self, group: ScaleGroup, start: Point) -> Tensor:
        """Those of a vertex of the box; the better of two orders of sweeping."""
        squares = start.gradient.double().square()
        orders = (group.blocks, group.blocks[::-1]) if len(group.blocks) > 1 else (group.blocks,)
        found = [_sweep(group, squares, self.box, order) for order in orders]
        return max(found, key=lambda pair: pair[0])[1].to(start.gradient.dtype)


@dataclass(frozen=True, eq=False)
class Balance(SymmetrySolver):
    """Scales hidden units so that ‖w‖ is least. Needs no gradient, and may shrink it.

    Args:
        module, layers: see :class:`SymmetrySolver`.
        box: units with next to no weight on one side are scaled by no more than this.
    """

    box: float = 1e3

    @property
    def keeps_guarantee(self) -> bool:
        """False: a smaller gradient is accepted. f is kept all the same."""
        return False

    def scales(self, group: ScaleGroup, start: Point) -> Tensor:
        """Those of the minimum in the box; units without weight on one side stay as they are."""
        squares = start.x.double().square()
        scales = squares.new_ones(group.units)
        for _ in range(100):
            before = scales.clone()
            for block in group.blocks:
                into, out_of = group.sums(squares * group.stretch(scales).square())
                own = scales[block]
                ratio = (out_of[block] / into[block]) ** 0.25 * own
                alive = (into[block] > 0.0) & (out_of[block] > 0.0)
                scales[block] = torch.where(alive, ratio.clamp(1.0 / self.box, self.box), own)
            if float((scales / before).log().abs().max()) < 1e-14:
                break
        return scales.to(start.x.dtype)


def _sweep(group: ScaleGroup, squares: Tensor, box: float, order: Iterable[slice]) -> tuple[float, Tensor]:
    """‖∇f‖² at a vertex that no change of one layer improves, and its scales."""
    scales, blocks = squares.new_ones(group.units), list(order)
    for _ in range(20):  # each sweep raises the norm, and there are finitely many vertices
        before = scales.clone()
        for block in blocks:
            into, out_of = group.sums(squares / group.stretch(scales).square())
            own = scales[block].square()
            grows, matters = out_of[block] / own > into[block] * own, out_of[block] + into[block] > 0.0
            vertex = torch.where(grows, box, 1.0 / box).to(scales.dtype)
            scales[block] = torch.where(matters, vertex, 1.0)
        if torch.equal(scales, before):
            break
    return float((squares / group.stretch(scales).square()).sum()), scales
