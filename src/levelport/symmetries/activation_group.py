"""The general linear group on both sides of an activation: exact on few samples, for any activation.

Let a layer compute Z = W h + b from its inputs h (columns are samples) and the next one take σ(Z). With G = I + T in
front of the activation,

    W → G W,   b → G b,   and the next layer   U → U + U (σ(Z) - σ(GZ)) σ(GZ)⁺,

the next layer receives σ(GZ) instead of σ(Z) and passes on U σ(GZ) + U (σ(Z) - σ(GZ)) P with P the projector onto the
rows of σ(GZ). While these samples are independent there, that is at most as many as the layer is wide, P = I and the
outputs are U σ(Z) as before. With more samples it is the least-squares fit, and f changes.

This is the transformation of Zhao et al. (2022, 2024), U → U σ(Z) σ(GZ)⁺, but for what no sample sees: theirs sets
that part of U to zero, so that G = I would not be the identity; here it stays. With samples enough both are one.

In a deep network every junction has its T, all at once: outputs are kept junction by junction, so that each sees the Z
of the start. log ‖∇f‖ is ascended in T with ‖T‖₂ ≤ reach < 1, which keeps every G invertible.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor, nn

from levelport import checks
from levelport.solvers.contract import Monitor, Outcome, TeleportProblem
from levelport.symmetries.ascent import ascend_gradient
from levelport.symmetries.binding import distributed, places
from levelport.symmetries.chain import UnsupportedModuleError, check_parameters
from levelport.symmetries.move import Exactness, SymmetrySolver
from levelport.symmetries.null_space import inputs_of

_ACTIVATIONS = (
    nn.Identity, nn.ReLU, nn.LeakyReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh, nn.Sigmoid,
    nn.Softplus, nn.Softsign, nn.LogSigmoid, nn.Hardtanh, nn.ReLU6, nn.Hardswish,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class ActivationGroup(SymmetrySolver):
    """Transforms what linear layers receive and pass on, activations of any kind in between.

    Exact on the inputs of the loss while they are no more than the hidden layers are wide.

    Args:
        module: an ``nn.Sequential`` of Linear layers and activations.
        rise: by how much f may rise, relative to its value; needed where there are more samples than units.
        reach: ‖T‖₂ is at most this, below 1.
        steps: ascent steps, each of one Hessian-vector product and one gradient or a few.
    """

    module: nn.Module = field(repr=False)
    rise: float = 0.0
    reach: float = 0.5
    steps: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.number("rise", self.rise, at_least=0.0, below=1.0, why="it is a share of f")
        checks.number("reach", self.reach, above=0.0, below=1.0, why="beyond it I + T need not be invertible")
        checks.whole("steps", self.steps, at_least=1)
        _layers_of(self.module)

    @property
    def exact_on(self) -> Exactness:
        """These inputs, as far as they are no more than units; approximately where f may rise."""
        return "these inputs" if self.rise == 0.0 else "approximately"

    def slack(self, level: float, dtype: torch.dtype) -> float:
        """Rounding, and what was allowed."""
        return max(super().slack(level, dtype), self.rise * abs(level))

    def propose(self, problem: TeleportProblem, monitor: Monitor | None = None) -> Tensor:
        return self.solve(problem, Monitor(problem) if monitor is None else monitor).point.x

    def solve(self, problem: TeleportProblem, monitor: Monitor) -> Outcome:
        """Ascent of log ‖∇f‖ in T."""
        chart = _Chart.of(self.module, problem)

        def pull(T: Tensor, v: Tensor) -> Tensor:
            with torch.enable_grad():
                leaf = T.detach().requires_grad_()
                (slope,) = torch.autograd.grad(torch.dot(chart.moved(leaf), v.double()), leaf)
            return slope

        return ascend_gradient(
            problem,
            monitor,
            chart=lambda T: chart.moved(T).to(problem.start.x.dtype),
            pull=pull,
            length=chart.spectral_norm,
            coordinates=chart.zero,
            reach=self.reach,
            steps=self.steps,
        )


@dataclass(frozen=True)
class _Layer:
    """A layer at the start, in double precision: where it lies, W, b, what it receives and what it computes."""

    weight: slice
    bias: slice | None
    matrix: Tensor
    shift: Tensor | None
    inputs: Tensor
    outputs: Tensor
    activation: nn.Sequential


@dataclass(frozen=True)
class _Chart:
    """T ↦ w(T). Samples are rows here, as everywhere in torch: h is samples × units."""

    start: Tensor
    layers: tuple[_Layer, ...]

    @classmethod
    def of(cls, module: nn.Module, problem: TeleportProblem) -> _Chart:
        objective, x = problem.objective, problem.start.x
        if distributed(objective):
            raise ValueError(
                "ActivationGroup sees the inputs of one process only; it does not work with DistributedObjective."
            )
        found = _layers_of(module)
        wanted = [(f"{n}.{k}", p) for n, layer, _ in found for k, p in layer.named_parameters(recurse=False)]
        where = places(objective, wanted, "ActivationGroup")
        first = found[0]
        hidden = torch.cat(inputs_of({first[0]: first[1]}, objective, x)[first[0]]).double()
        layers = []
        for _, layer, activation in found:
            weight = where[id(layer.weight)]
            bias = None if layer.bias is None else where[id(layer.bias)]
            matrix = x[weight].double().view(layer.weight.shape)
            shift = None if bias is None else x[bias].double()
            outputs = nn.functional.linear(hidden, matrix, shift)
            layers.append(_Layer(weight, bias, matrix, shift, hidden, outputs, activation))
            hidden = activation(outputs.clone())  # an activation in place would overwrite the Z kept above
        return cls(x.double(), tuple(layers))

    @property
    def zero(self) -> Tensor:
        """The coordinates of the start."""
        return self.start.new_zeros(sum(len(layer.matrix) ** 2 for layer in self.layers[:-1]))

    def squares(self, T: Tensor) -> list[Tensor]:
        """T junction by junction."""
        sizes = [len(layer.matrix) for layer in self.layers[:-1]]
        return [part.view(n, n) for part, n in zip(T.split([n * n for n in sizes]), sizes, strict=True)]

    def spectral_norm(self, T: Tensor) -> float:
        """The largest ‖T‖₂."""
        return max(float(torch.linalg.matrix_norm(square, 2)) for square in self.squares(T))

    def moved(self, T: Tensor) -> Tensor:
        """w(T), in double precision and differentiable."""
        changed = self.start.clone()
        squares: list[Tensor | None] = [*self.squares(T), None]
        received: Tensor | None = None  # σ(GZ) of the junction before
        for layer, square in zip(self.layers, squares, strict=True):
            matrix, shift = layer.matrix, layer.shift
            if received is not None:
                missing = (layer.inputs - received) @ matrix.T
                matrix = matrix + (torch.linalg.pinv(received) @ missing).T
            if square is not None:
                matrix = matrix + square @ matrix
                shift = None if shift is None else shift + square @ shift
                received = layer.activation(layer.outputs + layer.outputs @ square.T)
            changed[layer.weight] = matrix.reshape(-1)
            if layer.bias is not None and shift is not None:
                changed[layer.bias] = shift
        return changed


def _layers_of(module: nn.Module) -> list[tuple[str, nn.Linear, nn.Sequential]]:
    """Linear layers with what follows them; refuses everything else by name."""
    if not isinstance(module, nn.Sequential):
        raise UnsupportedModuleError(
            f"ActivationGroup needs an nn.Sequential of Linear layers and activations, not a {type(module).__name__}."
        )
    numbers = [number for number, part in enumerate(module) if isinstance(part, nn.Linear)]
    names = list(module._modules)  # named_children() leaves out what is used twice, as one activation may be
    for name, part in zip(names, module, strict=True):
        if not isinstance(part, (nn.Linear, *_ACTIVATIONS)):
            raise UnsupportedModuleError(
                f"layer {name!r} ({type(part).__name__}) is neither Linear nor an activation without parameters and "
                "random numbers, so ActivationGroup cannot repeat it."
            )
    if len(numbers) < 2:
        raise UnsupportedModuleError(
            f"the module has {len(numbers)} Linear layer(s), and a hidden layer needs two of its own: one before "
            "it and one after."
        )
    check_parameters(module, [(names[number], module[number]) for number in numbers])  # type: ignore[misc]
    if numbers[0] > 0:
        raise UnsupportedModuleError(f"layer {names[0]!r} stands before the first Linear layer; leave it out.")
    spans = pairwise([*numbers, len(module)])
    return [(names[a], module[a], module[a + 1 : b]) for a, b in spans]  # type: ignore[misc]
