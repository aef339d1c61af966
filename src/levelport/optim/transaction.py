"""A teleport and its first step as one move, and the way back from a move that turns out badly.

A teleport ends where the gradient is many times larger than before. A step size that served well until then is far
too long there: an optimizer with a fixed one would jump out of the valley. So the first step belongs to the move,

    w → w⁺ → w⁺ - η ∇f(w⁺),      η = 1/λ, halved until f(w⁺ - η ∇f(w⁺)) ≤ f(w⁺) - 0.1 η ‖∇f(w⁺)‖²,

λ the curvature along ∇f(w⁺) that the teleport reports. It ends at f ≤ f(w), with a gradient of ordinary size, or does
not take place (:func:`land`). Nor does it take place where f is more curved along that step than the optimizer's step
size can bear (:func:`bearable`), or where SGD's own next step would climb: the valley is lower, but too narrow for a
fixed step. What the optimizer does next may still go wrong, because its momentum points elsewhere. :class:`Watch`
looks at the losses that follow, and where one rises above the level that was left, parameters and optimizer state go
back.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from levelport.objective import Cost, Objective, Point, norm
from levelport.solvers import Certificate, Move, TeleportResult

_SHARE = 0.1  # of the predicted decrease
_TRIALS = 12  # halvings of 1/λ
_SHORTER = 4  # the move, its half, its quarter, its eighth
_PATIENCE = 10  # losses after a move that must not rise above the level at all
_WATCHED = 50  # losses after a move that must not climb again
_TOLERATED = 0.05  # of the lowest loss since the move, by which they may
_BEARABLE = 0.9  # of the curvature at which a fixed step diverges
_KEPT = 20  # losses from which the noise of the run is judged


@dataclass(frozen=True)
class Landing:
    """Where a move ends: the point, and the size of the gradient step that led there from the teleport (0: none)."""

    point: Point
    step: float = 0.0


def bearable(optimizer: torch.optim.Optimizer) -> float:
    """The curvature above which steps of the optimizer diverge on a quadratic; infinite where nothing is known.

    2 (1 + momentum)/(lr (1 - dampening)) for torch's SGD (Polyak, 1964), least over the groups.
    """
    if not isinstance(optimizer, torch.optim.SGD):
        return math.inf
    limits = (
        2.0 * (1.0 + group["momentum"]) / max(float(group["lr"]) * (1.0 - group["dampening"]), 1e-300)
        for group in optimizer.param_groups
    )
    return _BEARABLE * min(limits)


def own_step(optimizer: torch.optim.Optimizer) -> float:
    """The longest step size of torch's SGD; 0 for optimizers whose next step cannot be foretold."""
    sgd = isinstance(optimizer, torch.optim.SGD)
    return max((float(group["lr"]) for group in optimizer.param_groups), default=0.0) if sgd else 0.0


def land(objective: Objective, start: Point, move: Move, optimizer: torch.optim.Optimizer | None = None) -> Landing:
    """Take the first step; the start itself where none descends, or where ``optimizer`` could not go on from there.

    It could not where f is more curved than it can bear, or where its own next step would not descend.
    """
    landing = _first_step(objective, start, move, math.inf if optimizer is None else bearable(optimizer))
    point, lr = landing.point, 0.0 if optimizer is None else own_step(optimizer)
    if lr > 0.0 and point.x is not start.x:
        following = objective.at(point.x - lr * point.gradient).value
        if not following <= point.value:
            return Landing(start)
    return landing


def _first_step(objective: Objective, start: Point, move: Move, bearable: float) -> Landing:
    if move.lower is not None:
        return Landing(move.lower if not move.result.curvature > bearable else start)
    end = move.point
    if end.x is start.x or end.gradient_norm == 0.0:
        return Landing(end)
    curvature = abs(move.result.curvature)
    # Without a curvature, the step that leads back as far as the teleport led away.
    size = 1.0 / curvature if curvature > 0.0 else float(norm(end.x - start.x)) / end.gradient_norm
    for _ in range(_TRIALS):
        asked = _SHARE * size * end.gradient_norm * end.gradient_norm  # in this order: a square may leave the range
        trial = objective.at(end.x - size * end.gradient)
        if math.isfinite(trial.value) and trial.value <= min(end.value - asked, start.value):
            averaged = Certificate.averaged(end, trial) if math.isfinite(bearable) else None
            return Landing(start) if averaged is not None and averaged.curvature > bearable else Landing(trial, size)
        size *= 0.5
    return Landing(start)


