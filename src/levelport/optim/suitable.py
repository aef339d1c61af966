"""Which optimizers, and which parameters of them, can be teleported: asked once, before a run begins."""

from __future__ import annotations

import torch
from torch import Tensor

from levelport.objective import ObjectiveError
from levelport.objectives.structure import check_leaves


def check_optimizer(optimizer: object) -> None:
    """Raise where teleports of the parameters of ``optimizer`` would work against it."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, not a {type(optimizer).__name__}.")
    if type(optimizer).__name__ == "Lookahead":
        raise TypeError(
            "Lookahead keeps a slow copy of the parameters and pulls them back to it, which undoes teleports. Use "
            "the optimizer inside it alone."
        )
    if any(group.get("maximize", False) for group in optimizer.param_groups):
        raise ValueError(
            "the optimizer has maximize=True, but teleports never raise the loss, so that they would work against it. "
            "Leave maximize out and minimise -loss instead."
        )


def check_parameters(parameters: list[Tensor]) -> None:
    """Raise where the trainable ``parameters`` cannot be one vector; frozen ones never move and may be of any kind."""
    if not parameters:
        raise ObjectiveError(
            "no parameter of the optimizer has requires_grad=True, so there is nothing to teleport. Unfreeze some of "
            "them first."
        )
    check_leaves(list(dict.fromkeys(parameters)))
