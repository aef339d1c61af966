"""The undo monitor: takes back a move after which the losses rise.

A move ends at no higher a loss (:mod:`levelport.optim.first_step`), but what the method does next may still go wrong:
its momentum points elsewhere, or its step size is too long for the new valley. :class:`UndoMonitor` looks at the losses
that follow. Where one rises above the level that was left, or climbs far from the lowest since, the move is undone.
After each undone move in a row the schedule is ignored for 1, 3, 7, … requests.

Only the move and the steps from it are undone. Where anyone else has changed the parameters (a checkpoint, averaged
weights), watching ends; and where the loss has risen at the point that was left as well, as when the data have become
harder, the rise is not the move's doing.

Losses of mini-batches rise by themselves. How far is told by those before the move; where too few of them were seen, by
the first ones after it, and until then only a sharp rise counts. A level is a loss of the steps, never of something
else that was teleported on: only losses of one kind can be compared.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

_PATIENCE = 10  # steps after a move in which losses must not rise above the level at all
_WATCHED = 50  # steps after a move in which they must not climb again
_TOLERATED = 0.05  # of the lowest loss since the move, by which they may
_REGAINED = 0.25  # and part of what the move and the steps after it have gained
_FEWEST = 5  # losses from which the noise of the run can be judged before a move
_SHARP = 3.0  # times the level: what a loss may rise above it while the noise is not known

KEPT = 20
"""Losses from which the noise of the run is judged, where so many are known."""

Back = TypeVar("Back")
"""Whatever leads back: parameters and state of an optimizer, a point and the state of a step rule."""


class RecentLosses:
    """The last losses of a run, without a gap, and how far they jump by themselves.

    Attributes:
        since: how many there were since the last teleport.
    """

    def __init__(self, known: Iterable[float] = (), since: int = 0) -> None:
        self._known: deque[float] = deque(known, maxlen=KEPT)
        self.since = since

    def add(self, value: float) -> None:
        """Remember the loss before a step; an unknown one ends the row."""
        if math.isfinite(value):
            self._known.append(value)
            self.since += 1
        else:
            self.clear()

    def clear(self) -> None:
        """There was a gap."""
        self._known.clear()
        self.since = 0

    @property
    def last(self) -> float:
        """The loss before the last step; NaN where it is unknown."""
        return self._known[-1] if self._known else math.nan

    @property
    def jump(self) -> float | None:
        """The largest rise from one loss to the next: what the batches, or the optimizer, do without a teleport.

        Among the losses since the last teleport, where there are enough; None where there are not enough at all.
        """
        if len(self._known) < _FEWEST:
            return None
        among = list(self._known)[-max(self.since, _FEWEST) :]
        return max(later - earlier for earlier, later in pairwise(among))

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        return {"known": list(self._known), "since": self.since}


@dataclass
class _Watched:
    """The losses after a move, held against the level that it left.

    Attributes:
        level: the loss before it; where that is NaN, the first one after it.
        margin: what the run jumps by itself; None while it is unknown.
        lowest: the lowest loss since.
        steps: taken since.
        known_from: the step from which the margin was known.
    """

    level: float
    margin: float | None = None
    lowest: float = math.inf
    steps: int = 0
    known_from: int = 0

    def learn(self, jump: float | None) -> None:
        """The largest rise from one loss to the next without a move: the test begins."""
        if jump is not None:
            self.margin = 2.0 * max(0.0, jump) + 1e-6 * abs(self.level)
            self.known_from = self.steps

    def rises(self, value: float) -> bool:
        """Whether the loss is above the level that was left, or climbs again: the valley was too narrow after all."""
        self.steps += 1
        self.lowest = min(self.lowest, value)
        self.level = value if math.isnan(self.level) else self.level
        if not math.isfinite(value):
            return True
        if self.margin is None:
            return value > self.level + _SHARP * abs(self.level)
        won = max(0.0, self.level - self.lowest)
        climbs = value > self.lowest + max(_TOLERATED * abs(self.lowest), _REGAINED * won) + self.margin
        return climbs or (self.steps <= self.known_from + _PATIENCE and value > self.level + self.margin)

    @property
    def proved(self) -> bool:
        """Whether the move has stood the first test."""
        return self.margin is not None and self.steps >= self.known_from + _PATIENCE

    @property
    def ended(self) -> bool:
        """Whether what happens from now on is no longer the move's doing."""
        return self.steps >= _WATCHED


