"""A random change of basis: hidden units scaled at random, as a control and as it was proposed for initialisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from levelport import checks
from levelport.solvers.contract import Monitor, Outcome, TeleportProblem
from levelport.symmetries.chain import Chain, chain_of
from levelport.symmetries.move import SymmetrySolver
from levelport.symmetries.scales import ScaleGroup


@dataclass(frozen=True, eq=False)
class RandomBasis(SymmetrySolver):
    """Scales hidden units by independent numbers, uniform on [1 - spread, 1 + spread]. Exact on all inputs.

    Needs no gradient, and may shrink it. Every teleport of a run draws anew; a run starts again from ``seed``.

    Args:
        module: a chain of Linear and Conv layers with positively homogeneous activations.
        spread: in (0, 1).
        seed: of the random numbers.
        layers: names of the layers, where tracing does not find them, see :func:`chain_of`.
    """

    module: nn.Module = field(repr=False)
    spread: float = 0.9
    seed: int = 0
    layers: Sequence[str] | None = None
    chain: Chain = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.number("spread", self.spread, above=0.0, below=1.0, why="scales must stay positive")
        checks.whole("seed", self.seed)
        object.__setattr__(self, "chain", chain_of(self.module, self.layers))

    @property
    def seeks_gradient(self) -> bool:
        return False

    def solve(self, problem: TeleportProblem, monitor: Monitor) -> Outcome:
        """The next basis of the run; the state counts them."""
        drawn = problem.state.get("drawn", 0) + 1
        return replace(super().solve(problem, monitor), state={"drawn": drawn})

    def propose(self, problem: TeleportProblem, monitor: Monitor | None = None) -> Tensor:
        group = ScaleGroup.of(self.chain, problem.objective, type(self).__name__)
        x = problem.start.x
        generator = torch.Generator().manual_seed(1_000_003 * self.seed + int(problem.state.get("drawn", 0)))
        uniform = torch.rand(group.units, generator=generator, dtype=torch.float64)
        scales = (1.0 + self.spread * (2.0 * uniform - 1.0)).to(x.device, x.dtype)
        return group.move(x, group.within(x, scales, problem.radius))
