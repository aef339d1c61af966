"""Mini-batch training with full-batch teleports, once every few epochs, and without.

    python examples/minibatch.py

The steps see one batch each; the teleports work on all data, batch by batch, so memory stays that of one batch.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from levelport.optim import Batches, Every, Never, Schedule, Teleported
from levelport.solvers import Krylov


def train(schedule: Schedule) -> None:
    torch.manual_seed(0)
    images, digits = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images[:1000] / 16.0, dtype=torch.float32), torch.tensor(digits[:1000]))
    loader = DataLoader(data, batch_size=100, shuffle=True)
    model = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.Softplus(), nn.Linear(32, 10))

    def loss_on(x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model(x), y)

    fixed = [tuple(batch) for batch in DataLoader(data, batch_size=250)]
    optimizer = Teleported(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.9),
        schedule,
        teleport_on=Batches(loss_on, fixed),
        solver=Krylov(max_hvps=8),
    )
    for epoch in range(8):
        for x, y in loader:
            optimizer.step(lambda x=x, y=y: loss_on(x, y))  # type: ignore[misc]
        result = optimizer.last_teleport
        gain = f", last teleport: gradient norm x {result.gain:.2f}" if result is not None else ""
        with torch.no_grad():
            total = sum(loss_on(x, y).item() * len(x) for x, y in fixed) / len(data)
        print(f"epoch {epoch}: loss {total:.4f}{gain}")


def main() -> None:
    for schedule in (Never(), Every(30, start=20)):
        print(f"teleports: {schedule}")
        train(schedule)


if __name__ == "__main__":
    main()
