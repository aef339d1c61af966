"""Likelihoods by formula and seed, and their true intervals by dense profiles.

Every problem is a summed negative log-likelihood of a few parameters, with data simulated from ``truth``. Regular ones
are nearly quadratic over a 95 % region; the curved ones (overlapping peaks, double exponential with poor data) have
bent valleys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from levelport.numerics.newton import find_minimum
from levelport.objectives import FunctionObjective

DTYPE = torch.float64


@dataclass(frozen=True)
class Likelihood:
    """f, the parameters the data were simulated from, and whether it counts as regular."""

    name: str
    fun: Callable[[Tensor], Tensor]
    truth: Tensor
    regular: bool = True

    def minimizer(self) -> Tensor:
        """The maximum-likelihood estimate, to the last digits."""
        return find_minimum(FunctionObjective(self.fun, like=self.truth), self.truth).x


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=rng, dtype=DTYPE)


def least_squares(model: Callable[[Tensor], Tensor], truth: Tensor, noise: float, seed: int) -> Callable[..., Tensor]:
    """½ Σ (model(x) - y)²/noise² for y = model(truth) + noise."""
    clean = model(truth)
    y = clean + noise * normal(generator(seed), *clean.shape)
    return lambda x: 0.5 * ((model(x) - y) / noise).square().sum()


def hill(seed: int = 0, noise: float = 0.05) -> Likelihood:
    """Dose and response: bottom + (top - bottom)/(1 + (EC50/c)^n), in (bottom, top, log EC50, n)."""
    dose = torch.logspace(-2, 2, 24, dtype=DTYPE)
    truth = torch.tensor([0.1, 1.0, 0.5, 1.2], dtype=DTYPE)

    def model(x: Tensor) -> Tensor:
        return x[0] + (x[1] - x[0]) * torch.sigmoid(x[3] * (dose.log() - x[2]))

    return Likelihood(f"hill {seed}", least_squares(model, truth, noise, seed), truth)


def _peaks(x: Tensor, t: Tensor) -> Tensor:
    height, center, width = x.view(-1, 3).T[..., None]
    return (height * torch.exp(-0.5 * ((t - center) / width).square())).sum(0)


def peaks(seed: int = 0) -> Likelihood:
    """Four separate Gaussian peaks: height, center and width of each, d = 12."""
    t = torch.linspace(0.0, 10.0, 120, dtype=DTYPE)
    rows = [[1.0, 1.5, 0.4], [0.7, 4.0, 0.5], [1.2, 6.2, 0.35], [0.9, 8.5, 0.45]]
    truth = torch.tensor(rows, dtype=DTYPE).reshape(-1)
    return Likelihood(f"peaks {seed}", least_squares(lambda x: _peaks(x, t), truth, 0.1, seed), truth)


def overlapping_peaks(seed: int = 0) -> Likelihood:
    """Five Gaussian peaks that overlap, d = 15: curved."""
    t = torch.linspace(0.0, 10.0, 150, dtype=DTYPE)
    rows = [[1.0, 2.0, 0.7], [0.8, 3.3, 0.7], [1.2, 4.8, 0.8], [0.7, 6.2, 0.7], [1.0, 7.6, 0.8]]
    truth = torch.tensor(rows, dtype=DTYPE).reshape(-1)
    return Likelihood(f"overlap {seed}", least_squares(lambda x: _peaks(x, t), truth, 0.04, seed), truth, regular=False)


def double_exponential(seed: int = 0, *, poor: bool = False) -> Likelihood:
    """a exp(-k t) + b exp(-l t) + c in (a, log k, b, log l, c), d = 5; curved with poor data."""
    t = torch.linspace(0.0, 8.0, 25 if poor else 60, dtype=DTYPE)
    fast = 0.9 if poor else 2.5
    truth = torch.tensor([1.0, fast, 0.8, 0.3, 0.1], dtype=DTYPE)
    truth[[1, 3]] = truth[[1, 3]].log()

    def model(x: Tensor) -> Tensor:
        return x[0] * torch.exp(-x[1].exp() * t) + x[2] * torch.exp(-x[3].exp() * t) + x[4]

    name = f"double exponential, {'poor' if poor else 'good'} {seed}"
    return Likelihood(name, least_squares(model, truth, 0.012 if poor else 0.01, seed), truth, regular=not poor)


def sir(seed: int = 0) -> Likelihood:
    """An epidemic: daily new cases are Poisson with the rates of an SIR model, in (log β, log γ, log I₀)."""
    days, steps, people, reported = 30, 2, 1000.0, 0.6
    truth = torch.tensor([0.5, 0.2, 3.0], dtype=DTYPE).log()

    def rates(x: Tensor) -> Tensor:
        beta, gamma, infected = x.exp()
        susceptible = people - infected
        daily = []
        for _ in range(days):
            new = x.new_zeros(())
            for _ in range(steps):
                flow = susceptible * (1.0 - torch.exp(-beta * infected / people / steps))
                out = infected * (1.0 - torch.exp(-gamma / steps))
                susceptible, infected, new = susceptible - flow, infected + flow - out, new + flow
            daily.append(new)
        return reported * torch.stack(daily)

    cases = torch.poisson(rates(truth), generator=generator(seed))
    return Likelihood(f"sir {seed}", lambda x: (rates(x) - cases * rates(x).log()).sum(), truth)


def design(seed: int, samples: int, features: int) -> Tensor:
    """Correlated normal features and an intercept."""
    rng = generator(seed)
    mixing = torch.eye(features, dtype=DTYPE) + 0.6 / features**0.5 * normal(rng, features, features)
    return torch.cat([torch.ones(samples, 1, dtype=DTYPE), normal(rng, samples, features) @ mixing], dim=1)


def logistic(seed: int = 0, samples: int = 300, features: int = 8) -> Likelihood:
    """Σ log(1 + exp(-y Xw))."""
    X = design(seed, samples, features)
    truth = normal(generator(seed + 1), features + 1) / features**0.5
    y = 2.0 * torch.bernoulli(torch.sigmoid(X @ truth), generator=generator(seed + 2)) - 1.0
    return Likelihood(f"logistic {seed}", lambda w: -torch.nn.functional.logsigmoid(y * (X @ w)).sum(), truth)


def poisson(seed: int = 0, samples: int = 200, features: int = 6) -> Likelihood:
    """Σ exp(Xw) - y Xw."""
    X = design(seed, samples, features)
    truth = 0.3 * normal(generator(seed + 1), features + 1) / features**0.5
    y = torch.poisson((X @ truth).exp(), generator=generator(seed + 2))
    return Likelihood(f"poisson {seed}", lambda w: ((X @ w).exp() - y * (X @ w)).sum(), truth)


def multinomial(seed: int = 0, samples: int = 2000, features: int = 49, classes: int = 10) -> Likelihood:
    """Cross entropy of softmax(XW), summed, with the first class as the reference: d = (features + 1)(classes - 1)."""
    X = design(seed, samples, features)
    truth = normal(generator(seed + 1), features + 1, classes - 1) / (2.0 * features**0.5)
    logits = torch.cat([X.new_zeros(samples, 1), X @ truth], dim=1)
    y = torch.multinomial(logits.softmax(1), 1, generator=generator(seed + 2))[:, 0]

    def fun(w: Tensor) -> Tensor:
        z = torch.cat([X.new_zeros(samples, 1), X @ w.view(features + 1, classes - 1)], dim=1)
        return torch.nn.functional.cross_entropy(z, y, reduction="sum")

    return Likelihood(f"multinomial {truth.numel()}", fun, truth.reshape(-1))


def regular(seed: int = 0) -> list[Likelihood]:
    """The small regular problems."""
    return [
        hill(seed),
        peaks(seed),
        double_exponential(seed),
        sir(seed),
        poisson(seed),
        logistic(seed),
    ]


def curved(seed: int = 0) -> list[Likelihood]:
    """The small ones with bent valleys."""
    return [overlapping_peaks(seed), double_exponential(seed, poor=True)]


def derivatives(fun: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """∇f and ∇²f."""
    w = x.detach().requires_grad_()
    (g,) = torch.autograd.grad(fun(w), w, create_graph=True)
    rows = [torch.autograd.grad(entry, w, retain_graph=True)[0] for entry in g]
    return g.detach(), torch.stack(rows)


def profile_end(fun: Callable[[Tensor], Tensor], x: Tensor, index: int, sign: float, rise: float) -> float:
    """The end of the interval of x[index] by a dense profile: ±∞ if f stays below the level for 400 steps.

    The entry is moved outwards in steps that raise the profile by about a tenth of the rise; the others are minimized
    over by Newton's method with the exact Hessian, from the last solution extrapolated. The crossing is bisected.
    """
    rest = torch.arange(x.numel()) != index
    base = float(fun(x))

    def minimized(start: Tensor) -> tuple[Tensor, float]:
        w, value = start, float(fun(start))
        damping = 0.0
        for _ in range(200):
            g, H = derivatives(fun, w)
            g, H = g[rest], H[rest][:, rest]
            scale = H.diagonal().abs().sqrt().clamp_min(1e-150)
            e, V = torch.linalg.eigh(H / scale[:, None] / scale)
            step = (V @ ((V.T @ (g / scale)) / (e.abs().clamp_min(1e-12) + damping))) / scale
            trial = w.clone()
            trial[rest] -= step
            after = float(fun(trial))
            if after <= value:
                done = value - after <= 1e-13 * abs(value) + 1e-12 * rise and float(g @ step) <= 1e-9 * rise
                w, value, damping = trial, after, 0.1 * damping if damping > 1e-8 else 0.0
                if done:
                    break
            elif float(g @ step) <= 1e-10 * rise or damping > 1e12:
                break
            else:
                damping = max(10.0 * damping, 1e-6)
        return w, value

    step = 0.2 * float((2.0 * rise * torch.linalg.inv(derivatives(fun, x)[1])[index, index]).abs().sqrt())
    w, slope, value = x, torch.zeros_like(x), base
    for _ in range(400):
        start = w + sign * step * slope
        start[index] = w[index] + sign * step
        new, after = minimized(start)
        if not after <= base + rise:
            break
        slope = (new - w) / (sign * step)
        climbed = (after - value) / rise
        w, value = new, after
        step *= 1.5 if climbed < 0.05 else 0.7 if climbed > 0.2 else 1.0
    else:
        return sign * float("inf")
    for _ in range(40):
        step *= 0.5
        start = w + sign * step * slope
        start[index] = w[index] + sign * step
        new, after = minimized(start)
        if after <= base + rise:
            w = new
        if step <= 1e-9 * abs(float(w[index] - x[index])):
            break
    return float(w[index])
