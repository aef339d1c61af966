"""The torch optimizer that is teleported: whether it can be, which of its parameters move, its metric, the way back.

**Which parameters.** A parameter group whose learning rate is exactly 0 stands still in steps, and so it does in
teleports: people freeze layers that way. Where all groups have 0, as in the first step of a warm-up, that freezes
nothing.

**The metric.** A step of Adam is -lr m̂/(√v̂ + ε): a gradient step in the metric diag(√v̂ + ε), apart from the momentum.
With amsgrad v is the largest so far, and centred RMSprop divides by the root of the variance, v - ḡ². Before the first
step nothing is known, and the metric is the ordinary one.

**The way back** holds the parameters and the state of the optimizer from before a move. Only the move and the steps
from it are undone: where anyone else has changed the parameters (a checkpoint, averaged weights), watching ends.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from levelport.objective import ObjectiveError
from levelport.objectives.metric import InMetric
from levelport.objectives.parameters import ParametersObjective
from levelport.objectives.structure import check_leaves, check_separate
from levelport.optim.affordable import WhileAffordable
from levelport.optim.armijo import ArmijoSGD
from levelport.optim.polyak import PolyakSGD
from levelport.optim.schedules import Schedule

_DIVIDING = (
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.RMSprop,
    torch.optim.Adagrad,
)
"""Optimizers with a metric of their own."""


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
            "Leave maximize out and minimize -loss instead."
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


def check_schedule(schedule: object, *, distributed: bool) -> None:
    """Raise where ``schedule`` is none, or would let ranks decide differently."""
    if not isinstance(schedule, Schedule):
        raise TypeError(f"schedule must be a schedule such as Every(50, start=5), not {schedule!r}.")
    if distributed and schedule.watches:
        raise ValueError(
            f"the schedule ({schedule}) looks at the loss of this rank, so ranks would decide differently and wait "
            "for each other. With distribute= use one that is fixed in advance, such as Every(50)."
        )


def trainable(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Those with ``requires_grad``, of all groups, each once."""
    return _of(optimizer.param_groups)


