"""Which parameters of an optimizer a teleport moves, and where they lie among all that it could move.

A parameter group whose learning rate is exactly 0 stands still in steps, and so it does in teleports: people freeze
layers that way. Where all groups have 0, as in the first step of a warm-up, that freezes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def trainable(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Those with ``requires_grad``, of all groups, each once."""
    return _of(optimizer.param_groups)


def stepping(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Those among them that the next step may move."""
    return _of([group for group in optimizer.param_groups if not _at_rest(group)])


def moving(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Those among them that a teleport moves now."""
    return stepping(optimizer) or trainable(optimizer)


def part_for(moving: list[Tensor], everything: list[Tensor], flat: Tensor) -> Tensor:
    """The entries of ``flat``, which has some for each of ``everything``, that belong to ``moving``."""
    parts = dict(zip(everything, flat.split([p.numel() for p in everything]), strict=True))
    return torch.cat([parts[p] for p in moving])


def whole_with(moving: list[Tensor], flat: Tensor, everything: list[Tensor]) -> Tensor:
    """A flat vector of ``everything``: ``flat`` for ``moving``, the others as they are."""
    parts = dict(zip(moving, flat.split([p.numel() for p in moving]), strict=True))
    return torch.cat([parts.get(p, p.detach().reshape(-1)) for p in everything])


def _of(groups: list[dict[str, Any]]) -> list[Tensor]:
    return list(dict.fromkeys(p for group in groups for p in group["params"] if p.requires_grad))


def _at_rest(group: Mapping[str, Any]) -> bool:
    """Whether the learning rate of a parameter group is 0; optimizers without one never rest."""
    lr = group.get("lr")
    return lr is not None and float(lr) == 0.0
