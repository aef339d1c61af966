"""``profile`` where ends jump, against dense profiles by SciPy from many starts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import levelport

scipy_optimize = pytest.importorskip("scipy.optimize")

BINS = torch.linspace(0.125, 9.875, 40, dtype=torch.float64)
LOWER, UPPER = [0.0, 0.0, 0.1, -10.0, -5.0], [400.0, 10.0, 5.0, 5.0, 5.0]
RISES = [0.5, 3.0, 4.0]


def expected(w: Tensor) -> Tensor:
    """Counts of a Gaussian peak over an exponential background."""
    signal, position, width, height, slope = w
    peak = 0.25 * signal * torch.exp(-0.5 * ((BINS - position) / width) ** 2) / (width * (2.0 * torch.pi) ** 0.5)
    return peak + torch.exp(height + slope * BINS)


COUNTS = torch.poisson(
    expected(torch.tensor([20.0, 5.0, 0.4, 1.5, -0.15], dtype=torch.float64)),
    generator=torch.Generator().manual_seed(3),
)


def peak(w: Tensor) -> Tensor:
    rate = expected(w)
    return (rate - COUNTS * rate.log()).sum()


def dense_profile(signal: float) -> float:
    """The smallest f at a given signal, from ten starts within the bounds."""
    rng = np.random.default_rng(0)
    bounds = list(zip(LOWER[1:], UPPER[1:], strict=True))

    def evaluate(rest: np.ndarray) -> tuple[float, np.ndarray]:
        w = torch.tensor([signal, *rest], dtype=torch.float64).requires_grad_()
        value = peak(w)
        (gradient,) = torch.autograd.grad(value, w)
        return float(value.detach()), gradient[1:].numpy()

    best = np.inf
    for _ in range(10):
        start = [rng.uniform(0.0, 10.0), rng.uniform(0.15, 5.0), rng.uniform(0.0, 1.5), rng.uniform(-0.5, 0.1)]
        found = scipy_optimize.minimize(evaluate, start, jac=True, method="L-BFGS-B", bounds=bounds)
        best = min(best, found.fun)
    return float(best)


@pytest.fixture(scope="module")
def minimum() -> Tensor:
    start = torch.tensor([15.0, 5.0, 0.5, 1.4, -0.1], dtype=torch.float64)
    return levelport.minimize(peak, start).x


def test_profile_finds_the_far_valley(minimum: Tensor) -> None:
    """At rise 4 a wide peak takes the background's place: the end is at 118, behind a local one at 34."""
    result = levelport.profile(peak, minimum, [0], rises=RISES, bounds=list(zip(LOWER, UPPER, strict=True)))
    assert result.success
    for rise, end in zip(RISES, result.upper[0], strict=True):
        level = result.value + rise
        assert dense_profile(end) <= level + 1e-6
        assert dense_profile(end + 0.01 * (end - result.estimates[0])) > level


def test_interval_looks_behind_a_shallow_end(minimum: Tensor) -> None:
    end = levelport.interval(peak, minimum, [0], rise=4.0).ends[0][1]
    assert end.success
    assert end.bound == pytest.approx(118.26, rel=1e-3)
    assert dense_profile(1.01 * end.bound) > float(peak(minimum)) + 4.0


def test_interval_looks_behind_a_soft_wald_end(minimum: Tensor) -> None:
    """At rise 3.7 four Wald steps end at a local end, 32.9; the pairs say that the level is nearly flat there."""
    end = levelport.interval(peak, minimum, [0], rise=3.7, bounds=list(zip(LOWER, UPPER, strict=True))).ends[0][1]
    assert end.success
    assert end.bound == pytest.approx(33.2007, rel=1e-4)
    assert dense_profile(1.01 * end.bound) > float(peak(minimum)) + 3.7


def test_ends_are_monotone_in_the_rise(minimum: Tensor) -> None:
    rises = [1.0, 2.0, 3.0, 4.0]
    result = levelport.profile(peak, minimum, [0, 2], rises=rises, bounds=list(zip(LOWER, UPPER, strict=True)))
    for lower, upper in zip(result.lower, result.upper, strict=True):
        assert lower == sorted(lower, reverse=True)
        assert upper == sorted(upper)


@pytest.mark.parametrize("rises", [None, "12", 3.0, [], [1.0, "a"], [True], [float("nan")]])
def test_rises_are_a_list_of_positive_numbers(rises: object) -> None:
    with pytest.raises(ValueError, match=r"rises must be a list|every rise must be"):
        levelport.profile(lambda v: v.square().sum(), torch.zeros(1, dtype=torch.float64), rises=rises)  # type: ignore[arg-type]
