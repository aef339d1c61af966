"""Small problems of every kind that several test files share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from tests.functions import FUNCTIONS, Quadratic
from torch import Tensor

from levelport import LinearObjective, Objective


@dataclass(frozen=True)
class Case:
    """A function and where to start."""

    name: str
    fun: Callable[[Tensor], Tensor] | Objective
    start: Tensor


def labelled_data(samples: int = 60, features: int = 8, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Gaussian features and noisy ±1 labels."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(samples, features, generator=generator, dtype=torch.float64)
    noise = torch.randn(samples, generator=generator, dtype=torch.float64)
    truth = torch.randn(features, generator=generator, dtype=torch.float64)
    return X, torch.sign(X @ truth + noise)


def network_loss(activation: Callable[[Tensor], Tensor], penalty: float = 0.0) -> Callable[[Tensor], Tensor]:
    """The logistic loss of an 8-5-1 network as a function of its 45 flat weights."""
    X, y = labelled_data()

    def loss(w: Tensor) -> Tensor:
        hidden = activation(X @ w[:40].view(8, 5))
        return F.softplus(-y * (hidden @ w[40:])).mean() + penalty * w.square().sum()

    return loss


def network_start(seed: int = 1) -> Tensor:
    """Weights of the size that training starts with."""
    return 0.5 * torch.randn(45, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def all_cases() -> list[Case]:
    """Test functions, a quadratic, a logistic model, a smooth and a piecewise smooth network."""
    X, y = labelled_data()
    cases = [Case(name, f, torch.tensor(start, dtype=torch.float64)) for name, (f, start) in FUNCTIONS.items()]
    generator = torch.Generator().manual_seed(2)
    spectrum = torch.logspace(0, -6, 30, dtype=torch.float64)
    start = torch.randn(30, generator=generator, dtype=torch.float64)
    return [
        *cases,
        Case("quadratic", Quadratic.random(spectrum, 0), start),
        Case("logistic", LinearObjective.logistic(X, y, penalty=1e-3), torch.zeros(8, dtype=torch.float64)),
        Case("softplus network", network_loss(F.softplus, 1e-3), network_start()),
        Case("ReLU network", network_loss(torch.relu), network_start()),
    ]
