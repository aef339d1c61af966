"""Rescaling of hidden units: the largest gradient in a box, from one gradient.

With D as in :mod:`levelport.symmetries.scales`, ‖∇f‖² after the move is Σ_k g_k² r_m(k)²/r_p(k)². In s = log r this is
a sum of exponentials of linear functions, hence convex and without a maximum: a box 1/c ≤ r_i ≤ c bounds it, and the
maximum is attained at a vertex. For one unit, the others held fixed, it is A/r² + B r² with the sums A of g² over what
leads into it and B over what comes out, so that r = c where B > A and 1/c otherwise. Units of one layer do not see
each other: with one hidden layer this is the global maximum. With several, layers are swept until nothing changes, from
the first to the last and the other way round, which raises the norm in every sweep and ends at a vertex that no
change of one layer improves.

With c a power of two all of it is exact: f is the same to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from levelport import checks
from levelport.solvers.contract import Monitor, TeleportProblem
from levelport.symmetries.chain import Chain, chain_of
from levelport.symmetries.decrease import ascend_decrease
from levelport.symmetries.move import SymmetrySolver
from levelport.symmetries.scales import ScaleGroup


@dataclass(frozen=True, eq=False)
class Rescaling(SymmetrySolver):
    """Scales hidden units by at most ``box`` and at least 1/``box``. Exact on all inputs.

    Args:
        module: a chain of Linear and Conv layers with positively homogeneous activations.
        box: c > 1. A power of two changes f in no bit.
        goal: "gradient" takes the vertex with the largest gradient: one gradient, no further pass. "decrease" ascends
            ‖g‖⁴/(2 gᵀHg), one Hessian-vector product per trial; the gradient may shrink.
        layers: names of the layers, where tracing does not find them, see :func:`chain_of`.

    Example:
        >>> from levelport import ModuleObjective, teleport
        >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
        >>> f = ModuleObjective(model, nn.functional.mse_loss, torch.ones(5, 3), torch.zeros(5, 1))
        >>> result = teleport(f, f.initial_point(), Rescaling(model))
        >>> result.value == result.value_start, result.gain >= 1.0
        (True, True)
    """

    module: nn.Module = field(repr=False)
    box: float = 2.0
    goal: Literal["gradient", "decrease"] = "gradient"
    layers: Sequence[str] | None = None
    chain: Chain = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.number("box", self.box, above=1.0, why="units are scaled by at most this, and without a bound by any")
        if math.isinf(self.box):
            raise ValueError("box must be finite: the gradient grows without bound as units are scaled.")
        checks.one_of("goal", self.goal, ("gradient", "decrease"))
        object.__setattr__(self, "chain", chain_of(self.module, self.layers))

    @property
    def seeks_gradient(self) -> bool:
        return self.goal == "gradient"

    def propose(self, problem: TeleportProblem, monitor: Monitor | None = None) -> Tensor:
        group = ScaleGroup.of(self.chain, problem.objective, type(self).__name__)
        start = problem.start
        if self.goal == "gradient":
            scales = largest_gradient(group, start.gradient, self.box)
        else:
            edge = math.log(self.box)

            def pull(s: Tensor) -> Tensor:
                return start.gradient / group.stretch(s.exp()).square()

            logarithms = ascend_decrease(
                start,
                pull,
                lambda s: s.clamp(-edge, edge),
                torch.zeros_like(group.ones(start.x)),
                reach=edge,
                products=(problem.max_hvps if monitor is None else monitor.hvps_left) - 1,
            )
            scales = logarithms.exp()
        return group.move(start.x, group.within(start.x, scales, problem.radius))


def largest_gradient(group: ScaleGroup, gradient: Tensor, box: float) -> Tensor:
    """Scales of a vertex of the box; the better of two orders of sweeping."""
    squares = gradient.double().square()
    orders = (group.blocks, group.blocks[::-1]) if len(group.blocks) > 1 else (group.blocks,)
    found = [_sweep(group, squares, box, order) for order in orders]
    return max(found, key=lambda pair: pair[0])[1].to(gradient.dtype)


def _sweep(group: ScaleGroup, squares: Tensor, box: float, order: Iterable[slice]) -> tuple[float, Tensor]:
    scales, blocks = group.ones(squares), list(order)
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
