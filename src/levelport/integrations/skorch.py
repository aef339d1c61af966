"""skorch: ``NeuralNetClassifier(..., callbacks=[Teleports(Every(50))])``.

The loss is the net's own, ``net.get_loss``, on the batch of the step.
"""

from __future__ import annotations

from typing import Any

from skorch.callbacks import Callback
from skorch.dataset import unpack_data
from torch import Tensor

from levelport.integrations.planned import Planned
from levelport.optim.schedules import Schedule
from levelport.optim.teleporter import Hook, Teleporter


class Teleports(Callback):  # type: ignore[misc, unused-ignore]  # Any where not installed
    """Teleports before some steps of a skorch net.

    Args:
        schedule: when, in steps of the optimizer; None chooses by its kind, see :class:`levelport.Teleporter`.
        on_teleport: called with the result of every teleport.
        how: other arguments of :class:`levelport.Teleporter`, such as ``{"max_hvps": 5}``; a dict, since skorch clones
            its callbacks by the names of their arguments.
    """

    def __init__(
        self, schedule: Schedule | None = None, on_teleport: Hook | None = None, how: dict[str, Any] | None = None
    ) -> None:
        self.schedule = schedule
        self.on_teleport = on_teleport
        self.how = how
        self._planned = Planned(schedule, on_teleport, how or {})

    @property
    def teleporter(self) -> Teleporter | None:
        """The teleporter; None before training starts."""
        return self._planned.teleporter

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        self._planned.begin(net.optimizer_)

    def on_batch_begin(self, net: Any, batch: Any = None, training: bool = False, **kwargs: Any) -> None:
        if not training:
            return
        net.module_.train()

        def loss() -> Tensor:
            inputs, targets = unpack_data(batch)
            return net.get_loss(net.infer(inputs), targets, X=inputs, training=True)

        self._planned.maybe(loss)
