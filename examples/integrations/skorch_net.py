"""skorch: a scikit-learn estimator that teleports.

python examples/integrations/skorch_net.py
"""

from __future__ import annotations

import torch
from skorch import NeuralNetRegressor
from torch import nn

from levelport import Every, Krylov
from levelport.integrations.skorch import Teleports


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1))


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(256, 5)
    net = NeuralNetRegressor(
        Net,
        optimizer=torch.optim.SGD,
        lr=0.05,
        max_epochs=3,
        batch_size=32,
        train_split=None,
        callbacks=[
            Teleports(
                Every(8),
                lambda r: print(f"loss {r.value_after:.4f}, gradient x {r.gain:.2f}"),
                {"solver": Krylov(max_hvps=10)},
            )
        ],
    )
    net.fit(x.numpy(), x.prod(dim=1, keepdim=True).numpy())


if __name__ == "__main__":
    main()
