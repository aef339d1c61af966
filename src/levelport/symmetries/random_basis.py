"""A random change of basis: hidden units scaled at random, as a control and as it was proposed for initialisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor, nn

from levelport import checks
from levelport.solvers.contract import Monitor, TeleportProblem
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
    _drawn: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        checks.number("spread", self.spread, above=0.0, below=1.0, why="scales must stay positive")
        checks.whole("seed", self.seed)
        object.__setattr__(self, "chain", chain_of(self.module, self.layers))

    def begin(self) -> Self:
        """The same draws from the beginning."""
        return replace(self)

    def state_dict(self) -> dict[str, float]:
        """How many bases were drawn."""
        return {"drawn": float(self._drawn)}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Go on with the next."""
        object.__setattr__(self, "_drawn", int(state["drawn"]))

    @property
    def seeks_gradient(self) -> bool:
        return False

    def propose(self, problem: TeleportProblem, monitor: Monitor | None = None) -> Tensor:
        group = ScaleGroup.of(self.chain, problem.objective, type(self).__name__)
        x = problem.start.x
        generator = torch.Generator().manual_seed(1_000_003 * self.seed + self._drawn)
        object.__setattr__(self, "_drawn", self._drawn + 1)
        uniform = torch.rand(group.units, generator=generator, dtype=torch.float64)
        scales = (1.0 + self.spread * (2.0 * uniform - 1.0)).to(x.device, x.dtype)
        return group.move(x, group.within(x, scales, problem.radius))
