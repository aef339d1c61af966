"""Null spaces of the layers' inputs: weights may change where no input of the loss has anything.

If the rows of ΔW are orthogonal to every input that layer l receives, [ΔW_l, Δb_l] [x; 1] = 0, then its outputs stay as
they are, and with them the inputs of all later layers: all layers may move at once, to any distance, and f on these
inputs is unchanged. The gradient of earlier layers, which passes through W_lᵀ, changes; moves of a layer before which
there are no parameters change nothing.

With at least as many independent inputs as the layer is wide there is no such ΔW. Therefore a tolerance: directions
whose singular value is at most τ times the largest count as null. The move is then exact approximately, f may rise, and
``rise`` says by how much it may.

log ‖∇f‖ is ascended along the projection of H n/‖g‖ onto these directions, within a distance from the start, because
it grows without bound.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from levelport import checks
from levelport.objective import Objective
from levelport.solvers.contract import Monitor, Outcome, TeleportProblem
from levelport.solvers.result import TeleportStatus
from levelport.symmetries.ascent import ascend_gradient
from levelport.symmetries.binding import distributed, places
from levelport.symmetries.chain import UnsupportedModuleError
from levelport.symmetries.move import Exactness, SymmetrySolver
from levelport.vectors import norm


@dataclass(frozen=True, eq=False)
class NullSpace(SymmetrySolver):
    """Moves the weights of Linear layers where the inputs of the loss do not see it.

    Any activations and any other layers are welcome; they stay as they are.

    Args:
        module: has Linear layers.
        tau: singular values up to this share of the largest count as zero. 0: only those that are zero to rounding, and
            the move is exact on the inputs of the loss; otherwise it is approximate.
        rise: by how much f may rise, relative to its value; needed where ``tau`` is not 0. A step that raises it
            further is shortened.
        reach: the longest distance, relative to ‖w‖; a smaller ``radius`` of the teleport holds as well.
        steps: ascent steps, each of one Hessian-vector product and one gradient or a few.
    """

    module: nn.Module = field(repr=False)
    tau: float = 0.0
    rise: float = 0.0
    reach: float = 1.0
    steps: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.module, nn.Module):
            raise TypeError(f"module must be a torch.nn.Module, not a {type(self.module).__name__}.")
        checks.number("tau", self.tau, at_least=0.0, below=1.0, why="it is a share of the largest singular value")
        checks.number("rise", self.rise, at_least=0.0, below=1.0, why="it is a share of f")
        checks.number("reach", self.reach, above=0.0)
        checks.whole("steps", self.steps, at_least=1)
        if math.isinf(self.reach):
            raise ValueError("reach must be finite: the gradient grows without bound along null spaces.")
        if not self._layers():
            raise UnsupportedModuleError(
                f"the module ({type(self.module).__name__}) has no Linear layer with a trainable weight of its own, so "
                "there is no null space to move in."
            )

    @property
    def exact_on(self) -> Exactness:
        """These inputs, or approximately them."""
        return "these inputs" if self.tau == 0.0 else "approximately"

    def slack(self, level: float, dtype: torch.dtype) -> float:
        """Rounding, and what was allowed."""
        return max(super().slack(level, dtype), self.rise * abs(level))

    def _owned(self) -> set[int]:
        """The parameters that have one name; what is shared serves other inputs as well."""
        uses = Counter(id(p) for _, p in self.module.named_parameters(remove_duplicate=False))
        return {parameter for parameter, number in uses.items() if number == 1}

    def _layers(self) -> dict[str, nn.Linear]:
        owned = self._owned()
        return {
            name: layer
            for name, layer in self.module.named_modules()
            if isinstance(layer, nn.Linear)
            and isinstance(layer.weight, nn.Parameter)
            and layer.weight.requires_grad
            and id(layer.weight) in owned
        }

    def projector(self, problem: TeleportProblem) -> Callable[[Tensor], Tensor]:
        """v ↦ the part of v that no layer's inputs see. Costs one value, which shows the inputs."""
        objective = problem.objective
        if distributed(objective):
            raise ValueError(
                "NullSpace sees the inputs of one process only; it does not work with DistributedObjective."
            )
        layers, owned = self._layers(), self._owned()
        where = places(objective, [(f"{name}.weight", layer.weight) for name, layer in layers.items()], "NullSpace")
        seen = inputs_of(layers, objective, problem.start.x)
        parts: list[tuple[slice, slice | None, tuple[int, int], Tensor]] = []
        for name, layer in layers.items():
            if name not in seen:
                continue
            bias = where.get(id(layer.bias)) if layer.bias is not None and id(layer.bias) in owned else None
            data = torch.cat(seen[name])
            data = data if bias is None else torch.cat([data, data.new_ones(len(data), 1)], dim=1)
            basis = null_basis(data, self.tau)
            parts.append((where[id(layer.weight)], bias, (layer.out_features, layer.in_features), basis))

        def project(v: Tensor) -> Tensor:
            result = torch.zeros_like(v)
            for place, bias, shape, basis in parts:
                matrix = v[place].view(shape).double()  # what float32 leaks out of the null space would show in f
                if bias is not None:
                    matrix = torch.cat([matrix, v[bias][:, None]], dim=1)
                matrix = (matrix @ basis) @ basis.T
                result[place] = matrix[:, : shape[1]].reshape(-1).to(v.dtype)
                if bias is not None:
                    result[bias] = matrix[:, -1].to(v.dtype)
            return result

        return project

    def propose(self, problem: TeleportProblem, monitor: Monitor | None = None) -> Tensor:
        return self.solve(problem, Monitor(problem) if monitor is None else monitor).point.x

    def solve(self, problem: TeleportProblem, monitor: Monitor) -> Outcome:
        """Projected ascent of log ‖∇f‖ in the null space and the ball."""
        start = problem.start
        radius = self.reach * float(norm(start.x))
        radius = radius if problem.radius is None else min(radius, 0.999 * problem.radius)
        if radius == 0.0:
            return Outcome(start, TeleportStatus.STALLED)
        project = self.projector(problem)
        return ascend_gradient(
            problem,
            monitor,
            chart=lambda away: start.x + away,
            pull=lambda _, v: project(v),
            length=lambda away: float(norm(away)),
            coordinates=torch.zeros_like(start.x),
            reach=radius,
            steps=self.steps,
        )


