"""The matrix form of L-BFGS against the two-loop recursion and the dense BFGS update."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from levelport.numerics.lbfgs import QuasiNewton

Pairs = list[tuple[Tensor, Tensor]]


def random_pairs(dimension: int, count: int, seed: int = 0) -> Pairs:
    """Steps with their images under a positive definite matrix that changes a little from step to step."""
    generator = torch.Generator().manual_seed(seed)
    hessian = torch.diag(torch.logspace(0, -4, dimension, dtype=torch.float64))
    steps = torch.randn(count, dimension, generator=generator, dtype=torch.float64)
    factors = 1.0 + 0.2 * torch.rand(count, generator=generator, dtype=torch.float64)
    return [(s, factor * (hessian @ s)) for s, factor in zip(steps, factors, strict=True)]


def dense_inverse(pairs: Pairs, memory: int, initial: Tensor) -> Tensor:
    """BFGS updates of the inverse, H ← (I - ρ s yᵀ) H (I - ρ y sᵀ) + ρ s sᵀ, from the scaled initial matrix."""
    kept = pairs[-memory:]
    s, y = kept[-1]
    H = initial * (s @ y) / (y @ initial @ y)
    identity = torch.eye(len(s), dtype=torch.float64)
    for s, y in kept:
        rho = 1.0 / (s @ y)
        V = identity - rho * torch.outer(y, s)
        H = V.T @ H @ V + rho * torch.outer(s, s)
    return H


@pytest.mark.parametrize("count", [1, 4, 5, 6, 13])
@pytest.mark.parametrize("dimension", [3, 20])
def test_is_bfgs_also_when_old_pairs_are_dropped(dimension: int, count: int) -> None:
    pairs = random_pairs(dimension, count)
    model = QuasiNewton(5)
    for s, y in pairs:
        assert model.update(s, y)
    assert len(model) == min(count, 5)
    dense = dense_inverse(pairs, 5, torch.eye(dimension, dtype=torch.float64))
    v = torch.linspace(-1, 2, dimension, dtype=torch.float64)
    torch.testing.assert_close(model.apply(v), dense @ v, rtol=1e-9, atol=1e-12)


def test_takes_an_initial_matrix_and_scales_it_by_the_newest_pair() -> None:
    pairs = random_pairs(6, 3)
    diagonal = torch.linspace(1, 3, 6, dtype=torch.float64)
    model = QuasiNewton(5, initial=lambda v: diagonal * v)
    v = torch.ones(6, dtype=torch.float64)
    torch.testing.assert_close(model.apply(v), diagonal)
    for s, y in pairs:
        model.update(s, y)
    dense = dense_inverse(pairs, 5, torch.diag(diagonal))
    torch.testing.assert_close(model.apply(v), dense @ v, rtol=1e-9, atol=1e-12)


def test_refuses_pairs_without_positive_curvature() -> None:
    s = torch.ones(4, dtype=torch.float64)
    model = QuasiNewton(5)
    assert not model.update(s, -s)
    assert len(model) == 0


def test_refuses_pairs_that_underflow() -> None:
    """In single precision yᵀy is 0 although sᵀy is not."""
    s = torch.ones(4)
    model = QuasiNewton(5)
    assert not model.update(s, 1e-24 * s)
    assert model.update(s, 2.0 * s)
    torch.testing.assert_close(model.apply(s), 0.5 * s)


def test_knows_nothing_after_forgetting() -> None:
    model = QuasiNewton(3, initial=lambda v: 2.0 * v)
    for s, y in random_pairs(4, 5):
        model.update(s, y)
    model.forget()
    assert not model.informed
    v = torch.ones(4, dtype=torch.float64)
    result = model.apply(v)
    torch.testing.assert_close(result, v)
    assert result is not v
