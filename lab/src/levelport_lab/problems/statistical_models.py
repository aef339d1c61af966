"""Statistical models to teleport on: convex or nearly so."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from levelport_lab.problems.datasets import load_data
from levelport_lab.problems.teleport_cases import Loss, Parameters, draw, model


def table(name: str, most: int = 500) -> tuple[Tensor, Tensor]:
    """Features with a constant column, and ±1 labels, of an embedded data set."""
    data = load_data(name)
    X = torch.tensor(data.X[:most], dtype=torch.float64)
    return torch.cat([X, torch.ones(len(X), 1, dtype=torch.float64)], 1), torch.tensor(data.y[:most]).double()


def conditioned(samples: int, features: int, condition: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Gaussian features with geometrically falling scales, linear predictions of a random truth, and noise."""
    normal = draw(seed)
    scales = torch.logspace(0.0, -0.5 * torch.log10(torch.tensor(condition)).item(), features, dtype=torch.float64)
    X = normal(samples, features) * scales
    return X, X @ normal(features), normal(samples)


def linear(loss_of_prediction: object, X: Tensor, reg: float) -> tuple[Loss, Parameters]:
    """mean ℓ(X w) + reg ‖w‖², from w = 0."""
    assert callable(loss_of_prediction)

    def loss(p: Parameters) -> Tensor:
        value: Tensor = loss_of_prediction(X @ p["w"]).mean() + reg * p["w"].square().sum()
        return value

    return loss, {"w": torch.zeros(X.shape[1], dtype=torch.float64)}


def logistic(name: str, reg: float) -> tuple[Loss, Parameters]:
    """Logistic regression on an embedded data set."""
    X, y = table(name)
    return linear(lambda z: -F.logsigmoid(y * z), X, reg)


def poisson(samples: int, features: int, condition: float, seed: int, counts: int) -> tuple[Loss, Parameters]:
    """Counts, drawn with a seed of their own, with a mean that is the exponential of a prediction."""
    X, z, _ = conditioned(samples, features, condition, seed)
    seen = torch.poisson(torch.exp(0.5 * z), generator=torch.Generator().manual_seed(counts))
    return linear(lambda p: torch.exp(p) - seen * p, X, 1e-4)


def huber(
    samples: int, features: int, condition: float, seed: int, *, outlier: float, beyond: float
) -> tuple[Loss, Parameters]:
    """Regression where noise ``beyond`` a threshold comes with an outlier."""
    X, z, noise = conditioned(samples, features, condition, seed)
    y = z + 0.3 * noise + outlier * (noise > beyond)
    return linear(lambda p: torch.sqrt(1.0 + (p - y).square()) - 1.0, X, 1e-4)


def least_squares(samples: int, features: int, seed: int) -> tuple[Loss, Parameters]:
    """Badly conditioned, with hardly any penalty."""
    X, z, noise = conditioned(samples, features, 1e4, seed)
    return linear(lambda p: 0.5 * (p - z - 0.1 * noise).square(), X, 1e-6)


@model("statistical", 0, 50)
def _logistic_sonar() -> tuple[Loss, Parameters]:
    return logistic("conn-bench-sonar-mines-rocks", 1e-3)


@model("statistical", 5, 300)
def _logistic_musk() -> tuple[Loss, Parameters]:
    return logistic("musk-1", 1e-5)


@model("statistical", 0, 5, 300)
def _poisson_regression() -> tuple[Loss, Parameters]:
    return poisson(300, 40, 1e2, seed=1, counts=2)


@model("statistical", 0, 50)
def _huber_regression() -> tuple[Loss, Parameters]:
    return huber(300, 60, 1e3, seed=3, outlier=5.0, beyond=1.5)


@model("statistical", 0, 50)
def _least_squares() -> tuple[Loss, Parameters]:
    return least_squares(400, 100, seed=4)


def digits(samples: int) -> tuple[Tensor, Tensor]:
    """8×8 images as rows, and their classes."""
    data = load_data("digits")
    return torch.tensor(data.X[:samples]).double(), torch.tensor(data.y[:samples]).long()


@model("statistical", 0, 50)
def _gaussian_mixture() -> tuple[Loss, Parameters]:
    normal = draw(7)
    X = normal(200, 4) + 2.0 * torch.sign(normal(200, 1))
    start = normal(3, 4)

    def loss(p: Parameters) -> Tensor:
        distance = (X[:, None] - p["mean"][None]).square() * torch.exp(-p["scale"])[None]
        log_density = -0.5 * distance.sum(2) - 0.5 * p["scale"].sum(1)[None] + F.log_softmax(p["weight"], 0)[None]
        return -torch.logsumexp(log_density, 1).mean() + 1e-2 * sum(v.square().sum() for v in p.values())

    return loss, {"mean": start, "scale": torch.zeros_like(start), "weight": torch.zeros(3, dtype=torch.float64)}