def null_basis(data: Tensor, tau: float) -> Tensor:
    """Orthonormal columns that span the directions in which ``data`` (rows are inputs) has singular values ≤ τ σ₁.

    Singular values that are zero come out as rounding made them. ε of the precision in which the data were computed, in
    every entry, shifts them by up to ε ‖data‖_F ≤ ε √min(rows, columns) σ₁; the decomposition, in double precision,
    adds max(rows, columns) times its own ε. Whichever is larger is the least τ.
    """
    rows, columns = data.shape
    rounding = max(
        math.sqrt(min(rows, columns)) * torch.finfo(data.dtype).eps,
        max(rows, columns) * torch.finfo(torch.float64).eps,
    )
    data = data.double()
    if rows > columns:
        data = torch.linalg.qr(data, mode="r").R  # the same singular values, in a square
    _, values, right = torch.linalg.svd(data, full_matrices=True)
    largest = float(values[0]) if len(values) else 0.0
    rank = int((values > max(tau, rounding) * largest).sum())
    return right[rank:].T


def inputs_of(layers: dict[str, nn.Linear], objective: Objective, x: Tensor) -> dict[str, list[Tensor]]:
    """What every layer receives during one evaluation of f at ``x``, a row per sample."""
    seen: dict[str, list[Tensor]] = {}

    def watch(name: str) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
        def remember(layer: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
            inputs = given[0] if given else named["input"]
            seen.setdefault(name, []).append(inputs.detach().reshape(-1, inputs.shape[-1]))

        return remember

    handles = [layer.register_forward_pre_hook(watch(name), with_kwargs=True) for name, layer in layers.items()]
    try:
        _ = objective.at(x).value
    finally:
        for handle in handles:
            handle.remove()
    return seen
