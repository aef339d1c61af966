"""Ignite: ``attach_teleports(trainer, optimizer, loss, Every(50))``.

The handler runs when an iteration starts, before the engine's own function computes a gradient. The teleporter that is
returned has a ``state_dict``, so Ignite's ``Checkpoint`` takes it: ``to_save={"teleporter": teleporter, ...}``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from ignite.engine import Engine, Events
from torch import Tensor

from levelport import checks
from levelport.integrations.deferred import DeferredTeleporter
from levelport.optim.schedules import Schedule
from levelport.optim.teleporter import Hook, Teleporter


def attach_teleports(
    trainer: Engine,
    optimizer: torch.optim.Optimizer,
    loss: Callable[[Any], Tensor],
    schedule: Schedule | None = None,
    *,
    accumulation: int = 1,
    on_teleport: Hook | None = None,
    **how: Any,
) -> Teleporter:
    """Teleport before some steps of an Ignite engine.

    Args:
        trainer: the engine, for instance of ``create_supervised_trainer``.
        optimizer: whose parameters teleport.
        loss: ``loss(batch)``, for instance ``lambda batch: loss_fn(model(batch[0]), batch[1])``. It has to set the mode
            itself, ``model.train()``, where an evaluation runs in between: the trainer's own function does so only
            after the event at which teleports happen.
        schedule: when, in steps of the optimizer; None chooses by its kind, see :class:`levelport.Teleporter`.
        accumulation: iterations per step, ``gradient_accumulation_steps`` of the trainer.
        on_teleport: called with the result of every teleport.
        how: other arguments of :class:`levelport.Teleporter`, such as ``solver``.
    """
    checks.whole("accumulation", accumulation, at_least=1)
    checks.function("loss", loss, of="batch")
    teleporter = DeferredTeleporter(schedule, on_teleport, how).begin(optimizer)

    @trainer.on(Events.ITERATION_STARTED)  # type: ignore[untyped-decorator, unused-ignore]  # Any where not installed
    def teleport(engine: Engine) -> None:
        if (engine.state.iteration - 1) % accumulation == 0:
            batch = engine.state.batch
            teleporter.maybe(lambda: loss(batch))

    return teleporter
