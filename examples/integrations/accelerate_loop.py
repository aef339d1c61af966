"""Accelerate: a loop of one's own with gradient accumulation; the teleporter is part of the checkpoint.

python examples/integrations/accelerate_loop.py
"""

from __future__ import annotations

import functools
import tempfile

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from levelport import Every, Teleporter
from levelport.solvers import Krylov


def main() -> None:
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    net = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1))
    x = torch.randn(256, 5)
    loader = DataLoader(TensorDataset(x, x.prod(dim=1, keepdim=True)), batch_size=32)
    model, optimizer, batches = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.05), loader)
    teleporter = Teleporter(optimizer, Every(4), solver=Krylov(max_hvps=10))
    accelerator.register_for_checkpointing(teleporter)

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.mse_loss(model(inputs), targets)

    for _ in range(3):
        for index, (inputs, targets) in enumerate(batches):
            if index % 2 == 0:  # before the first of two batches that make a step
                result = teleporter.maybe(functools.partial(loss, inputs, targets))
                if result is not None:
                    print(f"loss {result.value_after:.4f}, gradient x {result.gain:.2f}")
            with accelerator.accumulate(model):
                accelerator.backward(loss(inputs, targets))
                optimizer.step()
                optimizer.zero_grad()
    with tempfile.TemporaryDirectory() as folder:
        accelerator.save_state(folder)


if __name__ == "__main__":
    main()