@dataclass(frozen=True)
class Unused:
    """What a move does to f on samples that it was not made for.

    Attributes:
        landing: where the move may end.
        change: of f on those samples, from the start to there.
        share: of the move that is left.
    """

    landing: Landing
    change: float
    share: float

    def completed(self, result: TeleportResult, cost: Cost) -> TeleportResult:
        """The result of the move with what was found here."""
        detail = result.detail
        if self.share == 0.0:
            detail = "not made: the loss rises on samples that were not used"
        elif self.share < 1.0:
            detail = f"shortened to {self.share:g}: further on the loss rises on samples that were not used"
        after, cost = self.landing.point.value, replace(cost, seconds=result.cost.seconds)
        return replace(result, detail=detail, unused_change=self.change, value_after=after, cost=cost)


def check_unused(seen: Objective, unused: Objective, start: Point, landing: Landing) -> Unused:
    """Shorten the move until f does not rise on ``unused``; the start itself where no part of it is harmless.

    Along the way f on ``seen`` has to stay at or below the start's, too: it need not be convex.
    """
    before = unused.at(start.x).value
    share, point = 1.0, landing.point
    for _ in range(_SHORTER):
        change = unused.at(point.x).value - before
        if change <= 0.0 and point.value <= start.value:
            return Unused(Landing(point, landing.step), change, share)
        share *= 0.5
        point = seen.at(torch.lerp(start.x, landing.point.x, share))
    return Unused(Landing(start), 0.0, 0.0)


class Losses:
    """The last losses of a run, and how far they jump by themselves."""

    def __init__(self, known: Iterable[float] = ()) -> None:
        self._known: deque[float] = deque(known, maxlen=_KEPT)

    def add(self, value: float) -> None:
        """Remember the loss before a step."""
        if math.isfinite(value):
            self._known.append(value)

    def clear(self) -> None:
        """After a move the old losses say nothing about the next."""
        self._known.clear()

    @property
    def jump(self) -> float:
        """The largest rise from one loss to the next: what the batches, or the optimizer, do without a teleport."""
        return max((later - earlier for earlier, later in pairwise(self._known)), default=0.0)

    def state_dict(self) -> list[float]:
        """Plain numbers."""
        return list(self._known)


@dataclass
class Watch:
    """A move that can still be undone.

    Attributes:
        x: the parameters before it, flat.
        state: the optimizer's state before it.
        level: the loss before it, plus the margin.
        margin: what the run jumps by itself.
        lowest: the lowest loss since.
        seen: losses since.
    """

    x: Tensor
    state: dict[Any, Any]
    level: float
    margin: float
    lowest: float = math.inf
    seen: int = 0

    @classmethod
    def over(cls, x: Tensor, optimizer: torch.optim.Optimizer, level: float, jump: float) -> Watch:
        """Remember what is needed for the way back."""
        margin = 2.0 * max(0.0, jump) + 1e-6 * abs(level)
        return cls(x, _copied(optimizer.state), level + margin, margin)

    def rises(self, value: float) -> bool:
        """Whether the loss is above the level that was left, or climbs again: the valley was too narrow after all."""
        self.seen += 1
        self.lowest = min(self.lowest, value)
        if self.seen > _WATCHED:
            return not math.isfinite(value)
        climbs = value > self.lowest + _TOLERATED * abs(self.lowest) + self.margin
        return climbs or not math.isfinite(value) or (self.seen <= _PATIENCE and value > self.level)

    @property
    def proved(self) -> bool:
        """Whether the move has stood the first test."""
        return self.seen >= _PATIENCE

    def state_dict(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """The same with the numbers of parameters in place of the parameters themselves."""
        numbers = {p: number for number, p in enumerate(_parameters(optimizer))}
        state = {numbers[p]: entry for p, entry in self.state.items()}
        names = ("level", "margin", "lowest", "seen")
        return {"x": self.x, "state": _copied(state)} | {name: getattr(self, name) for name in names}

    @classmethod
    def of(cls, state_dict: dict[str, Any], optimizer: torch.optim.Optimizer) -> Watch:
        """The inverse of :meth:`state_dict`."""
        parameters = _parameters(optimizer)
        x = state_dict["x"].to(parameters[0].device) if parameters else state_dict["x"]
        state = {parameters[number]: _clone(entry) for number, entry in state_dict["state"].items()}
        return cls(x, state, *(state_dict[name] for name in ("level", "margin", "lowest", "seen")))

    def restore(self, optimizer: torch.optim.Optimizer, parameters: list[Tensor]) -> None:
        """Put the parameters and the optimizer's state back."""
        parts = self.x.split([p.numel() for p in dict.fromkeys(parameters)])
        with torch.no_grad():
            for p, part in zip(dict.fromkeys(parameters), parts, strict=True):
                p.copy_(part.view_as(p))
        optimizer.state.clear()
        optimizer.state.update(self.state)


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _copied(state: Any) -> dict[Any, Any]:
    """A copy of an optimizer's state: tensors cloned, keys (the parameters) as they are."""
    return {key: _clone(value) for key, value in state.items()}


def _clone(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _clone(entry) for key, entry in value.items()}
    return list(value) if isinstance(value, list) else value
