"""Balance: the smallest ‖w‖ among all rescalings of the hidden units.

In s = log r the sum Σ_k w_k² r_p(k)²/r_m(k)² is convex; for one unit it is A r² + B/r² with the sums A of w² over what
leads into it and B over what comes out, least at r = (B/A)^¼. Layers are swept in turn, which converges to the one
minimum. At it every unit has as much weight coming in as going out: A = B. Gradient descent with small steps keeps
A - B as it is, so a balanced start stays balanced.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from levelport import checks
from levelport.solvers.contract import Monitor, TeleportProblem
from levelport.symmetries.chain import Chain, chain_of
from levelport.symmetries.move import SymmetrySolver
from levelport.symmetries.scales import ScaleGroup


@dataclass(frozen=True, eq=False)
class Balance(SymmetrySolver):
    """Scales hidden units so that ‖w‖ is least. Exact on all inputs; needs no gradient, and may shrink it.

    Args:
        module: a chain of Linear and Conv layers with positively homogeneous activations.
        box: no unit is scaled by more than this or by less than its inverse.
        layers: names of the layers, where tracing does not find them, see :func:`chain_of`.
    """

    module: nn.Module = field(repr=False)
    box: float = 1e3
    layers: Sequence[str] | None = None
    chain: Chain = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.number("box", self.box, above=1.0, why="units are scaled by at most this")
        if math.isinf(self.box):
            raise ValueError(
                "box must be finite: units with next to no weight on one side would be scaled without end."
            )
        object.__setattr__(self, "chain", chain_of(self.module, self.layers))

    @property
    def seeks_gradient(self) -> bool:
        return False

    def propose(self, problem: TeleportProblem, monitor: Monitor | None = None) -> Tensor:
        group = ScaleGroup.of(self.chain, problem.objective, type(self).__name__)
        x = problem.start.x
        scales = smallest_weights(group, x, self.box)
        return group.move(x, group.within(x, scales, problem.radius))


def smallest_weights(group: ScaleGroup, x: Tensor, box: float, *, sweeps: int = 100) -> Tensor:
    """Scales of the minimum in the box; units without weight on one side stay as they are."""
    squares = x.double().square()
    scales = group.ones(squares)
    for _ in range(sweeps):
        before = scales.clone()
        for block in group.blocks:
            into, out_of = group.sums(squares * group.stretch(scales).square())
            own = scales[block]
            ratio = (out_of[block] / into[block]) ** 0.25 * own
            alive = (into[block] > 0.0) & (out_of[block] > 0.0)
            scales[block] = torch.where(alive, ratio.clamp(1.0 / box, box), own)
        if float((scales / before).log().abs().max()) < 1e-14:
            break
    return scales.to(x.dtype)
