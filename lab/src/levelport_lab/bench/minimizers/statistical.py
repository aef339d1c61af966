"""Likelihoods and penalized losses of statistical models."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from levelport_lab.bench.minimizers.problems import Loss, Made, draws, problem, zeros


def correlated(samples: int, features: int, decades: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rotated Gaussian features whose scales fall by ``decades``; a prediction of variance near 1; noise."""
    normal = draws(seed)
    rotation, _ = torch.linalg.qr(normal(features, features))
    X = normal(samples, features) * torch.logspace(0.0, -decades, features, dtype=torch.float64) @ rotation
    z = X @ normal(features)
    return X, z / z.std(), normal(samples)


def uniform(samples: int, seed: int) -> Tensor:
    """Uniform numbers in (0, 1)."""
    return torch.rand(samples, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def linear_model(X: Tensor, penalty: float, loss: Loss) -> Made:
    """mean loss(X w) + penalty ‖w‖² from the origin."""
    return lambda w: loss(X @ w).mean() + penalty * w.square().sum(), zeros(X.shape[1])


@problem("statistical")
def logistic_wide_1000() -> Made:
    X, z, _ = correlated(400, 1000, 1.0, 2)
    y = torch.sign(z)
    return linear_model(X, 1e-4, lambda p: -F.logsigmoid(y * p))


@problem("statistical")
def probit_150() -> Made:
    X, z, noise = correlated(2000, 150, 2.0, 5)
    y = torch.sign(z + noise)
    return linear_model(X, 1e-7, lambda p: -torch.special.log_ndtr(y * p))


@problem("statistical")
def huber_300() -> Made:
    X, z, noise = correlated(1500, 300, 2.5, 6)
    y = z + 0.3 * noise + 5.0 * (noise > 1.5)
    return linear_model(X, 1e-7, lambda p: torch.sqrt(1.0 + (p - y).square()) - 1.0)


@problem("statistical")
def student_120() -> Made:
    X, z, noise = correlated(1500, 120, 1.5, 7)
    y = z + 0.2 * noise / (0.1 + noise.roll(1).abs())
    return linear_model(X, 1e-6, lambda p: torch.log1p((p - y).square()))


@problem("statistical")
def negative_binomial_61() -> Made:
    X, z, _ = correlated(1500, 60, 1.5, 10)
    gamma = -torch.log(uniform(1500, 10))
    counts = torch.poisson(gamma * torch.exp(0.7 * z), generator=torch.Generator().manual_seed(10))

    def loss(w: Tensor) -> Tensor:
        p, size = X @ w[:60], torch.exp(w[60])
        terms = torch.lgamma(counts + size) - torch.lgamma(size) + size * w[60] + counts * p
        return ((counts + size) * torch.log(size + torch.exp(p)) - terms).mean() + 1e-7 * w.square().sum()

    return loss, zeros(61)


@problem("statistical")
def softmax_regression_500() -> Made:
    X, _, _ = correlated(1500, 50, 1.5, 11)
    scores = X @ draws(111)(50, 10)
    y = (scores / scores.std() + 0.5 * draws(112)(1500, 10)).argmax(1)
    return lambda w: F.cross_entropy(X @ w.view(50, 10), y) + 1e-7 * w.square().sum(), zeros(500)


@problem("statistical")
def ordinal_44() -> Made:
    X, z, noise = correlated(1500, 40, 1.5, 12)
    latent = z + noise
    level = sum((latent > cut).long() for cut in (-1.5, -0.5, 0.5, 1.5))
    assert isinstance(level, Tensor)

    def loss(w: Tensor) -> Tensor:
        cuts = torch.cat([w[40:41], w[40:41] + torch.cumsum(F.softplus(w[41:]), 0)])
        below = torch.sigmoid(cuts[None] - (X @ w[:40])[:, None])
        edges = torch.cat([torch.zeros_like(below[:, :1]), below, torch.ones_like(below[:, :1])], 1)
        chosen = (edges[:, 1:] - edges[:, :-1]).gather(1, level[:, None])
        return -torch.log(chosen).mean() + 1e-6 * w.square().sum()

    start = zeros(44)
    start[40] = -1.0
    return loss, start


@problem("statistical")
def cox_partial_likelihood_60() -> Made:
    X, z, _ = correlated(800, 60, 1.5, 13)
    times = -torch.log(uniform(800, 13)) * torch.exp(-z)
    seen = uniform(800, 131) < 0.7
    order = torch.argsort(times, descending=True)
    X, seen = X[order], seen[order]

    def loss(w: Tensor) -> Tensor:
        p = X @ w
        return ((torch.logcumsumexp(p, 0) - p) * seen).sum() / seen.sum() + 1e-6 * w.square().sum()

    return loss, zeros(60)


@problem("statistical")
def gaussian_mixture_33() -> Made:
    normal = draws(15)
    centers = 3.0 * normal(3, 5)
    X = centers[torch.arange(900) % 3] + normal(900, 5) * torch.tensor([1.0, 0.5, 2.0, 1.0, 0.3], dtype=torch.float64)
    start = torch.cat([(centers + normal(3, 5)).reshape(-1), zeros(18)])

    def loss(w: Tensor) -> Tensor:
        mean, log_variance, weight = w[:15].view(3, 5), w[15:30].view(3, 5), w[30:]
        distance = (X[:, None] - mean[None]).square() * torch.exp(-log_variance)[None]
        density = -0.5 * (distance.sum(2) + log_variance.sum(1)[None]) + F.log_softmax(weight, 0)[None]
        return -torch.logsumexp(density, 1).mean() + 1e-5 * w.square().sum()

    return loss, start


@problem("statistical")
def factor_analysis_120() -> Made:
    normal = draws(16)
    factors = normal(30, 3) * torch.tensor([2.0, 1.0, 0.5], dtype=torch.float64)
    X = normal(600, 3) @ factors.T + normal(600, 30) * torch.linspace(0.3, 1.5, 30, dtype=torch.float64)
    S = X.T @ X / 600

    def loss(w: Tensor) -> Tensor:
        C = w[:90].view(30, 3) @ w[:90].view(30, 3).T + torch.diag(torch.exp(w[90:]))
        L = torch.linalg.cholesky(C)
        return L.diagonal().log().sum() + 0.5 * torch.cholesky_solve(S, L).trace() + 1e-4 * w.square().sum()

    return loss, torch.cat([0.5 * draws(161)(90), zeros(30)])


@problem("statistical")
def matrix_factorization_600() -> Made:
    normal = draws(17)
    M = normal(120, 4) @ normal(4, 80) / 2.0 + 0.1 * normal(120, 80)
    seen = uniform(9600, 17).view(120, 80) < 0.3

    def loss(w: Tensor) -> Tensor:
        U, V = w[:360].view(120, 3), w[360:].view(80, 3)
        return ((U @ V.T - M).square() * seen).sum() / seen.sum() + 1e-4 * w.square().sum()

    return loss, 0.3 * draws(171)(600)


@problem("statistical")
def kernel_logistic_300() -> Made:
    normal = draws(18)
    X = normal(300, 2)
    y = torch.sign(torch.sin(2.0 * X[:, 0]) * X[:, 1] + 0.2 * normal(300))
    K = torch.exp(-0.5 * torch.cdist(X, X).square())
    return lambda w: -F.logsigmoid(y * (K @ w)).mean() + 1e-5 * (w @ (K @ w)), zeros(300)


@problem("statistical")
def bradley_terry_150() -> Made:
    normal = draws(20)
    strength = normal(150)
    pairs = torch.randint(0, 150, (2000, 2), generator=torch.Generator().manual_seed(20))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    first, second = pairs[:, 0], pairs[:, 1]
    won = uniform(len(pairs), 20) < torch.sigmoid(strength[first] - strength[second])
    y = 2.0 * won.double() - 1.0
    return lambda w: -F.logsigmoid(y * (w[first] - w[second])).sum() + 1e-3 * w.square().sum(), zeros(150)


@problem("statistical")
def log_determinant_covariance_120() -> Made:
    normal = draws(22)
    X = normal(200, 15) @ (torch.eye(15, dtype=torch.float64) + 0.5 * normal(15, 15))
    S = X.T @ X / 200
    row, column = torch.tril_indices(15, 15)

    def loss(w: Tensor) -> Tensor:
        L = torch.zeros(15, 15, dtype=w.dtype).index_put((row, column), w)
        P = L @ L.T
        off = P - torch.diag(P.diagonal())
        return (P * S).sum() - 2.0 * L.diagonal().abs().log().sum() + 0.1 * torch.sqrt(off.square() + 1e-4).sum()

    return loss, torch.eye(15, dtype=torch.float64)[row, column].clone()


@problem("statistical")
def tomography_poisson_400() -> Made:
    normal = draws(23)
    A = torch.exp(-0.5 * (8.0 * torch.linspace(0, 1, 600, dtype=torch.float64)[:, None] - 8.0 * uniform(400, 23)) ** 2)
    A = A / A.sum(1, keepdim=True)
    counts = torch.poisson(A @ (20.0 * torch.exp(normal(400))), generator=torch.Generator().manual_seed(23))

    def loss(w: Tensor) -> Tensor:
        rate = A @ F.softplus(w)
        return (rate - counts * torch.log(rate)).mean() + 1e-4 * w.square().sum()

    return loss, zeros(400) + 10.0


@problem("statistical")
def total_variation_denoising_2500() -> Made:
    normal = draws(24)
    grid = torch.linspace(-1, 1, 50, dtype=torch.float64)
    clean = ((grid[:, None].square() + grid[None].square()) < 0.5).double()
    noisy = clean + 0.2 * normal(50, 50)

    def loss(w: Tensor) -> Tensor:
        u = w.view(50, 50)
        across, down = u[:-1, 1:] - u[:-1, :-1], u[1:, :-1] - u[:-1, :-1]
        return 0.5 * (u - noisy).square().sum() + 0.2 * torch.sqrt(across.square() + down.square() + 1e-3).sum()

    return loss, noisy.reshape(-1).clone()


@problem("statistical")
def smoothing_spline_counts_1000() -> Made:
    t = torch.linspace(0.0, 1.0, 1000, dtype=torch.float64)
    rate = torch.exp(1.0 + torch.sin(6.0 * math.pi * t))
    counts = torch.poisson(rate, generator=torch.Generator().manual_seed(25))

    def loss(w: Tensor) -> Tensor:
        bend = w[2:] - 2.0 * w[1:-1] + w[:-2]
        return (torch.exp(w) - counts * w).sum() + 1e3 * bend.square().sum()

    return loss, zeros(1000)
