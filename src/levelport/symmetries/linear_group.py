"""The general linear group between two linear layers with nothing in between.

With an invertible G at the junction of W₁, b₁ and W₂,

    W₁ → G W₁,   b₁ → G b₁,   W₂ → W₂ G⁻¹

leaves f unchanged on all inputs; the gradients become G⁻ᵀ ∇₁ and ∇₂ Gᵀ. With P = GᵀG, A = ∇₁∇₁ᵀ (bias included) and
B = ∇₂ᵀ∇₂,

    ‖∇f‖² = tr(P⁻¹ A) + tr(P B) + what other layers have.

It is convex in P and grows without bound, so the singular values of G are held in [1/c, c]. A convex function takes its
maximum at an extreme point, P = c⁻² I + (c² - c⁻²) Π with a projector Π, whose inverse is c² I - (c² - c⁻²) Π: what is
left is to maximise tr(Π (B - A)), which the projector onto the eigenvectors of B - A with positive eigenvalues does.
One gradient, no further pass, and the global maximum where there is one junction; several are swept in turn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from levelport import checks
from levelport.objective import Objective
from levelport.solvers.contract import Monitor, TeleportProblem
from levelport.symmetries.binding import places
from levelport.symmetries.chain import Chain, UnsupportedModuleError, chain_of
from levelport.symmetries.decrease import ascend_decrease
from levelport.symmetries.move import SymmetrySolver


@dataclass(frozen=True)
class _Layout:
    """The layers of a chain as matrices [W, b] in the flat vector, and the junctions that may be transformed."""

    shapes: tuple[tuple[int, int], ...]
    weights: tuple[slice, ...]
    biases: tuple[slice | None, ...]
    junctions: tuple[int, ...]

    @classmethod
    def of(cls, chain: Chain, objective: Objective) -> _Layout:
        layers = chain.layers
        wanted = [
            (f"{name}.{kind}", parameter)
            for name, layer in zip(chain.names, layers, strict=True)
            for kind, parameter in layer.named_parameters(recurse=False)
        ]
        where = places(objective, wanted, "LinearGroup")
        return cls(
            tuple((layer.weight.shape[0], layer.weight[0].numel()) for layer in layers),
            tuple(where[id(layer.weight)] for layer in layers),
            tuple(None if layer.bias is None else where[id(layer.bias)] for layer in layers),
            linear_junctions(chain),
        )

    def matrix(self, flat: Tensor, layer: int) -> Tensor:
        """W of a layer."""
        return flat[self.weights[layer]].view(self.shapes[layer])

    def apply(self, flat: Tensor, left: dict[int, Tensor], right: dict[int, Tensor]) -> Tensor:
        """Per layer W → L W R and b → L b, where L belongs to the junction after it and R to the one before."""
        parts: list[tuple[slice, Tensor]] = []
        for layer in range(len(self.shapes)):
            matrix, bias = self.matrix(flat, layer), self.biases[layer]
            shift = None if bias is None else flat[bias]
            if layer in left:
                matrix = left[layer] @ matrix
                shift = None if shift is None else left[layer] @ shift
            if layer - 1 in right:
                matrix = matrix @ right[layer - 1]
            parts.append((self.weights[layer], matrix.reshape(-1)))
            if bias is not None and shift is not None:
                parts.append((bias, shift))
        moved = flat.clone()
        for place, part in parts:
            moved[place] = part
        return moved


@dataclass(frozen=True, eq=False)
class LinearGroup(SymmetrySolver):
    """Transforms what linear layers in a row pass on to each other. Exact on all inputs.

    Args:
        module: a chain, as for :class:`Rescaling`, with two Linear layers that have nothing between them; the other
            layers stay as they are.
        box: the singular values of every G stay in [1/box, box].
        goal: "gradient": the closed form above. "decrease": ascends ‖g‖⁴/(2 gᵀHg), one Hessian-vector product per
            trial; the gradient may shrink.
        layers: names of Linear layers in a row with nothing at all between them, where the module is no such chain.
    """

    module: nn.Module = field(repr=False)
    box: float = 2.0
    goal: Literal["gradient", "decrease"] = "gradient"
    layers: Sequence[str] | None = None
    chain: Chain = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.number("box", self.box, above=1.0, why="it bounds singular values, and their inverses from below")
        if math.isinf(self.box):
            raise ValueError("box must be finite: the gradient grows without bound along this group.")
        checks.one_of("goal", self.goal, ("gradient", "decrease"))
        chain = chain_of(self.module, self.layers)
        if self.layers is not None:
            chain = Chain(chain.names, chain.layers, (True,) * (len(chain.names) - 1))
        if not linear_junctions(chain):
            raise UnsupportedModuleError(
                f"LinearGroup needs two Linear layers with nothing between them; in this module ({chain}) an "
                f"activation or a convolution follows layer {chain.names[0]!r} and all others. Rescaling works there."
            )
        object.__setattr__(self, "chain", chain)

    @property
    def seeks_gradient(self) -> bool:
        return self.goal == "gradient"

    def propose(self, problem: TeleportProblem, monitor: Monitor | None = None) -> Tensor:
        start = problem.start
        layout = _Layout.of(self.chain, problem.objective)
        if self.goal == "gradient":
            logarithms = _largest_gradient(layout, start.gradient.double(), math.log(self.box))
        else:
            products = (problem.max_hvps if monitor is None else monitor.hvps_left) - 1
            logarithms = self._largest_decrease(layout, problem, products)
        # Only the result is rounded to the dtype of x: what a float32 product of matrices loses would show in f.
        x, share = start.x.double(), 1.0

        def moved(share: float) -> Tensor:
            left = {j: torch.linalg.matrix_exp(share * s) for j, s in logarithms.items()}
            right = {j: torch.linalg.matrix_exp(-share * s) for j, s in logarithms.items()}
            return layout.apply(x, left, right).to(start.x.dtype)

        while problem.radius is not None and float((moved(share) - start.x).norm()) > problem.radius:
            share *= 0.9
        return moved(share)

    def _largest_decrease(self, layout: _Layout, problem: TeleportProblem, products: int) -> dict[int, Tensor]:
        """Symmetric S with G = exp(S): u has P₂⁻¹ ∇ P₁ for a layer between two junctions."""
        start, edge = problem.start, math.log(self.box)
        sizes = [layout.shapes[junction][0] for junction in layout.junctions]

        def unpack(s: Tensor) -> dict[int, Tensor]:
            parts = s.split([size * size for size in sizes])
            square = [part.view(size, size) for part, size in zip(parts, sizes, strict=True)]
            return dict(zip(layout.junctions, [0.5 * (m + m.T) for m in square], strict=True))

        def pull(s: Tensor) -> Tensor:
            matrices = unpack(s)
            inverse = {j: torch.linalg.matrix_exp(-2.0 * m) for j, m in matrices.items()}
            direct = {j: torch.linalg.matrix_exp(2.0 * m) for j, m in matrices.items()}
            return layout.apply(start.gradient, inverse, direct)

        def project(s: Tensor) -> Tensor:
            clamped = []
            for matrix in unpack(s).values():
                values, vectors = torch.linalg.eigh(matrix)
                clamped.append(((vectors * values.clamp(-edge, edge)) @ vectors.T).reshape(-1))
            return torch.cat(clamped)

        zero = start.x.new_zeros(sum(size * size for size in sizes))
        best = ascend_decrease(start, pull, project, zero, reach=edge, products=products)
        return {j: m.double() for j, m in unpack(best).items()}


def linear_junctions(chain: Chain) -> tuple[int, ...]:
    """Where two Linear layers meet."""
    pairs = zip(chain.layers[:-1], chain.layers[1:], chain.straight, strict=True)
    return tuple(
        number
        for number, (before, after, straight) in enumerate(pairs)
        if straight and isinstance(before, nn.Linear) and isinstance(after, nn.Linear)
    )


def _largest_gradient(layout: _Layout, gradient: Tensor, edge: float) -> dict[int, Tensor]:
    """log G per junction, swept until no junction changes."""
    sizes = {junction: layout.shapes[junction][0] for junction in layout.junctions}
    logarithms = {j: gradient.new_zeros(size, size) for j, size in sizes.items()}
    for _ in range(20):
        settled = True
        for junction in layout.junctions:
            others = {j: s for j, s in logarithms.items() if j != junction}
            # Gradients transform by the inverse transpose; every exp(S) is symmetric.
            left = {j: torch.linalg.matrix_exp(-s) for j, s in others.items()}
            right = {j: torch.linalg.matrix_exp(s) for j, s in others.items()}
            moved = layout.apply(gradient, left, right)
            into, out_of = layout.matrix(moved, junction), layout.matrix(moved, junction + 1)
            bias = layout.biases[junction]
            A, B = into @ into.T, out_of.T @ out_of
            if bias is not None:
                A = A + torch.outer(moved[bias], moved[bias])
            values, vectors = torch.linalg.eigh(B - A)
            found = (vectors * torch.where(values > 0.0, edge, -edge)) @ vectors.T
            settled = settled and torch.allclose(found, logarithms[junction], atol=1e-12)
            logarithms[junction] = found
        if settled or len(layout.junctions) == 1:
            break
    return logarithms
