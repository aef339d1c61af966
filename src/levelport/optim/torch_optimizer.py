"""The torch optimizer that is teleported: whether it can be, which of its parameters move, the move, the way back.

**Which parameters.** A parameter group whose learning rate is exactly 0 stands still in steps, and so it does in
teleports: people freeze layers that way. Where all groups have 0, as in the first step of a warm-up, that freezes
nothing.

**The way back** holds the parameters and the state of the optimizer from before a move. Only the move and the steps
from it are undone: where anyone else has changed the parameters (a checkpoint, averaged weights), watching ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from levelport.objective import Cost, Objective, ObjectiveError
from levelport.objectives.batches import Loss
from levelport.objectives.distributed import agreed, data_parallel
from levelport.objectives.isolation import RandomState, restoring
from levelport.objectives.parameters import ParametersObjective
from levelport.objectives.structure import check_leaves, check_separate
from levelport.optim.affordable import WhileAffordable
from levelport.optim.armijo import ArmijoSGD
from levelport.optim.first_step import StabilityLimit, Taken, check_unused
from levelport.optim.policy import TeleportPolicy, UndoMonitor
from levelport.optim.polyak import PolyakSGD
from levelport.optim.schedules import Schedule


def check_optimizer(optimizer: object, *, reset: bool) -> None:
    """Raise where the parameters of ``optimizer`` cannot teleport, or its state cannot be ``reset`` then."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        what = f"the class {optimizer.__name__}" if isinstance(optimizer, type) else f"a {type(optimizer).__name__}"
        raise TypeError(
            f"optimizer must be a torch.optim.Optimizer, not {what}. Pass one with its parameters, such as "
            "torch.optim.SGD(model.parameters(), lr=0.1)."
        )
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
    if reset and isinstance(innermost(optimizer), torch.optim.Adagrad):
        raise ValueError("momentum='reset' does not work with Adagrad, which makes its state only once.")
    parameters = trainable(optimizer)  # frozen ones never move and may be of any kind
    if not parameters:
        raise ObjectiveError(
            "no parameter of the optimizer has requires_grad=True, so there is nothing to teleport. Unfreeze some of "
            "them first."
        )
    check_leaves(parameters, "the optimizer's parameters")
    check_separate(parameters)


