"""Lightning: ``Trainer(callbacks=[TeleportCallback(Every(50))])``, with automatic and with manual optimization.

A teleport takes place before the first batch of a step, so that no gradient is out of date: with
``accumulate_grad_batches=4`` that is every fourth batch. It works on the loss of that batch, in full precision and with
the random numbers of this moment in every evaluation. ``global_step`` counts steps, and a teleport is none. Evaluations
leave the buffers of the module as they were; what ``training_step`` keeps in plain attributes is not put back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
from torch import Tensor, nn

from levelport import checks
from levelport.integrations.deferred import DeferredTeleporter
from levelport.integrations.loggers import scalars
from levelport.optim.schedules import Schedule
from levelport.optim.teleporter import SILENT_STEPS, Hook, Teleporter


class TeleportCallback(Callback):  # type: ignore[misc, unused-ignore]  # Any where not installed
    """Teleports before some steps of a Lightning ``Trainer``; resumes with its checkpoints, bit for bit.

    Args:
        schedule: when, in steps of the optimizer; None chooses by its kind, see :class:`levelport.Teleporter`.
        loss: ``loss(module, batch)``, the loss to teleport on; None takes ``training_step``, with its logging switched
            off; where that skips a batch by returning None, no teleport takes place. Needed with manual optimization
            and where ``training_step`` updates metrics.
        optimizer: which one, where ``configure_optimizers`` returns several; each may have a callback of its own.
        log: whether the Trainer's loggers get a line per teleport, and per 200 declined steps.
        on_teleport: called with the result of every teleport.
        how: other arguments of :class:`levelport.Teleporter`, such as ``solver``.
    """

    def __init__(
        self,
        schedule: Schedule | None = None,
        *,
        loss: Callable[[Any, Any], Tensor] | None = None,
        optimizer: int | None = None,
        log: bool = True,
        on_teleport: Hook | None = None,
        **how: Any,
    ) -> None:
        if loss is not None:
            checks.function("loss", loss, of="module, batch")
        if optimizer is not None:
            checks.whole("optimizer", optimizer)
        self._deferred = DeferredTeleporter(schedule, on_teleport, how)
        self._loss = loss
        self._which = optimizer
        self._log = log
        self._step = -1  # the global step that was looked at last
        self._indexed = True  # whether training_step takes the number of the batch

    @property
    def teleporter(self) -> Teleporter | None:
        """The teleporter; None before training starts."""
        return self._deferred.teleporter

    @property
    def state_key(self) -> str:
        """One per optimizer: Lightning allows several callbacks of a kind if their keys differ."""
        key: str = super().state_key if self._which is None else self._generate_state_key(optimizer=self._which)
        return key

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._step = -1  # a fit begins; what a checkpoint says of the step comes after this

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._loss is None:
            _refuse_side_effects(pl_module)
            # Lightning asks in the same way.
            self._indexed = is_param_in_hook_signature(pl_module.training_step, "batch_idx", min_args=2)
        if len(trainer.optimizers) > 1 and self._which is None:
            raise ValueError(
                f"configure_optimizers returns {len(trainer.optimizers)} optimizers; say whose parameters teleport: "
                "TeleportCallback(..., optimizer=0, loss=lambda module, batch: ...)."
            )
        which = self._which or 0
        if which >= len(trainer.optimizers):
            raise ValueError(
                f"optimizer={which} counts from 0, and configure_optimizers returns {len(trainer.optimizers)} of them."
            )
        self._deferred.begin(trainer.optimizers[which])

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == self._step:  # in the middle of an accumulation
            return
        self._step = trainer.global_step

        arguments = (batch, batch_idx) if self._indexed else (batch,)
        teleporter = self._deferred.begun
        counted, evaluated = teleporter.iteration + 1, False

        def loss() -> Tensor:
            nonlocal evaluated
            at_trial, evaluated = evaluated, True
            if self._loss is not None:
                return self._loss(pl_module, batch)
            with _silent(pl_module):
                output = pl_module.training_step(*arguments)
            if output is None:
                if not at_trial:
                    raise _BatchSkipped
                return teleporter.parameters()[0].sum() * math.nan  # of a trial point, not of the batch
            return output["loss"] if isinstance(output, Mapping) else output

        try:
            result = teleporter.maybe(_Call(pl_module, loss))
        except _BatchSkipped:
            result, teleporter.iteration = None, counted  # Lightning counts a step here, too
        declined = teleporter.policy.declined if teleporter.schedule.watches else 0
        metrics: dict[str, float] = {}
        if result is not None:
            metrics = scalars(result)
        elif declined > 0 and declined % SILENT_STEPS == 0:
            metrics = {"teleport/declined": float(declined)}
        if metrics and self._log:
            for logger in trainer.loggers:
                logger.log_metrics(metrics, step=trainer.global_step)

    def state_dict(self) -> dict[str, Any]:
        return {"teleporter": self._deferred.state_dict(), "step": self._step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._deferred.load_state_dict(state_dict["teleporter"])
        self._step = state_dict["step"]


class _BatchSkipped(Exception):
    """``training_step`` returned None: Lightning leaves this batch out."""


class _Call(nn.Module):
    """A loss as a call of a module around the LightningModule.

    Modules that are called, and those inside them, work on copies of their buffers in every evaluation; nothing calls
    the LightningModule itself.
    """

    def __init__(self, module: LightningModule, loss: Callable[[], Tensor]) -> None:
        super().__init__()
        self.module, self.loss = module, loss

    def forward(self) -> Tensor:
        return self.loss()


@contextmanager
def _silent(module: LightningModule) -> Iterator[None]:
    """``self.log`` and ``self.log_dict`` do nothing in here: trial points are no part of the training curve."""
    module.log = module.log_dict = lambda *args, **kwargs: None
    try:
        yield
    finally:
        del module.log, module.log_dict


def _refuse_side_effects(module: LightningModule) -> None:
    if not module.automatic_optimization:
        raise ValueError(
            "with manual optimization training_step takes steps of its own, so nothing can be teleported on it. Pass "
            "the loss: TeleportCallback(..., loss=lambda module, batch: ...)."
        )
    from torchmetrics import Metric

    metrics = [name for name, part in module.named_modules() if isinstance(part, Metric)]
    if metrics:
        raise ValueError(
            f"the module holds metrics ({', '.join(metrics)}), which training_step would update at every trial point. "
            "Pass the loss alone: TeleportCallback(..., loss=lambda module, batch: ...)."
        )
