"""L-BFGS in matrices against the dense BFGS update and the two-loop recursion."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from levelport.numerics.lbfgs import QuasiNewton, pair_products

Pairs = list[tuple[Tensor, Tensor]]


def random_pairs(dimension: int, count: int, seed: int = 0) -> Pairs:
    """Steps with their images under a positive definite matrix that changes a little from step to step."""
    generator = torch.Generator().manual_seed(seed)
    hessian = torch.diag(torch.logspace(0, -4, dimension, dtype=torch.float64))
    steps = torch.randn(count, dimension, generator=generator, dtype=torch.float64)
    factors = 1.0 + 0.2 * torch.rand(count, generator=generator, dtype=torch.float64)
    return [(s, factor * (hessian @ s)) for s, factor in zip(steps, factors, strict=True)]


def dense_inverse(pairs: Pairs, memory: int, diagonal: Tensor | None = None) -> Tensor:
    """BFGS updates of the inverse, H ← (I - ρ s yᵀ) H (I - ρ y sᵀ) + ρ s sᵀ, from the scaled identity or a diagonal."""
    kept = pairs[-memory:]
    s, y = kept[-1]
    identity = torch.eye(len(s), dtype=torch.float64)
    H = identity * (s @ y) / (y @ y) if diagonal is None else torch.diag(diagonal)
    for s, y in kept:
        rho = 1.0 / (s @ y)
        V = identity - rho * torch.outer(y, s)
        H = V.T @ H @ V + rho * torch.outer(s, s)
    return H


@pytest.mark.parametrize("count", [1, 4, 5, 6, 13])
@pytest.mark.parametrize("dimension", [3, 20])
def test_is_bfgs_when_old_pairs_are_dropped(dimension: int, count: int) -> None:
    pairs = random_pairs(dimension, count)
    model = QuasiNewton(5)
    for s, y in pairs:
        assert model.update(s, y)
    assert len(model) == min(count, 5)
    dense = dense_inverse(pairs, 5)
    v = torch.linspace(-1, 2, dimension, dtype=torch.float64)
    torch.testing.assert_close(model.apply(v), dense @ v, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("longer", [0.0, 0.25, 1.0])
def test_scale_between_the_steps_of_barzilai_and_borwein(longer: float) -> None:
    pairs = random_pairs(20, 8)
    model = QuasiNewton(5, longer=longer)
    for s, y in pairs:
        assert model.update(s, y)
    s, y = pairs[-1]
    gamma = ((s @ y) / (y @ y)) ** (1.0 - longer) * ((s @ s) / (s @ y)) ** longer
    dense = dense_inverse(pairs, 5, gamma * torch.ones(20, dtype=torch.float64))
    v = torch.linspace(-1, 2, 20, dtype=torch.float64)
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
    model = QuasiNewton(3)
    for s, y in random_pairs(4, 5):
        model.update(s, y)
    model.forget()
    assert not model.informed
    v = torch.ones(4, dtype=torch.float64)
    result = model.apply(v)
    torch.testing.assert_close(result, v)
    assert result is not v


def diagonal_of(pairs: Pairs) -> Tensor:
    """γ W of all pairs so far, entry by entry: the geometric mean of both step sizes in the running means."""
    step, change = torch.zeros_like(pairs[0][0]), torch.zeros_like(pairs[0][0])
    for s, y in pairs:
        step = 0.9 * step + (s / s.norm()) ** 2
        change = 0.9 * change + (y / y.norm()) ** 2
    W = torch.sqrt((step + 1e-6 * step.mean()) / (change + 1e-6 * change.mean()))
    W = W.clamp(0.1, 10.0)
    s, y = pairs[-1]
    return W * (s @ (s / W)) / (s @ y)


def two_loop(pairs: Pairs, diagonal: Tensor, r: Tensor) -> Tensor:
    """Nocedal and Wright, algorithm 7.4."""
    q, alphas = r.clone(), []
    for s, y in reversed(pairs):
        alphas.append(s @ q / (s @ y))
        q -= alphas[-1] * y
    d = diagonal * q
    for (s, y), alpha in zip(pairs, reversed(alphas), strict=True):
        d += s * (alpha - y @ d / (s @ y))
    return d


def sparse_pairs(dimension: int, count: int) -> Pairs:
    """The same as :func:`random_pairs` without a dense matrix."""
    generator = torch.Generator().manual_seed(0)
    diagonal = torch.logspace(0, -4, dimension, dtype=torch.float64)
    steps = torch.randn(count, dimension, generator=generator, dtype=torch.float64)
    return [(s, diagonal * s) for s in steps]


@pytest.mark.parametrize("count", [1, 4, 5, 6, 13])
@pytest.mark.parametrize("dimension", [3, 20, 10_001])
@pytest.mark.parametrize("memory", [1, 5])
def test_diagonal_is_bfgs_from_that_diagonal(memory: int, dimension: int, count: int) -> None:
    """Dense where that fits, against the two-loop recursion where it does not."""
    pairs = random_pairs(dimension, count) if dimension < 100 else sparse_pairs(dimension, count)
    r = torch.randn(dimension, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    model = QuasiNewton(memory, diagonal=True)
    assert not model.informed
    for s, y in pairs:
        assert model.update(s, y)
    diagonal = diagonal_of(pairs)
    dense = dimension < 100
    expected = dense_inverse(pairs, memory, diagonal) @ r if dense else two_loop(pairs[-memory:], diagonal, r)
    torch.testing.assert_close(model.apply(r), expected, rtol=1e-8, atol=1e-8 * float(expected.norm()))


def test_many_pairs_are_the_two_loop_recursion() -> None:
    """With 400 pairs and more, products of a Hessian among them."""
    pairs = sparse_pairs(1000, 450)
    model = QuasiNewton(400)
    for s, y in pairs:
        assert model.update(s, y)
    assert len(model) == 400
    s, y = pairs[-1]
    v = torch.linspace(-1, 2, 1000, dtype=torch.float64)
    expected = two_loop(pairs[-400:], (s @ y) / (y @ y) * torch.ones_like(v), v)
    torch.testing.assert_close(model.apply(v), expected, rtol=1e-7, atol=1e-7 * float(expected.norm()))


@pytest.mark.parametrize("diagonal", [False, True])
def test_long_float32_vectors_lose_no_digits(diagonal: bool) -> None:
    """Summed one after the other in float32, products of 300 000 numbers are wrong in the fifth digit."""
    generator = torch.Generator().manual_seed(0)
    scales = torch.logspace(0, -2, 300_000)
    steps = torch.randn(6, 300_000, generator=generator)
    r = torch.randn(300_000, generator=generator)
    model, exact = QuasiNewton(5, diagonal=diagonal), QuasiNewton(5, diagonal=diagonal)
    for s in steps:
        assert model.update(s, scales * s)
        assert exact.update(s.double(), (scales * s).double())
    found, expected = model.apply(r), exact.apply(r.double())
    assert float((found - expected).norm()) <= 1e-6 * float(expected.norm())


def test_products_that_were_read_before_are_used() -> None:
    (s, y), r = random_pairs(6, 1)[0], torch.ones(6, dtype=torch.float64)
    model, other = QuasiNewton(3, diagonal=True), QuasiNewton(3, diagonal=True)
    assert model.update(s, y, pair_products(s, y).tolist())
    assert other.update(s, y)
    assert torch.equal(model.apply(r), other.apply(r))
    assert not model.update(s, y, [-1.0, 1.0, 1.0])


def test_refused_pairs_change_nothing() -> None:
    """Those of negative curvature, and those that underflow."""
    r = torch.ones(6, dtype=torch.float64)
    model = QuasiNewton(3, diagonal=True)
    for s, y in random_pairs(6, 5):
        assert model.update(s, y)
    expected = model.apply(r)
    assert not model.update(s, -y)
    assert not model.update(s, 1e-200 * y)
    assert torch.equal(model.apply(r), expected)


def test_factors_beyond_the_range_do_no_lasting_harm() -> None:
    """γ is infinite in float32 here, and not after the pairs are dropped."""
    s = torch.randn(5001, generator=torch.Generator().manual_seed(0))
    r = torch.eye(5001)[0]
    model = QuasiNewton(3, diagonal=True)
    assert model.update(1e17 * s, 2e-23 * s)
    assert not math.isfinite(float(model.apply(r).norm()))
    model.forget()
    assert model.update(s, 2.0 * s)
    torch.testing.assert_close(model.apply(r), 0.5 * r)
