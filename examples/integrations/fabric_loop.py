"""Fabric: a loop of one's own. Teleports call the module inside the one that Fabric has set up.

python examples/integrations/fabric_loop.py
"""

from __future__ import annotations

import torch
from lightning.fabric import Fabric
from torch import nn

from levelport import Every, Teleporter
from levelport.solvers import Krylov


def main() -> None:
    fabric = Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")
    fabric.seed_everything(0)
    net = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1))
    model, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.05))
    teleporter = Teleporter(optimizer, Every(10), solver=Krylov(max_hvps=10))
    x = torch.randn(128, 5)
    y = x.prod(dim=1, keepdim=True)
    for step in range(30):
        result = teleporter.maybe(lambda: nn.functional.mse_loss(model.module(x), y))
        if result is not None:
            print(f"step {step}: loss {result.value_after:.4f}, gradient x {result.gain:.2f}")
        optimizer.zero_grad()
        fabric.backward(nn.functional.mse_loss(model(x), y))
        optimizer.step()


if __name__ == "__main__":
    main()
