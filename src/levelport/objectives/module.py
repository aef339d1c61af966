"""The training loss of a module on a data set, as a function of its trainable parameters.

    f(w) = Σ_c (n_c / n) loss(module_w(x_c), y_c) + penalty ‖w‖²,      w = all trainable parameters, flat,

over chunks c of the data. With one chunk the graph is kept and shared by value, gradient and HVPs; with several,
every product runs chunk by chunk and memory is bounded by one chunk. The module itself is never written to:
parameters are substituted by ``torch.func.functional_call``, buffers (BatchNorm statistics) are copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from levelport import checks
from levelport.objective import Ledger, Objective, ObjectiveError, Point, SumPoint
from levelport.objectives.function import DerivativeCheck, GraphPoint, as_scalar_loss
from levelport.objectives.isolation import before_calls, restoring
from levelport.objectives.structure import Structure, check_separate


class ModuleObjective(Objective):
    """f(w) for an ``nn.Module``, a loss that averages over samples, and data.

    Args:
        module: frozen parameters (``requires_grad=False``) stay as they are; tied ones count once.
        loss: ``loss(module(inputs), targets)``, a mean over the samples it is given.
        inputs, targets: tensors whose first dimension runs over samples.
        penalty: multiplies ‖w‖² over all trainable parameters, biases included.
        chunk_size: samples per evaluation; None takes all at once.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Callable[[Tensor, Tensor], Tensor],
        inputs: Tensor,
        targets: Tensor,
        *,
        penalty: float = 0.0,
        chunk_size: int | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(module, nn.Module):
            raise ObjectiveError(
                f"module must be an nn.Module, not a {type(module).__name__}. For a loss of other variables there is "
                "FunctionObjective."
            )
        if len(inputs) != len(targets) or len(inputs) == 0:
            raise ObjectiveError(
                f"inputs and targets must have the same positive number of samples, not {len(inputs)} and "
                f"{len(targets)}."
            )
        if not callable(loss):
            raise ObjectiveError(
                f"loss must be a function of outputs and targets, loss(module(inputs), targets), not a "
                f"{type(loss).__name__}."
            )
        if chunk_size is not None:
            checks.whole("chunk_size", chunk_size, at_least=1, why="None takes all samples at once")
        self.module = module
        self._derivative_check = DerivativeCheck(self.ledger)
        self.loss = loss
        self.inputs = inputs
        self.targets = targets
        self.penalty = checks.weight("penalty", penalty)
        self.chunk_size = len(inputs) if chunk_size is None else min(chunk_size, len(inputs))
        trainable = {name: p for name, p in module.named_parameters() if p.requires_grad}
        if not trainable:
            raise ObjectiveError("the module has no trainable parameter. Set requires_grad=True on some.")
        self._names = list(trainable)
        self.structure = Structure(list(trainable.values()))
        check_separate(list(trainable.values()))
        self.dimension, self.dtype, self.device = self.structure.dimension, self.structure.dtype, self.structure.device

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Those that x holds, in its order: the ones that were trainable when the objective was made."""
        named = dict(self.module.named_parameters())
        return [named[name] for name in self._names]

    def initial_point(self) -> Tensor:
        """The module's present parameters as a flat vector (a copy)."""
        return torch.cat([parameter.detach().reshape(-1) for parameter in self.parameters])

    def load_into_module(self, x: Tensor) -> None:
        """Write the flat vector ``x`` into the module's parameters."""
        with torch.no_grad():
            for parameter, value in zip(self.parameters, self.structure.leaves(x), strict=True):
                parameter.copy_(value)
        torch.clear_autocast_cache()  # copies in half precision of what the parameters were

    def at(self, x: Tensor, *, curvature: bool = False) -> Point:
        if self.chunk_size == len(self.inputs):
            return self._chunk_point(x, self.ledger, self.inputs, self.targets, curvature)
        return SumPoint(x, self.ledger, partial(self._chunks, x))

    def predict(self, x: Tensor, inputs: Tensor) -> Tensor:
        """The module's output at parameters ``x``, without a graph."""
        with torch.no_grad():
            return self._call(self.structure.leaves(x), inputs)

    def _call(self, leaves: list[Tensor], inputs: Tensor) -> Tensor:
        buffers = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        substitute = dict(zip(self._names, leaves, strict=True))
        tables: list[dict[str, Any]] = [t for part in self.module.modules() for t in (part._parameters, part._buffers)]
        own = [(table, dict(table)) for table in tables]
        with restoring(lambda: [table.update(before) for table, before in own]):  # against interrupts in the call
            output: Tensor = torch.func.functional_call(self.module, (substitute, buffers), (inputs,))
        return output

    def _chunk_point(self, x: Tensor, ledger: Ledger, inputs: Tensor, targets: Tensor, curvature: bool) -> GraphPoint:
        def forward(x: Tensor) -> tuple[Tensor, list[Tensor]]:
            leaves = [leaf.requires_grad_() for leaf in self.structure.leaves(x)]
            return as_scalar_loss(self.loss(self._call(leaves, inputs), targets)), leaves

        return _WholePoint(self, x, ledger, forward, curvature=curvature)

    def _chunks(self, x: Tensor, curvature: bool) -> Iterator[tuple[float, GraphPoint]]:
        for start in range(0, len(self.inputs), self.chunk_size):
            inputs = self.inputs[start : start + self.chunk_size]
            targets = self.targets[start : start + self.chunk_size]
            weight = len(inputs) / len(self.inputs)
            yield weight, self._chunk_point(x, Ledger(), inputs, targets, curvature)


class _WholePoint(GraphPoint):
    """A point with a graph over all its samples, or a chunk of them."""

    def __init__(
        self,
        objective: ModuleObjective,
        x: Tensor,
        ledger: Ledger,
        forward: Callable[[Tensor], tuple[Tensor, list[Tensor]]],
        *,
        curvature: bool,
    ) -> None:
        check, penalty = objective._derivative_check, objective.penalty
        super().__init__(x, ledger, forward, check, curvature=curvature, penalty=penalty)
        self._module = objective.module

    def _differentiating(self) -> AbstractContextManager[None]:
        """Refuses a module that runs again in the backward pass: its parameters are no longer substituted then."""
        ours = set(self._module.modules())

        def refuse(module: nn.Module, _inputs: object) -> None:
            if module in ours:
                raise ObjectiveError(
                    "the module recomputes activations in its backward pass (checkpointing), where it would see its "
                    "own parameters instead of those asked for. Switch checkpointing off and pass chunk_size= to save "
                    "memory, or teleport the live parameters by levelport.Teleported."
                )

        return before_calls(refuse)
