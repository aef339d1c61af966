"""Ignite: a supervised trainer with a handler.

python examples/integrations/ignite_handler.py
"""

from __future__ import annotations

import torch
from ignite.engine import create_supervised_trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from levelport import Every
from levelport.integrations.ignite import attach_teleports
from levelport.solvers import Krylov


def main() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    x = torch.randn(256, 5)
    loader = DataLoader(TensorDataset(x, x.prod(dim=1, keepdim=True)), batch_size=32)
    trainer = create_supervised_trainer(net, optimizer, nn.functional.mse_loss)
    attach_teleports(
        trainer,
        optimizer,
        lambda batch: nn.functional.mse_loss(net(batch[0]), batch[1]),
        Every(8),
        solver=Krylov(max_hvps=10),
        on_teleport=lambda r: print(f"loss {r.value_after:.4f}, gradient x {r.gain:.2f}"),
    )
    trainer.run(loader, max_epochs=3)


if __name__ == "__main__":
    main()
