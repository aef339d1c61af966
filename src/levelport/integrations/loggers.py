"""A line per teleport, and per 200 declined steps, in TensorBoard or Weights & Biases, by ``register_teleport_hook``.

    log_to_tensorboard(teleporter, SummaryWriter("runs"))
    log_to_wandb(teleporter, wandb.init(mode="offline"))

Both take a :class:`~levelport.Teleporter` or a :class:`~levelport.Teleported`, and anything that has the one method
they call: neither package is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.hooks import RemovableHandle

from levelport.optim.first_step import TeleportStep
from levelport.optim.teleported import Teleported
from levelport.optim.teleporter import Teleporter


def scalars(result: TeleportStep) -> dict[str, float]:
    """Return the numbers to log, under names that loggers group."""
    values = {
        "gain": result.gain,
        "moved": float(result.moved),
        "gradient_norm_before": result.teleport.gradient_norm_start,
        "gradient_norm": result.teleport.gradient_norm,
        "loss_before": result.value_start,
        "loss": result.value_after,
        "kkt_residual": result.teleport.kkt_residual,
        "hvps": float(result.cost.hvps),
        "gradient_equivalents": result.cost.gradient_equivalents,
        "seconds": result.cost.seconds,
    }
    return {f"teleport/{name}": value for name, value in values.items()}


def log_to_tensorboard(source: Teleporter | Teleported, writer: Any) -> RemovableHandle:
    """Every teleport into a ``SummaryWriter``, at the number of the step; the handle's ``remove()`` ends that."""

    def write(line: dict[str, float | str]) -> None:
        for name, value in line.items():
            (writer.add_text if isinstance(value, str) else writer.add_scalar)(name, value, source.iteration)

    return _follow(source, write)


def log_to_wandb(source: Teleporter | Teleported, run: Any) -> RemovableHandle:
    """Every teleport into a W&B run, beside what the loop logs of the same step."""
    return _follow(source, lambda line: run.log({**line, "teleport/step": source.iteration}, commit=False))


def _follow(source: Teleporter | Teleported, write: Callable[[dict[str, float | str]], None]) -> RemovableHandle:
    return source.register_teleport_hook(
        lambda result: write({**scalars(result), "teleport/status": result.message}),
        on_decline=lambda steps, why: write({"teleport/declined": steps, "teleport/declined_because": why}),
    )
