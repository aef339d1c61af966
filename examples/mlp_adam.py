"""A multilayer perceptron with Adam and a learning-rate scheduler, with a teleport every 50 steps and without.

    python examples/mlp_adam.py

At equal steps the teleports have evaluations in addition; the last line counts them.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import nn

from levelport.optim import Every, Never, Schedule, Teleported
from levelport.solvers import Krylov

STEPS = 150


def train(schedule: Schedule) -> tuple[float, float, float]:
    """Loss and accuracy at the end, and what the teleports cost in gradient equivalents."""
    torch.manual_seed(0)
    images, digits = load_digits(return_X_y=True)
    x, y = torch.tensor(images[:600] / 16.0, dtype=torch.float32), torch.tensor(digits[:600])
    model = nn.Sequential(nn.Linear(64, 32), nn.Softplus(), nn.Linear(32, 10))
    optimizer = Teleported(
        torch.optim.Adam(model.parameters(), lr=3e-3), schedule, solver=Krylov(max_hvps=10), momentum="reset"
    )
    costs: list[float] = []
    optimizer.register_teleport_hook(lambda result: costs.append(result.cost.gradient_equivalents))
    optimizer.register_teleport_hook(
        lambda result: print(
            f"step {optimizer.iteration - 1}: gradient norm {result.teleport.gradient_norm_start:.3f} -> "
            f"{result.teleport.gradient_norm:.3f}"
        )
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)
    print(optimizer)
    for _ in range(STEPS):
        loss = optimizer.step(lambda: nn.functional.cross_entropy(model(x), y))
        scheduler.step()
    assert loss is not None
    return loss.item(), (model(x).argmax(1) == y).float().mean().item(), sum(costs)


def main() -> None:
    for name, schedule in (("without teleports", Never()), ("with teleports", Every(50, start=50))):
        loss, accuracy, extra = train(schedule)
        print(
            f"{name}: loss {loss:.4f}, training accuracy {accuracy:.3f}, {STEPS} steps and {extra:g} gradients more\n"
        )


if __name__ == "__main__":
    main()
