"""The group of positive rescalings of hidden units, on the flat vector of parameters.

With a scale r_i > 0 per hidden unit, the weight from unit j to unit i and the bias of i become

    W_ij → (r_i/r_j) W_ij,      b_i → r_i b_i,      that is  w → D w with D diagonal and D_k = r_p(k)/r_m(k),

where p(k) is the unit that parameter k leads into and m(k) the one it comes from; inputs and outputs have scale 1.
f is the same and ∇f becomes D⁻¹ ∇f, so that ‖∇f‖² after the move is Σ_k g_k²/D_k²: known without a further pass.
Scales are kept, not their logarithms: products and quotients of powers of two are exact to the bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn

from levelport.objective import Objective
from levelport.objectives.module import ModuleObjective
from levelport.objectives.parameters import ParametersObjective
from levelport.symmetries.chain import Chain


@dataclass(frozen=True)
class ScaleGroup:
    """Rescalings of the hidden units of a chain.

    Attributes:
        into, out_of: p(k) and m(k) for every parameter; ``units`` stands for scale 1.
        blocks: first and last unit (exclusive) of every hidden layer.
    """

    into: Tensor
    out_of: Tensor
    blocks: tuple[slice, ...]

    @classmethod
    def of(cls, chain: Chain, objective: Objective, solver: str) -> ScaleGroup:
        """Number the units, and say for every parameter where it leads."""
        widths = [chain.width(junction) for junction in range(len(chain.layers) - 1)]
        ends = list(accumulate(widths))
        blocks = tuple(slice(end - width, end) for end, width in zip(ends, widths, strict=True))
        into = torch.full((objective.dimension,), ends[-1], device=objective.device)
        out_of = into.clone()
        wanted = [
            (f"{n}.{k}", p)
            for n, layer in zip(chain.names, chain.layers, strict=True)
            for k, p in layer.named_parameters(recurse=False)
        ]
        where = _places(objective, wanted, solver)
        for junction, block in enumerate(blocks):
            before, after = chain.layers[junction], chain.layers[junction + 1]
            units = torch.arange(block.start, block.stop, device=objective.device)
            rows = units.view(-1, *[1] * (before.weight.ndim - 1)).expand(before.weight.shape)
            into[where[id(before.weight)]] = rows.reshape(-1)
            if before.bias is not None:
                into[where[id(before.bias)]] = units
            out_of[where[id(after.weight)]] = _columns(units, after).reshape(-1)
        return cls(into, out_of, blocks)

    @property
    def units(self) -> int:
        """Hidden units in all."""
        return self.blocks[-1].stop

    def stretch(self, scales: Tensor) -> Tensor:
        """D, as a vector."""
        extended = torch.cat([scales, scales.new_ones(1)])
        return extended[self.into] / extended[self.out_of]

    def move(self, x: Tensor, scales: Tensor) -> Tensor:
        """D x."""
        return x * self.stretch(scales)

    def sums(self, squares: Tensor) -> tuple[Tensor, Tensor]:
        """Per unit: Σ over the parameters that lead into it, and over those that come out of it."""
        zeros = squares.new_zeros(self.units + 1)
        return zeros.index_add(0, self.into, squares)[:-1], zeros.index_add(0, self.out_of, squares)[:-1]

    def within(self, x: Tensor, scales: Tensor, radius: float | None) -> Tensor:
        """The scales themselves, or r^α with the largest α < 1 for which ‖D x - x‖ ≤ 0.999 radius."""
        if radius is None or float((self.move(x, scales) - x).norm()) <= radius:
            return scales
        low, high = 0.0, 1.0
        for _ in range(40):
            middle = 0.5 * (low + high)
            short = float((self.move(x, scales**middle) - x).norm()) <= 0.999 * radius
            low, high = (middle, high) if short else (low, middle)
        return scales**low


def _columns(units: Tensor, after: nn.Module) -> Tensor:
    """For every weight of a layer the unit that it comes from."""
    if isinstance(after, nn.Linear):
        spread = units.repeat_interleave(after.in_features // len(units))  # a channel is flattened position by position
        return spread.expand(after.weight.shape)
    assert isinstance(after, nn.Conv1d | nn.Conv2d | nn.Conv3d)
    each = after.in_channels // after.groups
    taken = units.view(after.groups, 1, each).expand(-1, after.out_channels // after.groups, -1)
    return taken.reshape(after.out_channels, each, *[1] * (after.weight.ndim - 2)).expand(after.weight.shape)


def _places(objective: Objective, wanted: Iterable[tuple[str, Tensor]], solver: str) -> dict[int, slice]:
    """The slice of the flat vector that holds each of the named parameters, by the id of the parameter.

    Wrappers do not matter: entries are only multiplied, which is the same in the variables of a metric.
    """
    while objective.inner is not None:
        objective = objective.inner
    if not isinstance(objective, ModuleObjective | ParametersObjective):
        raise ValueError(
            f"{solver} moves the parameters of a module, and this objective ({type(objective).__name__}) has none. "
            "Use it with a ModuleObjective, a Teleporter or Teleported."
        )
    found, begin = {}, 0
    for parameter in objective.parameters:
        found[id(parameter)] = slice(begin, begin + parameter.numel())
        begin += parameter.numel()
    for name, sought in wanted:
        if id(sought) not in found:
            raise ValueError(
                f"the parameter {name!r} of {solver}'s module is none of those that the objective moves. Make the "
                "solver for the very module that is trained: ModuleObjective(model, …) and "
                f"{solver}(model), or the model whose parameters the optimizer has."
            )
    return found
