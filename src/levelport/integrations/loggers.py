"""A line per teleport, and per 200 declined steps, in TensorBoard or Weights & Biases, by ``register_teleport_hook``.

    log_to_tensorboard(teleporter, SummaryWriter("runs"))
    log_to_wandb(teleporter, wandb.init(mode="offline"))

Both take a :class:`~levelport.Teleporter` or a :class:`~levelport.Teleported`, and anything that has the one method
they call: neither package is imported.
"""

from __future__ import annotations

from typing import Any

from torch.utils.hooks import RemovableHandle

from levelport.optim.first_step import TeleportStep
from levelport.optim.teleported import Teleported
from levelport.optim.teleporter import Teleporter


def scalars(result: TeleportStep, prefix: str = "teleport") -> dict[str, float]:
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
    return {f"{prefix}/{name}": value for name, value in values.items()}


def log_to_tensorboard(source: Teleporter | Teleported, writer: Any, *, prefix: str = "teleport") -> RemovableHandle:
    """Every teleport into a ``SummaryWriter``, at the number of the step; the handle's ``remove()`` ends that."""

    def write(result: TeleportStep) -> None:
        for name, value in scalars(result, prefix).items():
            writer.add_scalar(name, value, source.iteration)
        writer.add_text(f"{prefix}/status", result.message, source.iteration)

    def declined(steps: int, why: str) -> None:
        writer.add_scalar(f"{prefix}/declined", steps, source.iteration)
        writer.add_text(f"{prefix}/declined_because", why, source.iteration)

    return source.register_teleport_hook(write, on_decline=declined)


def log_to_wandb(source: Teleporter | Teleported, run: Any, *, prefix: str = "teleport") -> RemovableHandle:
    """Every teleport into a W&B run, beside what the loop logs of the same step."""

    def write(result: TeleportStep) -> None:
        line = {**scalars(result, prefix), f"{prefix}/step": source.iteration, f"{prefix}/status": result.message}
        run.log(line, commit=False)

    def declined(steps: int, why: str) -> None:
        line = {f"{prefix}/declined": steps, f"{prefix}/declined_because": why, f"{prefix}/step": source.iteration}
        run.log(line, commit=False)

    return source.register_teleport_hook(write, on_decline=declined)
