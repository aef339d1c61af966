"""Which optimizers, and which parameters of them, can be teleported, and when: asked once, before a run begins."""

from __future__ import annotations

import torch
from torch import Tensor

from levelport import checks
from levelport.objective import ObjectiveError
from levelport.objectives.structure import check_leaves, check_separate
from levelport.optim.affordable import WhileAffordable
from levelport.optim.armijo import ArmijoSGD
from levelport.optim.polyak import PolyakSGD
from levelport.optim.schedules import Schedule


def check_optimizer(optimizer: object) -> None:
    """Raise where teleports of the parameters of ``optimizer`` would work against it."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, not a {type(optimizer).__name__}.")
    if any(type(layer).__name__ == "Lookahead" for layer in _layers(optimizer)):
        raise TypeError(
            "Lookahead keeps a slow copy of the parameters and pulls them back to it, which undoes teleports. Use "
            "the optimizer inside it alone."
        )
    if any(group.get("maximize", False) for layer in _layers(optimizer) for group in layer.param_groups):
        raise ValueError(
            "the optimizer has maximize=True, but teleports never raise the loss, so that they would work against it. "
            "Leave maximize out and minimise -loss instead."
        )


def innermost(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimizer inside wrappers that call it ``optimizer``, such as Accelerate's: its class tells how it steps."""
    return _layers(optimizer)[-1]


def _layers(optimizer: torch.optim.Optimizer) -> list[torch.optim.Optimizer]:
    layers = [optimizer]
    while isinstance(inside := getattr(layers[-1], "optimizer", None), torch.optim.Optimizer):
        layers.append(inside)
    return layers


def check_parameters(parameters: list[Tensor]) -> None:
    """Raise where the trainable ``parameters`` cannot be one vector; frozen ones never move and may be of any kind."""
    if not parameters:
        raise ObjectiveError(
            "no parameter of the optimizer has requires_grad=True, so there is nothing to teleport. Unfreeze some of "
            "them first."
        )
    distinct = list(dict.fromkeys(parameters))
    check_leaves(distinct, "the optimizer's parameters")
    check_separate(distinct)


def schedule_for(optimizer: torch.optim.Optimizer, *, distributed: bool) -> Schedule:
    """The default schedule; an error where there is none, which says what to pass."""
    if distributed:
        raise ValueError(
            "schedule: with distribute= there is no default schedule, because ranks see different losses and would "
            "decide differently. Pass one that is fixed in advance, such as schedule=Every(50), or Never()."
        )
    inside = innermost(optimizer)
    if isinstance(inside, (ArmijoSGD, PolyakSGD)):
        return WhileAffordable()
    if isinstance(inside, torch.optim.SGD) and not any(group["momentum"] for group in inside.param_groups):
        return WhileAffordable()
    kind = "SGD with momentum" if isinstance(inside, torch.optim.SGD) else type(inside).__name__
    raise ValueError(
        f"schedule: {kind} has no default schedule, because none was found that helps. Pass schedule=Every(50) to "
        "teleport all the same, or Never() to teleport by hand."
    )


def check_schedule(schedule: object, steps_per_epoch: int | None, *, distributed: bool) -> None:
    """Raise where ``schedule`` is none, counts what nobody knows, or would let ranks decide differently."""
    if not isinstance(schedule, Schedule):
        raise TypeError(f"schedule must be a schedule such as Every(50, start=5), not {schedule!r}.")
    if schedule.unit == "epochs" and steps_per_epoch is None:
        raise ValueError(f"the schedule ({schedule}) counts epochs: pass steps_per_epoch=len(loader).")
    if steps_per_epoch is not None:
        checks.whole("steps_per_epoch", steps_per_epoch, at_least=1)
    if distributed and schedule.watches:
        raise ValueError(
            f"the schedule ({schedule}) looks at the loss of this rank, so ranks would decide differently and wait "
            "for each other. With distribute= use one that is fixed in advance, such as Every(50)."
        )
