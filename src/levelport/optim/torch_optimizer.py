"""The torch optimizer that is teleported: whether it can be, which of its parameters move, the move, the way back.

**Which parameters.** A parameter group whose learning rate is exactly 0 stands still in steps, and so it does in
teleports: people freeze layers that way. Where all groups have 0, as in the first step of a warm-up, that freezes
nothing.

**The way back** holds the parameters and the state of the optimizer from before a move. Only the move and the steps
from it are undone: where anyone else has changed the parameters (a checkpoint, averaged weights), watching ends.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from levelport.objective import Cost, NotDeterministicError, Objective, ObjectiveError
from levelport.objectives.batches import Batches, Loss
from levelport.objectives.distributed import agreed, data_parallel
from levelport.objectives.isolation import RandomState, restoring
from levelport.objectives.parameters import ParametersObjective
from levelport.objectives.structure import check_leaves, check_separate
from levelport.optim.affordable import WhileAffordable
from levelport.optim.armijo import ArmijoSGD
from levelport.optim.first_step import StabilityLimit, Taken, check_unused
from levelport.optim.policy import TeleportPolicy
from levelport.optim.polyak import PolyakSGD
from levelport.optim.schedules import Schedule

_REPLAY = "Or pass noise='replay', with which every evaluation of a teleport sees the same random numbers."


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
        state: the optimizer's, as it was.
        seen: fingerprint of the parameters after the last step; None where that is unknown.
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
        return cls(parameters, x, _copied(optimizer.state))

    def follow(self) -> None:
        """The move has been made, or the optimizer has taken a step."""
        self.seen = _fingerprint(self.parameters)

    def leads_back(self, parameters: list[Tensor]) -> bool:
        """True if these are the parameters that moved, and the optimizer's steps alone have changed them since."""
        if {id(p) for p in self.parameters} != {id(p) for p in parameters}:
            return False
        return self.seen is None or self.seen.equal(_fingerprint(self.parameters))

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


@dataclass
class LiveMoves:
    """Makes moves where the parameters live.

    Args:
        optimizer: whose parameters move.
        noise, distribute: see :class:`~levelport.Teleporter`.

    Attributes:
        spent: evaluations of the last move, also where it has failed.
    """

    optimizer: torch.optim.Optimizer
    noise: Literal["refuse", "replay"]
    distribute: Callable[[Objective], Objective] | None
    spent: Cost = field(default_factory=Cost)

    def make(
        self,
        policy: TeleportPolicy[OptimizerSnapshot],
        loss: Loss | Batches,
        other: Loss | None,
        *,
        due: bool,
        random_state: RandomState | None,
    ) -> tuple[Taken, bool]:
        """Teleport on ``loss`` and move there, if ``other``, a loss on other samples, does not rise.

        Returns the move, and whether the parameters moved.
        """
        self.spent = Cost()
        inner = ParametersObjective(moving(self.optimizer), loss, noise=self.noise, random_state=random_state)
        start, generators = inner.current(), RandomState.capture(inner.device)
        end = start
        try:
            with restoring(generators.restore), restoring(lambda: inner.load(end)):
                objective = data_parallel(inner, start) if self.distribute is None else self.distribute(inner)
                before = objective.at(start, curvature=True)
                taken = policy.move(objective, before, StabilityLimit.of(innermost(self.optimizer)), due=due)
                unused = self._unused(loss, other)
                self.spent = objective.cost
                if unused is not None and taken.point is not before:
                    taken = check_unused(objective, unused, before, taken)
                    self.spent = objective.cost + unused.cost
                end = taken.point.x if taken.point is not before else start
        except NotDeterministicError as error:
            self.spent = inner.cost
            if self.noise == "replay":  # what differs are other random numbers than torch's
                raise
            raise NotDeterministicError(f"{error} {_REPLAY}") from None
        if not policy.first_step and math.isnan(taken.unused_change):
            self.spent = taken.move.result.cost
        return taken, end is not start

    def _unused(self, loss: Loss | Batches, other: Loss | Batches | None) -> Objective | None:
        """The loss on samples that a teleport on ``loss`` does not use, as far as there is one."""
        if isinstance(loss, Batches) and loss.unused:
            other = Batches(loss.loss, loss.unused)
        if other is None or self.distribute is not None:
            return None
        inner = ParametersObjective(moving(self.optimizer), other, noise=self.noise)
        return data_parallel(inner, inner.current())


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
    return torch.stack(torch._foreach_norm([p.detach() for p in parameters])).double().view(torch.int64)


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