def innermost(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimizer inside wrappers that call it ``optimizer``, such as Accelerate's: its class tells how it steps."""
    return _layers(optimizer)[-1]


def _layers(optimizer: torch.optim.Optimizer) -> list[torch.optim.Optimizer]:
    layers = [optimizer]
    while isinstance(inside := getattr(layers[-1], "optimizer", None), torch.optim.Optimizer):
        layers.append(inside)
    return layers


def checked_schedule(schedule: object, optimizer: torch.optim.Optimizer, *, distributed: bool) -> Schedule:
    """``schedule``, or the default one for None; an error where there is none, or where ranks would disagree."""
    if distributed and (schedule is None or (isinstance(schedule, Schedule) and schedule.watches)):
        raise ValueError(
            "schedule: with distribute= there is no default schedule and no adaptive one, because ranks see different "
            "losses and would decide differently. Pass one that is fixed in advance, such as schedule=Every(50), or "
            "Never()."
        )
    if isinstance(schedule, Schedule):
        return schedule
    if schedule is not None:
        raise TypeError(f"schedule must be a schedule such as Every(50, start=5), not {schedule!r}.")
    inside = innermost(optimizer)
    plain = isinstance(inside, torch.optim.SGD) and not any(group["momentum"] for group in inside.param_groups)
    if plain or isinstance(inside, (ArmijoSGD, PolyakSGD)):
        return WhileAffordable()
    kind = "SGD with momentum" if isinstance(inside, torch.optim.SGD) else type(inside).__name__
    raise ValueError(
        f"schedule: {kind} has no default schedule, because none was found that helps. Pass schedule=Every(50) to "
        "teleport all the same, or Never() to teleport by hand."
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


def _of(groups: list[dict[str, Any]]) -> list[Tensor]:
    return list(dict.fromkeys(p for group in groups for p in group["params"] if p.requires_grad))


def _at_rest(group: Mapping[str, Any]) -> bool:
    """Return True if the learning rate of a parameter group is 0; optimizers without one never rest."""
    lr = group.get("lr")
    return lr is not None and float(lr) == 0.0


@dataclass
class OptimizerSnapshot:
    """The way back of a torch optimizer.

    Attributes:
        parameters: those that it may move.
        x: what they were, flat.
        state: the optimizer's, as it was, by the numbers of parameters: what torch's checkpoints have for them.
        seen: fingerprint of the parameters after the last step; None before the move is made.
    """

    parameters: list[Tensor]
    x: Tensor
    state: dict[Any, Any]
    seen: Tensor | None = None

    @classmethod
    def now(cls, optimizer: torch.optim.Optimizer) -> OptimizerSnapshot:
        """The parameters and the state as they stand."""
        parameters = trainable(optimizer)
        x = torch.cat([p.detach().reshape(-1) for p in parameters])
        numbers: dict[Any, int] = {p: number for number, p in enumerate(_parameters(optimizer))}
        return cls(parameters, x, {numbers.get(key, key): _clone(entry) for key, entry in optimizer.state.items()})

    def follow(self) -> None:
        """The move has been made, or the optimizer has taken a step."""
        self.seen = _fingerprint(self.parameters)

    def leads_back(self, parameters: list[Tensor]) -> bool:
        """True if these are the parameters that moved, and the optimizer's steps alone have changed them since."""
        if {id(p) for p in self.parameters} != {id(p) for p in parameters}:
            return False
        return self.seen is not None and self.seen.equal(_fingerprint(self.parameters))

    def value_of(self, loss: Loss) -> float:
        """The loss of this step at the point that was left, over all ranks."""
        objective = ParametersObjective(self.parameters, loss, noise="replay")
        here, generators = objective.current(), RandomState.capture(objective.device)
        with restoring(generators.restore), restoring(lambda: objective.load(here)):
            there = objective.at(self.x).value
        return agreed(there, objective.device)

    def restore(self, optimizer: torch.optim.Optimizer) -> None:
        """Put the parameters and the optimizer's state back."""
        parts = self.x.split([p.numel() for p in self.parameters])
        for p, part in zip(self.parameters, parts, strict=True):
            p.detach().copy_(part.view_as(p))
        torch.clear_autocast_cache()  # copies in half precision of what the parameters were
        known: dict[Any, Tensor] = dict(enumerate(_parameters(optimizer)))
        optimizer.state.clear()
        optimizer.state.update({known.get(number, number): entry for number, entry in self.state.items()})

    def state_dict(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Plain numbers and tensors."""
        numbers = {p: number for number, p in enumerate(_parameters(optimizer))}
        moved = [numbers[p] for p in self.parameters]
        return {"parameters": moved, "x": self.x, "state": _clone(self.state), "seen": self.seen}

    @classmethod
    def of(cls, state_dict: dict[str, Any], optimizer: torch.optim.Optimizer) -> OptimizerSnapshot:
        """The inverse of :meth:`state_dict`."""
        known = dict(enumerate(_parameters(optimizer)))
        parameters = [known[number] for number in state_dict["parameters"]]
        state = {
            number: _clone(entry, beside=optimizer.state.get(known.get(number, number)))
            for number, entry in state_dict["state"].items()
        }
        x, seen = (state_dict[name].to(parameters[0].device) for name in ("x", "seen"))
        return cls(parameters, x, state, seen)


def make_move(
    policy: TeleportPolicy[OptimizerSnapshot],
    live: ParametersObjective,
    unused: ParametersObjective | None,
    limit: StabilityLimit,
    distribute: Callable[[Objective], Objective] | None,
    *,
    due: bool,
) -> tuple[Taken, bool, Cost]:
    """Teleport on ``live`` and write the move into its parameters, as far as f on ``unused`` samples does not rise.

    Returns the move, whether the parameters moved, and the cost.
    """
    start, generators = live.current(), RandomState.capture(live.device)
    end = start
    with restoring(generators.restore), restoring(lambda: live.load(end)):
        objective = data_parallel(live, start) if distribute is None else distribute(live)
        before = objective.at(start, curvature=True)
        taken = policy.move(objective, before, limit, due=due)
        cost = objective.cost if policy.first_step else taken.move.result.cost
        if unused is not None and taken.point is not before:
            other = data_parallel(unused, unused.current())
            taken = check_unused(objective, other, before, taken)
            cost = objective.cost + other.cost
        end = taken.point.x if taken.point is not before else start
    return taken, end is not start, cost


def watch_steps(optimizer: torch.optim.Optimizer, monitor: UndoMonitor[OptimizerSnapshot]) -> None:
    """Tell ``monitor`` of every step: watching has to end, and its copies to go, also where no loss is shown."""

    def hook(*_: object) -> None:
        monitor.stepped()
        if monitor.back is not None:
            monitor.back.follow()

    with suppress(AttributeError):  # wrappers that leave out torch's constructor have no hooks
        optimizer.register_step_post_hook(hook)


def _fingerprint(parameters: list[Tensor]) -> Tensor:
    """Numbers that change when anyone writes to the parameters, by whatever means: their norms, bit for bit."""
    return torch.stack(torch._foreach_norm([p.detach() for p in parameters])).double().view(torch.int64)


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """All, frozen ones as well: torch's own checkpoints number them so."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def _clone(value: Any, beside: Any = None) -> Any:
    """A copy of an entry of a state; its tensors on the devices of those in ``beside``, where they have the same place.

    A checkpoint may have been loaded to another device; torch does not record which state tensors follow the
    parameter's device.
    """
    if isinstance(value, Tensor):
        return value.detach().to(beside.device if isinstance(beside, Tensor) else value.device, copy=True)
    if isinstance(value, dict):
        present = beside if isinstance(beside, dict) else {}
        return {key: _clone(entry, present.get(key)) for key, entry in value.items()}
    return list(value) if isinstance(value, list) else value
