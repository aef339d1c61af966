"""Statistical models of the zoo: mostly convex, some nearly so."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from levelport_lab.bench.zoo import Loss, Parameters, draw, species
from levelport_lab.problems.datasets import load_data


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


def student(samples: int, features: int, seed: int, *, spread: float) -> tuple[Loss, Parameters]:
    """Regression with heavy tails, the heavier the smaller ``spread``; not convex."""
    X, z, noise = conditioned(samples, features, 1e2, seed)
    y = z + noise / (spread + noise.abs().roll(1))
    return linear(lambda p: torch.log1p((p - y).square()), X, 1e-4)


def least_squares(samples: int, features: int, seed: int) -> tuple[Loss, Parameters]:
    """Badly conditioned, with hardly any penalty."""
    X, z, noise = conditioned(samples, features, 1e4, seed)
    return linear(lambda p: 0.5 * (p - z - 0.1 * noise).square(), X, 1e-6)


def squared_hinge(name: str) -> tuple[Loss, Parameters]:
    """Piecewise quadratic, on an embedded data set."""
    X, y = table(name)
    return linear(lambda z: F.relu(1.0 - y * z).square(), X, 1e-3)


@species("statistical", 5, 50, 300)
def _logistic_ionosphere() -> tuple[Loss, Parameters]:
    return logistic("ionosphere", 1e-6)


@species("statistical", 0, 50)
def _logistic_sonar() -> tuple[Loss, Parameters]:
    return logistic("conn-bench-sonar-mines-rocks", 1e-3)


@species("statistical", 5, 300)
def _logistic_musk() -> tuple[Loss, Parameters]:
    return logistic("musk-1", 1e-5)


@species("statistical", 0, 50)
def _probit_credit() -> tuple[Loss, Parameters]:
    X, y = table("credit-approval")
    return linear(lambda z: -torch.special.log_ndtr(y * z), X, 1e-4)


@species("statistical", 0, 5, 300)
def _poisson_regression() -> tuple[Loss, Parameters]:
    return poisson(300, 40, 1e2, seed=1, counts=2)


@species("statistical", 0, 50)
def _huber_regression() -> tuple[Loss, Parameters]:
    return huber(300, 60, 1e3, seed=3, outlier=5.0, beyond=1.5)


@species("statistical", 0, 50)
def _least_squares() -> tuple[Loss, Parameters]:
    return least_squares(400, 100, seed=4)


@species("statistical", 5, 50)
def _squared_hinge() -> tuple[Loss, Parameters]:
    return squared_hinge("pima")


@species("statistical", 0, 50)
def _student_regression() -> tuple[Loss, Parameters]:
    return student(300, 50, seed=5, spread=0.2)


@species("statistical", 5, 300)
def _softmax_digits() -> tuple[Loss, Parameters]:
    X, y = digits(400)
    return softmax(X, y)


def softmax(X: Tensor, y: Tensor) -> tuple[Loss, Parameters]:
    """Softmax regression with a small penalty, from 0."""

    def loss(p: Parameters) -> Tensor:
        return F.cross_entropy(X @ p["W"], y) + 1e-4 * p["W"].square().sum()

    return loss, {"W": torch.zeros(X.shape[1], 10, dtype=X.dtype)}


def digits(samples: int) -> tuple[Tensor, Tensor]:
    """8×8 images as rows, and their classes."""
    data = load_data("digits")
    return torch.tensor(data.X[:samples]).double(), torch.tensor(data.y[:samples]).long()


@species("statistical", 5, 50)
def _ordinal_regression() -> tuple[Loss, Parameters]:
    X, z, noise = conditioned(300, 30, 1e2, seed=6)
    latent = z + noise
    level = (latent > -1.0).long() + (latent > 1.0).long()

    def loss(p: Parameters) -> Tensor:
        first = p["cut"][0]
        cuts = torch.stack([first, first + F.softplus(p["cut"][1])])
        below = torch.sigmoid(cuts[None] - (X @ p["w"])[:, None])
        probability = torch.stack([below[:, 0], below[:, 1] - below[:, 0], 1.0 - below[:, 1]], 1)
        chosen = probability.gather(1, level[:, None])
        return -torch.log(chosen).mean() + 1e-3 * sum(v.square().sum() for v in p.values())

    return loss, {"w": torch.zeros(30, dtype=torch.float64), "cut": torch.tensor([-1.0, 1.0], dtype=torch.float64)}


@species("statistical", 0, 50)
def _gaussian_mixture() -> tuple[Loss, Parameters]:
    normal = draw(7)
    X = normal(200, 4) + 2.0 * torch.sign(normal(200, 1))
    start = normal(3, 4)

    def loss(p: Parameters) -> Tensor:
        distance = (X[:, None] - p["mean"][None]).square() * torch.exp(-p["scale"])[None]
        log_density = -0.5 * distance.sum(2) - 0.5 * p["scale"].sum(1)[None] + F.log_softmax(p["weight"], 0)[None]
        return -torch.logsumexp(log_density, 1).mean() + 1e-2 * sum(v.square().sum() for v in p.values())

    return loss, {"mean": start, "scale": torch.zeros_like(start), "weight": torch.zeros(3, dtype=torch.float64)}


@species("float32", 5, 50)
def _logistic_in_single_precision() -> tuple[Loss, Parameters]:
    X, y = table("spambase", 400)
    single, labels = X.float(), y.float()

    def loss(p: Parameters) -> Tensor:
        return -F.logsigmoid(labels * (single @ p["w"])).mean() + 1e-3 * p["w"].square().sum()

    return loss, {"w": torch.zeros(single.shape[1])}


@species("float32", 5, 50)
def _softmax_in_single_precision() -> tuple[Loss, Parameters]:
    X, y = digits(300)
    return softmax(X.float(), y)
