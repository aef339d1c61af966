"""What the torch optimizers here share: one flat view of the gradients of all groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from levelport.objective import ObjectiveError
from levelport.objectives.function import SPARSE_GRADIENT
from levelport.vectors import norm


class FlatOptimizer(torch.optim.Optimizer):
    """An optimizer whose step depends on the gradient of all groups together.

    Closures return the loss as a tensor, as everywhere in torch's documentation. Torch's stubs say ``float``; that is
    why overrides of ``step``, and calls of it with a closure, are exempt from the type check.
    """

    def parameters(self) -> list[Tensor]:
        """The parameters to optimise: those with ``requires_grad``, of all groups."""
        return [p for group in self.param_groups for p in group["params"] if p.requires_grad]

    def all_parameters(self) -> list[Tensor]:
        """Those of all groups, frozen ones as well: what ``zero_grad()`` clears."""
        return [p for group in self.param_groups for p in group["params"]]

    @staticmethod
    def moving(group: dict[str, Any]) -> list[tuple[Tensor, Tensor]]:
        """The parameters of ``group`` that a step moves, with their gradients: frozen ones may hold an old one."""
        return [(p, p.grad) for p in group["params"] if p.requires_grad and p.grad is not None]

    def gradient_norm(self) -> float:
        """‖g‖ over everything that moves."""
        gradients = [gradient for group in self.param_groups for _, gradient in self.moving(group)]
        if any(gradient.layout != torch.strided for gradient in gradients):
            raise ObjectiveError(SPARSE_GRADIENT)
        norms = [norm(gradient) for gradient in gradients]
        return float(torch.linalg.vector_norm(torch.stack(norms))) if norms else 0.0

    @torch.no_grad()
    def descend(self, group: dict[str, Any], size: float) -> None:
        """p ← p - size · ∇f for the parameters of ``group``."""
        for p, gradient in self.moving(group):
            p.sub_(gradient, alpha=size)

    def required(self, closure: Callable[[], Tensor] | None) -> Callable[[], Tensor]:
        """``closure``, or an error that shows how to pass one."""
        if closure is None:
            raise TypeError(
                f"{type(self).__name__}.step needs the loss: call optimizer.step(lambda: loss_fn(model(x), y))."
            )
        return closure
