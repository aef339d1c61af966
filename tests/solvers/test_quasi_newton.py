"""Both forms of L-BFGS, in matrices and in coefficients on the host, against the dense BFGS update."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from levelport.numerics.lbfgs import QuasiNewton
from levelport.numerics.tangent_lbfgs import TangentQuasiNewton

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
def test_is_bfgs_also_when_old_pairs_are_dropped(dimension: int, count: int) -> None:
    pairs = random_pairs(dimension, count)
    model = QuasiNewton(5)
    for s, y in pairs:
        assert model.update(s, y)
    assert len(model) == min(count, 5)
    dense = dense_inverse(pairs, 5)
    v = torch.linspace(-1, 2, dimension, dtype=torch.float64)
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
    """Nocedal and Wright, algorithm 7.4, as it stands there."""
    q, alphas = r.clone(), []
    for s, y in reversed(pairs):
        alphas.append(s @ q / (s @ y))
        q -= alphas[-1] * y
    d = diagonal * q
    for (s, y), alpha in zip(pairs, reversed(alphas), strict=True):
        d += s * (alpha - y @ d / (s @ y))
    return d


def step(model: TangentQuasiNewton, s: Tensor, y: Tensor, r: Tensor, n: Tensor) -> bool:
    for row, vector in zip(model.newest, (s, y, r, n), strict=True):
        row.copy_(vector)
    return model.learn(model.products().tolist())


@pytest.mark.parametrize("tangent", [False, True])
@pytest.mark.parametrize("count", [1, 4, 5, 6, 13])
@pytest.mark.parametrize("dimension", [3, 20, 10_001])
@pytest.mark.parametrize("memory", [1, 5])
def test_on_the_host_is_bfgs_projected(memory: int, dimension: int, count: int, tangent: bool) -> None:
    """Dense where that fits, against the textbook's two loops where it does not."""
    pairs = random_pairs(dimension, count) if dimension < 100 else sparse_pairs(dimension, count)
    generator = torch.Generator().manual_seed(1)
    r, n = torch.randn(2, dimension, generator=generator, dtype=torch.float64)
    n /= n.norm()
    model = TangentQuasiNewton(memory, r)
    assert not model.informed
    for s, y in pairs:
        assert step(model, s, y, r, n)
    diagonal = diagonal_of(pairs)
    dense = dimension < 100
    expected = dense_inverse(pairs, memory, diagonal) @ r if dense else two_loop(pairs[-memory:], diagonal, r)
    if tangent:
        expected -= torch.dot(expected, n) * n
    found = model.direction(tangent=tangent)
    torch.testing.assert_close(found.vector, expected, rtol=1e-8, atol=1e-8 * float(expected.norm()))
    assert found.length == pytest.approx(float(expected.norm()), rel=1e-8)
    assert found.slope == pytest.approx(float(torch.dot(expected, r)), rel=1e-7)


def sparse_pairs(dimension: int, count: int) -> Pairs:
    """The same as :func:`random_pairs` without a dense matrix."""
    generator = torch.Generator().manual_seed(0)
    diagonal = torch.logspace(0, -4, dimension, dtype=torch.float64)
    steps = torch.randn(count, dimension, generator=generator, dtype=torch.float64)
    return [(s, diagonal * s) for s in steps]


def test_on_the_host_a_long_vector_in_single_precision_loses_no_digits() -> None:
    """Summed one after the other in float32, products of 300 000 numbers are wrong in the fifth digit."""
    generator = torch.Generator().manual_seed(0)
    diagonal = torch.logspace(0, -2, 300_000)
    steps = torch.randn(6, 300_000, generator=generator)
    r, n = torch.randn(2, 300_000, generator=generator)
    n /= n.norm()
    model, exact = TangentQuasiNewton(5, r), TangentQuasiNewton(5, r.double())
    for s in steps:
        assert step(model, s, diagonal * s, r, n)
        assert step(exact, s.double(), (diagonal * s).double(), r.double(), n.double())
    found, expected = model.direction(), exact.direction()
    assert found.length == pytest.approx(expected.length, rel=1e-6)
    assert found.slope == pytest.approx(expected.slope, rel=1e-6)
    assert float((found.vector - expected.vector).norm()) <= 1e-6 * expected.length


def test_on_the_host_refused_pairs_change_nothing() -> None:
    """Those of negative curvature, those that underflow, and vectors that are no pair; r and n are taken note of."""
    pairs = random_pairs(6, 5)
    r, n = torch.eye(6, dtype=torch.float64)[:2]
    model, other = TangentQuasiNewton(3, r), TangentQuasiNewton(3, r)
    for s, y in pairs:
        step(model, s, y, n, r)
        step(other, s, y, r, n)
    assert not step(model, s, -y, r, n)
    assert not step(model, s, 1e-200 * y, r, n)
    assert not model.learn(model.products().tolist(), pair=False)
    found, expected = model.direction(), other.direction()
    torch.testing.assert_close(found.vector, expected.vector)
    assert found.slope == pytest.approx(expected.slope)
    model.forget()
    assert not model.informed
    assert step(model, s, 2.0 * s, r, n)
    torch.testing.assert_close(model.direction().vector, 0.5 * r)


@pytest.mark.parametrize("dimension", [3, 5001])
def test_on_the_host_projecting_takes_the_normal_out_of_s_and_y(dimension: int) -> None:
    s, y, r, n = torch.randn(4, dimension, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    n /= n.norm()
    model = TangentQuasiNewton(2, r)
    for row, vector in zip(model.newest, (s, y, r, n), strict=True):
        row.copy_(vector)
    model.project()
    for row, expected in zip(model.newest, (s - (s @ n) * n, y - (y @ n) * n, r, n), strict=True):
        torch.testing.assert_close(row, expected)


def test_on_the_host_factors_beyond_the_range_do_no_lasting_harm() -> None:
    """γ is infinite in float32 here. Infinity times the zeros that rows are padded with must not outlive it."""
    s = torch.randn(5001, generator=torch.Generator().manual_seed(0))
    r, n = torch.eye(5001)[:2]
    model = TangentQuasiNewton(3, r)
    assert step(model, 1e17 * s, 2e-23 * s, r, n)
    assert not math.isfinite(float(model.direction().vector.norm()))
    model.forget()
    assert step(model, s, 2.0 * s, r, n)
    torch.testing.assert_close(model.direction().vector, 0.5 * r)
