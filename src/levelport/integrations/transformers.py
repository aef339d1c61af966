"""Transformers: ``Trainer(..., callbacks=[TeleportCallback(Every(50), batches)])``.

The Trainer does not show its callbacks the batch of a step, so teleports work on batches chosen once: f is their mean
loss in training mode and full precision, and every evaluation sees the same dropout masks. Its checkpoints get a file
of ours, ``levelport.pt``, from which training resumes bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback

from levelport import checks
from levelport.integrations.deferred import DeferredTeleporter
from levelport.objectives.batches import Batches
from levelport.optim.schedules import Schedule
from levelport.optim.teleporter import Hook, Teleporter

FILE = "levelport.pt"
"""Where schedule and solver stand, beside the Trainer's own files of a checkpoint."""


class TeleportCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]  # Any where not installed
    """Teleports before some steps of a Transformers ``Trainer``.

    Args:
        schedule: when, in steps of the optimizer; None chooses by its kind, see :class:`levelport.Teleporter`.
        batches: what to teleport on: a few batches as the model takes them, ``{"input_ids": ..., "labels": ...}``. Most
            steps evaluate all of them, so that a move can be undone.
        loss: ``loss(model, batch)``; None takes ``model(**batch).loss``.
        on_teleport: called with the result of every teleport.
        how: other arguments of :class:`levelport.Teleporter`, such as ``solver``.
    """

    def __init__(
        self,
        schedule: Schedule | None = None,
        batches: Sequence[Mapping[str, Any]] = (),
        *,
        loss: Callable[[Any, Any], Tensor] | None = None,
        on_teleport: Hook | None = None,
        **how: Any,
    ) -> None:
        if not batches or not all(isinstance(batch, Mapping) for batch in batches):
            raise ValueError(
                "batches must hold at least one batch as the model takes it, for instance "
                "[collator([dataset[i] for i in range(32)])]."
            )
        if loss is not None:
            checks.function("loss", loss, of="model, batch")
        self._batches = list(batches)
        self._loss = loss or (lambda model, batch: model(**batch).loss)
        self._deferred = DeferredTeleporter(schedule, on_teleport, how)

    @property
    def teleporter(self) -> Teleporter | None:
        """The teleporter; None before training starts."""
        return self._deferred.teleporter

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step > 0:
            path = _folder(args, state) / FILE
            if not path.exists():
                raise FileNotFoundError(
                    f"training resumes at step {state.global_step}, but {path} is not there: the checkpoint was made "
                    "without this callback or lies in another output_dir. Put the file there, or train anew."
                )
            self._deferred.load_state_dict(torch.load(path, weights_only=True))
        self._deferred.begin(kwargs["optimizer"])

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        model, device = kwargs["model"], next(kwargs["model"].parameters()).device
        # An evaluation leaves both in evaluation mode, and the Trainer turns them back only after this event.
        model.train()
        if callable(getattr(kwargs["optimizer"], "train", None)):
            kwargs["optimizer"].train()
        placed = [{name: _placed(entry, device) for name, entry in batch.items()} for batch in self._batches]
        self._deferred.begun.maybe(Batches(lambda batch: self._loss(model, batch), placed).mean)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            torch.save(self._deferred.state_dict(), _written(args, state) / FILE)


def _folder(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}"


def _written(args: Any, state: Any) -> Path:
    """The checkpoint that the Trainer has just written; in a hyperparameter search every trial has its own folder."""
    folder = _folder(args, state)
    if not state.is_hyper_param_search:
        return folder
    # The Trainer does not tell its callbacks which trial it is, but, where trials run one after the other, nothing else
    # has been written since.
    states = Path(args.output_dir).rglob(f"{folder.name}/trainer_state.json")
    newest = max(states, key=lambda path: path.stat().st_mtime_ns, default=None)
    return folder if newest is None else newest.parent


def _placed(entry: Any, device: torch.device) -> Any:
    return entry.to(device) if isinstance(entry, Tensor) else entry
