"""A multilayer perceptron with Adam, a learning-rate scheduler and a teleport every 50 steps.

python examples/mlp_adam.py
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import nn

from levelport.optim import Every, Teleported


def main() -> None:
    torch.manual_seed(0)
    images, digits = load_digits(return_X_y=True)
    x, y = torch.tensor(images[:600] / 16.0, dtype=torch.float32), torch.tensor(digits[:600])
    model = nn.Sequential(nn.Linear(64, 32), nn.Softplus(), nn.Linear(32, 10))

    optimizer = Teleported(
        torch.optim.Adam(model.parameters(), lr=3e-3), schedule=Every(50, start=50), max_hvps=10, momentum="reset"
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=150)
    print(optimizer)
    for iteration in range(150):
        before = optimizer.last_teleport
        loss = optimizer.step(lambda: nn.functional.cross_entropy(model(x), y))
        scheduler.step()
        if optimizer.last_teleport is not before:
            result = optimizer.last_teleport
            assert result is not None
            print(f"step {iteration}: gradient norm {result.gradient_norm_start:.3f} -> {result.gradient_norm:.3f}")
        if iteration % 25 == 0 or iteration == 149:
            assert loss is not None
            print(f"step {iteration}: loss {loss.item():.4f}")
    accuracy = (model(x).argmax(1) == y).float().mean().item()
    print(f"training accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
