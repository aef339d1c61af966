"""Stop in the middle of a schedule, resume from a checkpoint, and end at the same bits.

python examples/checkpoint_resume.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from levelport.optim import Every, Teleported
from levelport.solvers import Krylov


def setting() -> tuple[nn.Module, Teleported, Callable[[], Tensor]]:
    torch.manual_seed(1)
    x, y = torch.randn(64, 5, dtype=torch.float64), torch.randn(64, 1, dtype=torch.float64)
    model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1)).double()
    sgd = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, dampening=0.9)
    return (
        model,
        Teleported(sgd, schedule=Every(10, start=5), solver=Krylov(max_hvps=10)),
        lambda: nn.functional.mse_loss(model(x), y),
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        checkpoint = Path(directory) / "checkpoint.pt"
        model, optimizer, loss = setting()
        for iteration in range(40):
            if iteration == 20:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint)
            optimizer.step(loss)
        print(f"in one go:    loss {loss().item():.17f}")

        resumed_model, optimizer, resumed_loss = setting()
        stored = torch.load(checkpoint, weights_only=True)
        resumed_model.load_state_dict(stored["model"])
        optimizer.load_state_dict(stored["optimizer"])
        for _ in range(20, 40):
            optimizer.step(resumed_loss)
        print(f"interrupted:  loss {resumed_loss().item():.17f}")
        same = all(torch.equal(p, q) for p, q in zip(model.parameters(), resumed_model.parameters(), strict=True))
        print("the parameters agree bit for bit" if same else "the parameters differ")
        if not same:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