def stepping(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Those among them that the next step may move."""
    return _of([group for group in optimizer.param_groups if not _at_rest(group)])


def moving(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Those among them that a teleport moves now."""
    return stepping(optimizer) or trainable(optimizer)


def whole_with(moving: list[Tensor], flat: Tensor, everything: list[Tensor]) -> Tensor:
    """A flat vector of ``everything``: ``flat`` for ``moving``, the others as they are."""
    parts = dict(zip(moving, flat.split([p.numel() for p in moving]), strict=True))
    return torch.cat([parts.get(p, p.detach().reshape(-1)) for p in everything])


def _of(groups: list[dict[str, Any]]) -> list[Tensor]:
    return list(dict.fromkeys(p for group in groups for p in group["params"] if p.requires_grad))


def _at_rest(group: Mapping[str, Any]) -> bool:
    """Return True if the learning rate of a parameter group is 0; optimizers without one never rest."""
    lr = group.get("lr")
    return lr is not None and float(lr) == 0.0


def check_metric(metric: object, optimizer: torch.optim.Optimizer, parameters: list[Tensor]) -> None:
    """Raise where ``metric`` is no metric of the ``parameters``, or the optimizer has none of its own.

    At once: the first teleport may be hundreds of steps away.
    """
    if isinstance(metric, Tensor):
        InMetric(ParametersObjective(parameters, _nothing), metric)  # asks for size and sign
        return
    if metric is None:
        return
    if metric != "optimizer":
        raise ValueError(f"metric must be a tensor of weights, 'optimizer' or None, not {metric!r}.")
    if not isinstance(optimizer, _DIVIDING):
        raise ValueError(
            f"metric='optimizer' needs an optimizer that divides by second moments, such as Adam; "
            f"{type(optimizer).__name__} does not. Pass a tensor of weights, or None."
        )


def _nothing() -> Tensor:
    """A placeholder loss that is never evaluated."""
    return torch.zeros(())


def optimizer_metric(optimizer: torch.optim.Optimizer, parameters: list[Tensor]) -> Tensor:
    """√v̂ + ε as a flat vector; ones where the optimizer has not stepped yet."""
    group_of = {p: group for group in optimizer.param_groups for p in group["params"]}
    parts = []
    for p in parameters:
        state, group = optimizer.state.get(p, {}), group_of[p]
        if "exp_avg_sq" in state:
            correction = 1.0 - group["betas"][1] ** float(state["step"])
            moments = state.get("max_exp_avg_sq", state["exp_avg_sq"]) / correction
        elif "square_avg" in state:
            moments = state["square_avg"]
            if "grad_avg" in state:
                moments = (moments - state["grad_avg"].square()).clamp_min(0.0)  # rounding may leave it below 0
        elif "sum" in state and float(state["step"]) > 0.0:  # Adagrad makes its state before the first step
            moments = state["sum"]
        else:
            parts.append(torch.ones(p.numel(), dtype=p.dtype, device=p.device))
            continue
        parts.append((moments.sqrt() + group["eps"]).detach().reshape(-1))
    # Where squares have overflowed the optimizer hardly moves, and a large weight says the same. NaNs come with
    # parameters that are NaN after the next step, where no teleport is made.
    return torch.cat(parts).nan_to_num(nan=1.0)


@dataclass
class OptimizerSnapshot:
    """The way back of a torch optimizer.

    Attributes:
        parameters: those that it may move.
        x: what they were, flat.
        state: the optimizer's, as it was.
        seen: fingerprint of the parameters after the last step; None where that is unknown.
    """

    parameters: list[Tensor]
    x: Tensor
    state: dict[Any, Any]
    seen: Tensor | None = None

    @classmethod
    def to(cls, x: Tensor, parameters: list[Tensor], optimizer: torch.optim.Optimizer) -> OptimizerSnapshot:
        """Remember what is needed, when the parameters have just left ``x``."""
        return cls(parameters, x, _copied(optimizer.state), _fingerprint(parameters))

    def follow(self) -> None:
        """The optimizer has taken a step."""
        self.seen = _fingerprint(self.parameters)

    def leads_back(self, parameters: list[Tensor]) -> bool:
        """True if these are the parameters that moved, and the optimizer's steps alone have changed them since."""
        if {id(p) for p in self.parameters} != {id(p) for p in parameters}:
            return False
        return self.seen is None or self.seen.equal(_fingerprint(self.parameters))

    def restore(self, optimizer: torch.optim.Optimizer) -> None:
        """Put the parameters and the optimizer's state back."""
        parts = self.x.split([p.numel() for p in self.parameters])
        with torch.no_grad():
            for p, part in zip(self.parameters, parts, strict=True):
                p.copy_(part.view_as(p))
        torch.clear_autocast_cache()  # copies in half precision of what the parameters were
        optimizer.state.clear()
        optimizer.state.update(self.state)

    def state_dict(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """The same with the numbers of parameters in place of the parameters themselves."""
        # As in torch's own checkpoints, state under keys that are no parameters keeps them.
        numbers: dict[Any, int] = {p: number for number, p in enumerate(_parameters(optimizer))}
        return {
            "parameters": [numbers[p] for p in self.parameters],
            "x": self.x,
            "state": _copied({numbers.get(key, key): entry for key, entry in self.state.items()}),
        }

    @classmethod
    def of(cls, state_dict: dict[str, Any], optimizer: torch.optim.Optimizer) -> OptimizerSnapshot:
        """The inverse of :meth:`state_dict`."""
        known = _parameters(optimizer)
        parameters = [known[number] for number in state_dict["parameters"]]
        numbered: dict[Any, Tensor] = dict(enumerate(known))
        state = {}
        for number, entry in state_dict["state"].items():
            key = numbered.get(number, number)
            state[key] = _beside(entry, optimizer.state.get(key)) if isinstance(entry, dict) else _clone(entry)
        return cls(parameters, state_dict["x"].to(parameters[0].device), state)


def tell_of_steps(optimizer: torch.optim.Optimizer, stepped: Callable[[], object]) -> None:
    """Call the method ``stepped`` after every step of ``optimizer``, as long as its owner lives.

    Watching has to end, and its copies to go, also where no loss is shown.
    """
    method = weakref.WeakMethod(stepped)

    def hook(*_: object) -> None:
        if (alive := method()) is not None:
            alive()

    with suppress(AttributeError):  # wrappers that leave out torch's constructor have no hooks
        optimizer.register_step_post_hook(hook)


def _fingerprint(parameters: list[Tensor]) -> Tensor:
    """Numbers that change when anyone writes to the parameters, by whatever means: their norms, bit for bit."""
    with torch.no_grad():
        return torch.stack(torch._foreach_norm(parameters)).double().view(torch.int64)


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """All, frozen ones as well: torch's own checkpoints number them so."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def _copied(state: Any) -> dict[Any, Any]:
    """A copy of an optimizer's state: tensors cloned, keys (the parameters) as they are."""
    return {key: _clone(value) for key, value in state.items()}


def _beside(entry: dict[str, Any], present: Any) -> dict[str, Any]:
    """A copy of ``entry``, each tensor on the device of the optimizer's own one of that name, if it has one.

    A checkpoint may have been loaded to another device; torch does not record which state tensors follow the
    parameter's device.
    """
    copy, present = _clone(entry), present if isinstance(present, dict) else {}
    for name, value in copy.items():
        if isinstance(value, Tensor) and isinstance(own := present.get(name), Tensor):
            copy[name] = value.to(own.device)
    return copy


def _clone(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _clone(entry) for key, entry in value.items()}
    return list(value) if isinstance(value, list) else value
