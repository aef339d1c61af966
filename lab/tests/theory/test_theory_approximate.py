"""Inexact teleports: the corrected one-step bounds are equalities on quadratics, hold on logistic problems, and the
published one fails without its cross term."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from theory_problems import Case, cases

from levelport.numerics.newton import hessian_by_columns as hessian_matrix
from levelport.solvers import Certificate
from levelport_lab.theory import rates_approximate, rates_stable
from levelport_lab.theory.certificates import step_factor
from levelport_lab.theory.rates_stable import Stability
from levelport_lab.theory.trajectory import largest_armijo_step

QUADRATIC = Stability(1.0, 1.0)


def quadratic(seed: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """A positive definite H and a displacement w - w*."""
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(rng.normal(size=(d, d)))
    return (Q * rng.uniform(0.1, 5.0, size=d)) @ Q.T, rng.normal(size=d)


@given(seed=st.integers(0, 10_000), d=st.integers(2, 5), factor=st.floats(0.0, 2.0), lam=st.floats(0.05, 6.0))
def test_bound_is_attained_on_quadratics_for_any_multiplier(seed: int, d: int, factor: float, lam: float) -> None:
    H, w = quadratic(seed, d)
    g, gap = H @ w, w @ H @ w / 2
    e = H @ g - lam * g
    step = factor / lam
    following = w - step * g
    bound = rates_approximate.approximate_step(
        gap, step, lam, QUADRATIC, error=e @ np.linalg.solve(H, e), cross=g @ np.linalg.solve(H, e)
    )
    assert bound == pytest.approx(following @ H @ following / 2, rel=1e-7, abs=1e-9)


@given(seed=st.integers(0, 10_000), d=st.integers(2, 5), factor=st.floats(0.01, 2.0))
def test_rayleigh_forms_are_attained_on_quadratics(seed: int, d: int, factor: float) -> None:
    H, w = quadratic(seed, d)
    g, gap = H @ w, w @ H @ w / 2
    lam = g @ H @ g / (g @ g)
    e = H @ g - lam * g
    E = e @ np.linalg.solve(H, e)
    following = w - factor / lam * g
    bound = rates_approximate.approximate_step(gap, factor / lam, lam, QUADRATIC, error=E, cross=-E / lam)
    assert bound == pytest.approx(following @ H @ following / 2, rel=1e-7, abs=1e-9)
    # The largest Armijo step of a quadratic is 1/λ.
    newton = w - g / lam
    truth = newton @ H @ newton / 2
    assert rates_approximate.approximate_armijo_rayleigh(gap, lam, QUADRATIC, error=E) == pytest.approx(truth, abs=1e-9)
    alignment = (g @ g) ** 2 / ((g @ H @ g) * (g @ np.linalg.solve(H, g)))
    assert step_factor(1.0, 1.0, alignment, 1.0, armijo=True) * gap == pytest.approx(truth, abs=1e-9)


def test_published_bound_without_cross_term_is_false() -> None:
    """H = diag(1, ½), w = (1, 1), η = 0.1 and the Rayleigh quotient for λ: 0.6306 where at most 0.6215 is claimed."""
    H, w, step = np.diag([1.0, 0.5]), np.ones(2), 0.1
    g, gap = H @ w, w @ H @ w / 2
    lam = g @ H @ g / (g @ g)
    e = H @ g - lam * g
    published = rates_stable.teleport_factor(step, lam, QUADRATIC) * gap + step**2 / 2 * (e @ np.linalg.solve(H, e))
    following = w - step * g
    assert published == pytest.approx(0.6215, abs=5e-5)
    assert following @ H @ following / 2 == pytest.approx(0.6306, abs=5e-5)


def test_inexact_teleport_error_is_first_order() -> None:
    """(true - published)/η tends to E/λ as η → 0, so that a decreasing step does not manage it."""
    H, w = np.diag([1.0, 0.5]), np.ones(2)
    g, gap = H @ w, w @ H @ w / 2
    lam = g @ H @ g / (g @ g)
    e = H @ g - lam * g
    E = e @ np.linalg.solve(H, e)
    for step in (1e-3, 1e-5):
        following = w - step * g
        missing = following @ H @ following / 2 - rates_stable.teleport_factor(step, lam, QUADRATIC) * gap
        assert missing / step == pytest.approx(E / lam, rel=1e-2)


def test_published_bound_fails_for_short_steps() -> None:
    failures = 0
    for seed in range(50):
        H, w = quadratic(seed, 3)
        g, gap = H @ w, w @ H @ w / 2
        lam = g @ H @ g / (g @ g)
        e = H @ g - lam * g
        E, step = e @ np.linalg.solve(H, e), 0.3 / lam
        published = rates_stable.teleport_factor(step, lam, QUADRATIC) * gap + step**2 / 2 * E
        following = w - step * g
        failures += following @ H @ following / 2 > published * (1 + 1e-9)
    assert failures > 25


def test_dropping_the_error_term_is_caught() -> None:
    H, w = quadratic(3, 4)
    g, gap = H @ w, w @ H @ w / 2
    lam = g @ H @ g / (g @ g)
    newton = w - g / lam
    truth = newton @ H @ newton / 2
    assert truth > 1.01 * rates_stable.teleport_factor_armijo(QUADRATIC) * gap
    assert truth > rates_approximate.approximate_armijo_rayleigh(gap, lam, QUADRATIC, error=0.0)


@pytest.mark.parametrize("case", [case for case in cases() if case.name.startswith("logistic")], ids=lambda c: c.name)
def test_bounds_hold_from_arbitrary_points_of_the_sublevel_set(case: Case) -> None:
    """A point that was not teleported at all is a very inexact teleport; also one that exceeds the level by r."""
    constants, stability, objective = case.constants, case.constants.stability, case.objective
    assert stability is not None
    generator = torch.Generator().manual_seed(0)
    for _ in range(12):
        shift = torch.randn(2, generator=generator, dtype=torch.float64)
        u = shift / torch.linalg.vector_norm(shift) * 0.5 * constants.radius_reached.value
        point = objective.at(constants.minimum.x + u, curvature=True)
        while point.value > constants.minimum.value + constants.initial_gap:
            u = 0.7 * u
            point = objective.at(constants.minimum.x + u, curvature=True)
        gap = point.value - constants.minimum.value
        H, g = hessian_matrix(point), point.gradient
        lam = Certificate.at(point).curvature
        e = H @ g - lam * g
        error, decrement = float(e @ torch.linalg.solve(H, e)), float(g @ torch.linalg.solve(H, g))
        assert gap <= decrement / (2 * stability.lower) * (1 + 1e-9)
        alignment = point.gradient_norm**4 / (float(g @ H @ g) * decrement)
        step = largest_armijo_step(objective, point)
        following = objective.at(point.x - step * g).value - constants.minimum.value
        armijo = rates_approximate.approximate_armijo_rayleigh
        assert following <= armijo(gap, lam, stability, error=error) + case.rounding
        aligned = step_factor(stability.upper, stability.lower, alignment, step * lam, armijo=True)
        assert following <= aligned * gap + case.rounding
        # The same point seen as a teleport from a level lower by r.
        excess = 0.1 * gap
        assert following <= armijo(gap - excess, lam, stability, error=error, excess=excess) + case.rounding
        for factor in (0.3, 1.0, 1.9):
            short = factor / (constants.L.value * stability.upper)
            following = objective.at(point.x - short * g).value - constants.minimum.value
            bound = rates_approximate.approximate_step(gap, short, lam, stability, error=error, cross=-error / lam)
            assert following <= bound + case.rounding


def test_steps_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="step must lie between"):
        rates_approximate.approximate_step(1.0, 3.0, 1.0, QUADRATIC, error=0.0, cross=0.0)
    with pytest.raises(ValueError, match="curvature must be positive"):
        rates_approximate.approximate_step(1.0, 0.1, 0.0, QUADRATIC, error=0.0, cross=0.0)
