"""Which optimizers have parameters that can be teleported, asked once, before a run begins."""

from __future__ import annotations

import torch


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
