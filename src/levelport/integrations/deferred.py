"""What callbacks share: a :class:`~levelport.Teleporter` that begins when the framework has made the optimizer.

A framework makes the optimizer long after the user has made the callback, and hands over a checkpoint somewhere in
between. Wrong arguments are refused when the callback is made; a state that comes early waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from levelport import checks
from levelport.optim.schedules import Schedule
from levelport.optim.teleporter import Hook, Teleporter


class DeferredTeleporter:
    """When and how to teleport, and the teleporter once there is one.

    Args:
        schedule: when, counted in steps of the optimizer; None leaves it to :class:`~levelport.Teleporter`.
        on_teleport: called with the result of every teleport.
        how: other arguments of :class:`~levelport.Teleporter`; random numbers are replayed unless ``noise`` says not,
            since models in these frameworks usually have dropout.
    """

    def __init__(self, schedule: Schedule | None, on_teleport: Hook | None, how: Mapping[str, Any]) -> None:
        if on_teleport is not None:
            checks.function("on_teleport", on_teleport, of="result")
        self.schedule = schedule
        self.on_teleport = on_teleport
        self.how = {"noise": "replay", **how}
        self.teleporter: Teleporter | None = None
        self._waiting: Mapping[str, Any] | None = None
        # Wrong arguments raise here. Plain SGD takes all that are right; whether the framework's optimizer does is
        # known when the teleporter begins.
        Teleporter(torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0), schedule, **self.how)

    def begin(self, optimizer: torch.optim.Optimizer) -> Teleporter:
        """The teleporter of this optimizer, resumed if a checkpoint was loaded; the same one if it is known already."""
        if self.teleporter is None or self.teleporter.optimizer is not optimizer:
            self.teleporter = Teleporter(optimizer, self.schedule, **self.how)
            if self.on_teleport is not None:
                self.teleporter.register_teleport_hook(self.on_teleport)
        if self._waiting is not None:
            self.teleporter.load_state_dict(self._waiting)
            self._waiting = None
        return self.teleporter

    @property
    def begun(self) -> Teleporter:
        """The teleporter, which has begun."""
        assert self.teleporter is not None
        return self.teleporter

    def __getstate__(self) -> dict[str, Any]:
        """Without the teleporter: a copy of it would bring an optimizer that is not the framework's copy."""
        return {**self.__dict__, "teleporter": None, "_waiting": self.state_dict() or None}

    def state_dict(self) -> dict[str, Any]:
        """The teleporter's, or the one that waits for it; empty where there is neither."""
        return dict(self._waiting or {}) if self.teleporter is None else self.teleporter.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume, at once or when the teleporter begins."""
        self._waiting = state or None
        if self.teleporter is not None:
            self.begin(self.teleporter.optimizer)
