"""The problems of the comparison: summed negative log-likelihoods by formula and seed.

Data are simulated from ``truth``. *Regular* problems are nearly quadratic over a 95 % region; *curved* ones have bent
valleys. The kinds marked ``fresh`` were written for this comparison and fixed before anything was run on them; of the
others the solver was developed on the same formula with other seeds. *Held out* are further seeds of the curved kinds
(:mod:`levelport_lab.bench.intervals.held_out`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid

Function = Callable[[Tensor], Tensor]
Kind = Literal["regular", "curved", "held out", "large", "network"]
DTYPE = torch.float64
HELD_OUT = range(100, 108)
"""Seeds of each curved kind."""


@dataclass(frozen=True)
class Likelihood:
    """A problem.

    Attributes:
        name: with the seed.
        fun: f, a summed negative log-likelihood.
        truth: the parameters that the data were simulated from; searches for the minimizer start there.
        kind: what is expected of it.
        fresh: whether the solver was developed without this formula.
        residuals: r with f = ½ ‖r‖², for tools of least squares; None for other likelihoods.
        stable: for an entry, f in other coordinates with the same entry, where far points keep their digits, and the
            maps to them and back: profiles are taken there. None where x does as well.
    """

    name: str
    fun: Function
    truth: Tensor
    kind: Kind = "regular"
    fresh: bool = False
    residuals: Function | None = None
    stable: Callable[[int], tuple[Function, Function, Function]] | None = None


def _rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(1000 + seed)


def _normal(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=rng, dtype=DTYPE)


def _decline(u: Tensor) -> Tensor:
    """(1 - exp(-u))/u for u ≥ 0, with all digits of its derivatives."""
    small = u < 1e-2
    safe = torch.where(small, torch.ones_like(u), u)
    series = 1.0 - u / 2.0 * (1.0 - u / 3.0 * (1.0 - u / 4.0 * (1.0 - u / 5.0 * (1.0 - u / 6.0))))
    return torch.where(small, series, -torch.expm1(-safe) / safe)


def _uniform(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=rng, dtype=DTYPE)


def _curve(
    name: str, model: Function, truth: Tensor, noise: float, seed: int, kind: Kind = "regular", *, fresh: bool = False
) -> Likelihood:
    """Least squares: y = model(truth) + noise."""
    clean = model(truth)
    y = clean + noise * _normal(_rng(seed), *clean.shape)

    def residuals(x: Tensor) -> Tensor:
        return (model(x) - y) / noise

    return Likelihood(f"{name} {seed}", lambda x: 0.5 * residuals(x).square().sum(), truth, kind, fresh, residuals)


def _vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=DTYPE)


def _design(rng: torch.Generator, samples: int, features: int, mixed: float = 0.2) -> Tensor:
    """Correlated normal features and an intercept."""
    mixing = torch.eye(features, dtype=DTYPE) + mixed * _normal(rng, features, features)
    return torch.cat([torch.ones(samples, 1, dtype=DTYPE), _normal(rng, samples, features) @ mixing], dim=1)


def logistic(seed: int, samples: int, features: int) -> Likelihood:
    rng = _rng(seed)
    X = _design(rng, samples, features)
    truth = _normal(rng, features + 1) / features**0.5
    y = 2.0 * torch.bernoulli(torch.sigmoid(X @ truth), generator=rng) - 1.0
    return Likelihood(f"logistic d {features + 1} {seed}", lambda w: -logsigmoid(y * (X @ w)).sum(), truth)


def poisson(seed: int) -> Likelihood:
    rng = _rng(seed)
    X = _design(rng, 250, 9)
    truth = 0.1 * _normal(rng, 10)
    y = torch.poisson((X @ truth).exp(), generator=rng)
    return Likelihood(f"Poisson {seed}", lambda w: ((X @ w).exp() - y * (X @ w)).sum(), truth)


def hill(seed: int) -> Likelihood:
    dose = torch.logspace(-2, 2, 20, dtype=DTYPE).log()
    return _curve(
        "Hill",
        lambda x: x[0] + (x[1] - x[0]) * torch.sigmoid(x[3] * (dose - x[2])),
        _vector(0.2, 1.5, -0.3, 1.5),
        0.06,
        seed,
    )


def _peaks(x: Tensor, t: Tensor) -> Tensor:
    height, center, width = x.view(-1, 3).T[..., None]
    return (height * torch.exp(-0.5 * ((t - center) / width).square())).sum(0)


def peaks(seed: int) -> Likelihood:
    t = torch.linspace(0.0, 12.0, 140, dtype=DTYPE)
    truth = _vector(0.9, 1.6, 0.5, 1.1, 4.4, 0.4, 0.8, 7.4, 0.5, 1.3, 10.1, 0.45)
    return _curve("peaks", lambda x: _peaks(x, t), truth, 0.09, seed)


def overlapping_peaks(seed: int) -> Likelihood:
    t = torch.linspace(0.0, 10.0, 150, dtype=DTYPE)
    truth = _vector(1.0, 2.0, 0.7, 0.8, 3.3, 0.7, 1.2, 4.8, 0.8, 0.7, 6.2, 0.7, 1.0, 7.6, 0.8)
    return _curve("overlapping peaks", lambda x: _peaks(x, t), truth, 0.04, seed, "curved")


def double_exponential(seed: int, *, poor: bool) -> Likelihood:
    t = torch.linspace(0.0, 8.0, 25 if poor else 60, dtype=DTYPE)
    truth = _vector(1.0, -0.105 if poor else 0.916, 0.8, -1.204, 0.1)

    def model(x: Tensor) -> Tensor:
        return x[0] * torch.exp(-x[1].exp() * t) + x[2] * torch.exp(-x[3].exp() * t) + x[4]

    name = f"double exponential, {'poor' if poor else 'good'}"
    noise = 0.012 if poor else 0.01
    problem = _curve(name, model, truth, noise, seed, "curved" if poor else "regular")
    y = model(truth) + noise * _normal(_rng(seed), len(t))

    def stable(index: int) -> tuple[Function, Function, Function]:
        """x₂ + x₄ in place of x₄ (of x₂ for entry 4), and otherwise the slope x₂ exp(x₃) in place of x₂."""

        def coordinates(x: Tensor) -> Tensor:
            z = x.clone()
            z[2 if index == 4 else 4] = x[2] + x[4]
            if index not in (2, 4):
                z[2] = x[2] * x[3].exp()
            return z

        def back(z: Tensor) -> Tensor:
            x = z.clone()
            if index not in (2, 4):
                x[2] = z[2] / z[3].exp()
            x[2 if index == 4 else 4] -= x[4 if index == 4 else 2]
            return x

        def fun(z: Tensor) -> Tensor:
            rate = z[3].exp()
            slope = {2: z[2] * rate, 4: (z[2] - z[4]) * rate}.get(index, z[2])
            slow = z[2 if index == 4 else 4] - slope * t * _decline(rate * t)
            return 0.5 * ((z[0] * torch.exp(-z[1].exp() * t) + slow - y) / noise).square().sum()

        return fun, coordinates, back

    return replace(problem, stable=stable)


def sir(seed: int) -> Likelihood:
    """An epidemic: daily cases are Poisson around an SIR model, in (log β, log γ, log I₀)."""
    truth, people = _vector(0.6, 0.25, 4.0).log(), 2000.0

    def rates(x: Tensor) -> Tensor:
        beta, gamma, infected = x.exp()
        susceptible, daily = people - infected, []
        for _ in range(25):
            new = susceptible * (1.0 - torch.exp(-beta * infected / people))
            susceptible, infected = susceptible - new, infected * torch.exp(-gamma) + new
            daily.append(new)
        return 0.5 * torch.stack(daily)

    cases = torch.poisson(rates(truth), generator=_rng(seed))
    return Likelihood(f"SIR {seed}", lambda x: (rates(x) - cases * rates(x).log()).sum(), truth)


def multinomial(seed: int, samples: int, features: int, classes: int, mixed: float = 0.2) -> Likelihood:
    """Softmax regression with the first class as reference, d = (features + 1)(classes - 1)."""
    rng = _rng(seed)
    X, zero = _design(rng, samples, features, mixed), torch.zeros(samples, 1, dtype=DTYPE)
    truth = _normal(rng, (features + 1) * (classes - 1)) / (2.0 * features**0.5)

    def logits(w: Tensor) -> Tensor:
        return torch.cat([zero, X @ w.view(features + 1, classes - 1)], dim=1)

    y = torch.multinomial(logits(truth).softmax(1), 1, generator=rng)[:, 0]
    d = truth.numel()
    kind: Kind = "regular" if d <= 200 else "large"
    return Likelihood(f"multinomial d {d} {seed}", lambda w: cross_entropy(logits(w), y, reduction="sum"), truth, kind)


def gamma_regression(seed: int) -> Likelihood:
    """Gamma responses with a log link; the last parameter is the log of the shape."""
    rng = _rng(seed)
    X = _design(rng, 150, 4)
    truth = torch.cat([0.3 * _normal(rng, 5), _vector(0.9)])
    shape = truth[-1].exp()
    with torch.random.fork_rng():
        torch.manual_seed(2000 + seed)
        y = torch.distributions.Gamma(shape.expand(150), shape * torch.exp(-(X @ truth[:-1]))).sample()

    def fun(x: Tensor) -> Tensor:
        k, mean = x[-1].exp(), X @ x[:-1]
        return (torch.lgamma(k) - k * (x[-1] - mean) - (k - 1.0) * y.log() + k * y * torch.exp(-mean)).sum()

    return Likelihood(f"gamma regression {seed}", fun, truth, fresh=True)


def weibull(seed: int) -> Likelihood:
    """Censored survival times, Weibull with a log-linear scale; the last parameter is the log of the shape."""
    rng = _rng(seed)
    X = _design(rng, 180, 5)
    truth = torch.cat([0.3 * _normal(rng, 6), _vector(0.3)])
    times = torch.exp(X @ truth[:-1]) * (-_uniform(rng, 180).log()) ** torch.exp(-truth[-1])
    limit = torch.quantile(times, 0.8)
    seen, times = (times <= limit).to(DTYPE), times.clamp_max(limit)

    def fun(x: Tensor) -> Tensor:
        z = x[-1].exp() * (times.log() - X @ x[:-1])
        return (z.exp() - seen * (x[-1] + z)).sum()

    return Likelihood(f"Weibull survival {seed}", fun, truth, fresh=True)


def negative_binomial(seed: int) -> Likelihood:
    """Overdispersed counts; the last parameter is the log of the dispersion."""
    rng = _rng(seed)
    X = _design(rng, 200, 5)
    truth = torch.cat([0.2 * _normal(rng, 6), _vector(-0.5)])
    with torch.random.fork_rng():
        torch.manual_seed(3000 + seed)
        size = torch.exp(-truth[-1])
        rate = torch.distributions.Gamma(size.expand(200), size * torch.exp(-(X @ truth[:-1]))).sample()
        y = torch.poisson(rate)

    def fun(x: Tensor) -> Tensor:
        r, eta = torch.exp(-x[-1]), X @ x[:-1]
        chance = torch.log1p(torch.exp(eta + x[-1]))
        return -(torch.lgamma(y + r) - torch.lgamma(r) + y * (eta + x[-1]) - (y + r) * chance).sum()

    return Likelihood(f"negative binomial {seed}", fun, truth, fresh=True)


def michaelis_menten(seed: int) -> Likelihood:
    """Enzyme kinetics v = V s/(K + s) + b s, in (log V, log K, b)."""
    s = torch.linspace(0.1, 8.0, 22, dtype=DTYPE)
    truth = _vector(0.7, 0.2, 0.02)
    model = lambda x: x[0].exp() * s / (x[1].exp() + s) + x[2] * s  # noqa: E731
    return _curve("Michaelis-Menten", model, truth, 0.04, seed, fresh=True)


def growth(seed: int) -> Likelihood:
    """A Gompertz growth curve, in (log of the limit, log of the delay, log of the rate)."""
    t = torch.linspace(0.0, 10.0, 30, dtype=DTYPE)
    truth = _vector(1.6, 1.2, -0.5)
    model = lambda x: torch.exp(x[0] - torch.exp(x[1] - x[2].exp() * t))  # noqa: E731
    return _curve("Gompertz growth", model, truth, 0.15, seed, fresh=True)


def resonance(seed: int) -> Likelihood:
    """Counts of a resonance on a sloping background: Poisson bins, d = 5."""
    energy = torch.linspace(-5.0, 5.0, 60, dtype=DTYPE)
    truth = _vector(3.4, 0.3, 0.0, 2.2, -0.05)

    def rates(x: Tensor) -> Tensor:
        line = x[0].exp() / (1.0 + ((energy - x[1]) / x[2].exp()).square())
        return line + torch.exp(x[3] + x[4] * energy)

    counts = torch.poisson(rates(truth), generator=_rng(seed))
    return Likelihood(f"resonance {seed}", lambda x: (rates(x) - counts * rates(x).log()).sum(), truth, fresh=True)


def two_compartments(seed: int) -> Likelihood:
    """A bent valley, without end on one side: far out the response depends on the sum of two parameters alone.

    exp(x₂) (exp(-k t) - exp(-(k + l) t)), k = exp(x₀), l = exp(x₁), as one exponential: the difference loses all digits
    where l is small.
    """
    t = torch.linspace(0.2, 4.0, 14, dtype=DTYPE)
    truth = _vector(0.0, -0.4, 0.3)

    def model(x: Tensor) -> Tensor:
        return torch.exp(x[2] + x[1] - x[0].exp() * t) * t * _decline(x[1].exp() * t)

    return _curve("two compartments", model, truth, 0.02, seed, "curved", fresh=True)


def network(seed: int) -> Likelihood:
    """A regression network with four tanh units, d = 13."""
    u = torch.linspace(-2.0, 2.0, 60, dtype=DTYPE)
    truth = _normal(_rng(seed), 13)

    def model(x: Tensor) -> Tensor:
        return torch.tanh(u[:, None] * x[:4] + x[4:8]) @ x[8:12] + x[12]

    return _curve("tanh network", model, truth, 0.1, seed, "network", fresh=True)


def _poor(seed: int) -> Likelihood:
    return double_exponential(seed, poor=True)


def _held_out(problem: Likelihood) -> Likelihood:
    return replace(problem, kind="held out")


@cache
def likelihoods() -> dict[str, Likelihood]:
    """All problems by name."""
    problems = [
        logistic(0, 400, 9),
        logistic(1, 1200, 57),
        logistic(2, 2500, 149),
        poisson(0),
        hill(0),
        hill(1),
        peaks(0),
        double_exponential(0, poor=False),
        sir(0),
        multinomial(0, 1500, 14, 8),
        gamma_regression(0),
        weibull(0),
        negative_binomial(0),
        michaelis_menten(0),
        growth(0),
        resonance(0),
        *(overlapping_peaks(seed) for seed in range(4)),
        *(double_exponential(seed, poor=True) for seed in range(4)),
        *(two_compartments(seed) for seed in range(2)),
        *(_held_out(make(seed)) for make in (overlapping_peaks, _poor, two_compartments) for seed in HELD_OUT),
        multinomial(1, 3000, 55, 10),
        multinomial(2, 8000, 484, 11, mixed=0.6 / 22.0),
        network(0),
    ]
    return {problem.name: problem for problem in problems}
