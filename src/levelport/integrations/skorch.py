"""skorch: ``NeuralNetClassifier(..., callbacks=[Teleports(Every(50))])``.

The loss is the net's own, ``net.get_loss``, on the batch of the step.
"""

from __future__ import annotations

from typing import Any

from skorch.callbacks import Callback
from skorch.dataset import unpack_data
from torch import Tensor, nn

from levelport.integrations.deferred import DeferredTeleporter
from levelport.optim.schedules import Schedule
from levelport.optim.teleporter import Hook, Teleporter


class Teleports(Callback):  # type: ignore[misc, unused-ignore]  # Any where not installed
    """Teleports before some steps of a skorch net.

    Args:
        schedule: when, in steps of the optimizer; None chooses by its kind, see :class:`levelport.Teleporter`.
        on_teleport: called with the result of every teleport.
        how: other arguments of :class:`levelport.Teleporter`, such as ``{"solver": "auto"}``; a dict, since skorch
            clones its callbacks by the names of their arguments.
    """

    def __init__(
        self, schedule: Schedule | None = None, on_teleport: Hook | None = None, how: dict[str, Any] | None = None
    ) -> None:
        self.schedule = schedule
        self.on_teleport = on_teleport
        self.how = how
        self.initialize()

    def initialize(self) -> Teleports:
        """Plan anew; skorch calls this when it initializes a net."""
        # skorch takes every attribute for an argument, to clone and to set, unless its name ends in an underscore.
        self.deferred_ = DeferredTeleporter(self.schedule, self.on_teleport, self.how or {})
        return self

    def set_params(self, **params: Any) -> None:
        """As every callback's; the plan follows, also where the net is initialized already."""
        super().set_params(**params)
        self.initialize()

    @property
    def teleporter(self) -> Teleporter | None:
        """The teleporter; None before training starts."""
        return self.deferred_.teleporter

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        self.deferred_.begin(net.optimizer_)

    def on_batch_begin(self, net: Any, batch: Any = None, training: bool = False, **kwargs: Any) -> None:
        if not training:
            return
        for part in vars(net).values():  # modules and criteria of any name: skorch turns them back after this event
            if isinstance(part, nn.Module):
                part.train()

        def loss() -> Tensor:
            inputs, targets = unpack_data(batch)
            return net.get_loss(net.infer(inputs), targets, X=inputs, training=True)

        self.deferred_.begun.maybe(loss)