class UndoMonitor(Generic[Back]):
    """Watches the losses after the last move.

    Args:
        noisy: whether losses may rise by themselves, from batch to batch; f itself does not.

    Attributes:
        undone: moves taken back.
        back: what leads back from the last move; None where there is none to watch.
    """

    def __init__(self, *, noisy: bool = False) -> None:
        self.undone = 0
        self.back: Back | None = None
        self._watch: _Watched | None = None
        self._noisy = noisy
        self._recent = RecentLosses()
        self._skip = 0  # requests of the schedule that are still ignored
        self._failures = 0  # in a row

    @property
    def watching(self) -> bool:
        """Whether a move may still be undone, so that the next loss is asked for."""
        return self._watch is not None

    @property
    def steps(self) -> int:
        """Taken since the last move, while it is watched."""
        return 0 if self._watch is None else self._watch.steps

    def rises(self, value: float) -> bool:
        """Whether the last move should be undone, now that the loss is ``value``."""
        if self._watch is None:
            return False
        if self._watch.margin is None and self._recent.since >= KEPT:
            self._watch.learn(self._recent.jump)
        if self._watch.rises(value):
            return True
        self._failures = 0 if self._watch.proved else self._failures
        if self._watch.ended:
            self.end()
        return False

    def blames_move(self, before: float, value: float) -> bool:
        """Whether a rise to ``value`` is the move's doing: the loss at the point that was left is still the level.

        ``before`` is this step's loss there. Where it is higher, too, the data have changed.
        """
        assert self._watch is not None
        if not math.isfinite(before):
            return False
        if self._watch.margin is None or not math.isfinite(value):
            return not value <= before
        return before <= self._watch.level + self._watch.margin

    def undo(self) -> Back:
        """The way back from the last move, which counts as a failure."""
        back = self.back
        assert back is not None
        self.end()
        self.undone += 1
        self._failures += 1
        self._skip = 2**self._failures - 1
        return back

    def unseen(self) -> None:
        """A step was taken without a look at the loss before it."""
        self._recent.clear()
        if self._watch is not None:
            self._watch.steps += 1
            if self._watch.ended:
                self.end()

    def end(self) -> None:
        """Watch no longer. The copy on the way back is as large as the parameters and the state."""
        self.back, self._watch = None, None

    def grants(self, due: bool, value: float) -> bool:
        """Whether a teleport that is due before the step from ``value`` may take place."""
        self._recent.add(value)
        if due and self._skip > 0:
            self._skip -= 1
            return False
        return due

    def watch(self, level: float, back: Back) -> None:
        """A move has been made, from the loss ``level`` of the steps; NaN where it was made on something else."""
        self._watch, self.back = _Watched(self._recent.last if math.isnan(level) else level), back
        self._watch.learn(self._recent.jump if self._noisy else 0.0)

    def forget(self) -> None:
        """After a teleport, whatever came of it, the losses before it say little about the noise after it."""
        self._recent.since = 0

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers; the way back is the owner's to store."""
        return {
            "undone": self.undone,
            "skip": self._skip,
            "failures": self._failures,
            "recent": self._recent.state_dict(),
            "watch": None if self._watch is None else asdict(self._watch),
        }

    def load_state_dict(self, state: Mapping[str, Any], back: Back | None) -> None:
        """The inverse of :meth:`state_dict`."""
        self.undone, self._skip, self._failures = state["undone"], state["skip"], state["failures"]
        self._recent = RecentLosses(**state["recent"])
        self._watch = None if state["watch"] is None else _Watched(**state["watch"])
        self.back = back


@dataclass(frozen=True)
class OptimizerSnapshot:
    """The way back of a torch optimizer: the parameters that moved, what they were, flat, and its state as it was."""

    parameters: list[Tensor]
    x: Tensor
    state: dict[Any, Any]

    @classmethod
    def to(cls, x: Tensor, parameters: list[Tensor], optimizer: torch.optim.Optimizer) -> OptimizerSnapshot:
        """Remember what is needed."""
        return cls(list(dict.fromkeys(parameters)), x, _copied(optimizer.state))

    def leads_to(self, parameters: list[Tensor]) -> bool:
        """Whether these are the parameters that moved, no more and no fewer."""
        return {id(p) for p in self.parameters} == {id(p) for p in parameters}

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


def fingerprint(parameters: list[Tensor]) -> Tensor:
    """Numbers that change when anyone writes to the parameters, by whatever means: their norms, bit for bit."""
    with torch.no_grad():
        return torch.stack(torch._foreach_norm(parameters)).double().view(torch.int64)


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
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
