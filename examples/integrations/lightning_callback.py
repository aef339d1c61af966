"""Lightning: automatic optimization, with a callback.

python examples/integrations/lightning_callback.py
"""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from levelport import Every
from levelport.integrations.lightning import TeleportCallback
from levelport.solvers import Krylov


class Regression(pl.LightningModule):  # type: ignore[misc, unused-ignore]
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 1))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return nn.functional.mse_loss(self.net(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05)


def main() -> None:
    pl.seed_everything(0)
    x = torch.randn(256, 5)
    loader = DataLoader(TensorDataset(x, x.prod(dim=1, keepdim=True)), batch_size=32)
    teleports = TeleportCallback(
        Every(8),
        solver=Krylov(max_hvps=10),
        on_teleport=lambda r: print(f"loss {r.value_after:.4f}, gradient x {r.gain:.2f}"),
    )
    trainer = pl.Trainer(
        max_epochs=3,
        accelerator="cpu",
        callbacks=[teleports],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Regression(), loader)
    print(f"{trainer.global_step} steps")


if __name__ == "__main__":
    main()
